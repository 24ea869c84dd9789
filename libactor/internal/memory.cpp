#include "libactor/internal/memory.hpp"

#include "libactor/internal/cgroup.hpp"
#include "libactor/resources.hpp"

#include <charconv>
#include <sstream>

namespace troupe::internal {
namespace fs = std::filesystem;
namespace {

/// The number behind "key " or "key:" at the start of a line.
std::optional<std::int64_t> number_of(const std::string& text, std::string_view key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(key) || line.size() <= key.size()) continue;
    if (line[key.size()] != ' ' && line[key.size()] != ':') continue;
    std::istringstream rest(line.substr(key.size() + 1));
    std::int64_t number = 0;
    if (rest >> number) return number;
  }
  return std::nullopt;
}

std::optional<pid_t> group_of(const fs::path& process) {
  const auto stat = read_text_file(process / "stat");
  if (!stat) return std::nullopt;
  // "12 (a name) S parent group …": the name may hold blanks and brackets.
  const auto bracket = stat->rfind(')');
  if (bracket == std::string::npos) return std::nullopt;
  std::istringstream rest(stat->substr(bracket + 1));
  std::string state;
  pid_t parent = 0, group = 0;
  if (!(rest >> state >> parent >> group)) return std::nullopt;
  return group;
}

/// The lease that a process was started with; empty when it has none.
std::string lease_in_environment(const fs::path& process, std::string_view variable) {
  const auto environment = read_text_file(process / "environ");
  if (!environment) return {};
  std::string_view rest = *environment;
  while (!rest.empty()) {
    const std::string_view entry = rest.substr(0, rest.find('\0'));
    if (entry.starts_with(variable) && entry.size() > variable.size() &&
        entry[variable.size()] == '=')
      return std::string(entry.substr(variable.size() + 1));
    rest.remove_prefix(std::min(entry.size() + 1, rest.size()));
  }
  return {};
}

}  // namespace

std::map<std::string, std::int64_t> pss_by_lease(const fs::path& root,
                                                 const std::map<pid_t, std::string>& lease_of_group,
                                                 std::string_view variable) {
  std::map<std::string, std::int64_t> wanted;
  for (const auto& [group, lease] : lease_of_group) wanted[lease] = -1;
  std::error_code error;  // processes come and go while we look
  for (fs::directory_iterator entry(root / "proc", error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const auto group = group_of(entry->path());
    if (!group) continue;
    const auto of_group = lease_of_group.find(*group);
    const auto lease = wanted.find(of_group != lease_of_group.end()
                                       ? of_group->second
                                       : lease_in_environment(entry->path(), variable));
    if (lease == wanted.end()) continue;
    const auto rollup = read_text_file(entry->path() / "smaps_rollup");
    if (!rollup) continue;
    if (const auto pss_kib = number_of(*rollup, "Pss"))
      lease->second = std::max<std::int64_t>(lease->second, 0) + *pss_kib * 1024;
  }
  std::erase_if(wanted, [](const auto& item) { return item.second < 0; });
  return wanted;
}

std::int64_t oom_kill_count(const fs::path& root) {
  for (const auto& folder : cgroup_folders(root, "memory"))
    for (const char* name : {"memory.events", "memory.oom_control"})
      if (const auto text = read_text_file(folder / name))
        if (const auto count = number_of(*text, "oom_kill")) return *count;
  const auto machine = read_text_file(root / "proc/vmstat");
  return machine ? number_of(*machine, "oom_kill").value_or(0) : 0;
}

std::optional<std::string> above_grant(std::int64_t granted_bytes, std::int64_t used_bytes) {
  if (granted_bytes <= 0 || used_bytes <= granted_bytes) return std::nullopt;
  return "out of memory: used " + bytes_text(used_bytes) + " of " + bytes_text(granted_bytes) +
         " granted";
}

}  // namespace troupe::internal
