#include "nodes/commands.hpp"

#include "libactor/internal/cgroup.hpp"

#include <sys/resource.h>
#include <sys/statvfs.h>
#include <nlohmann/json.hpp>

#include <iomanip>

namespace troupe::nodes {

std::string version() { return TROUPE_VERSION; }

Surroundings detect_surroundings(const std::filesystem::path& root) {
  Surroundings found;
  rlimit files = {};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur != RLIM_INFINITY)
    found.open_files_limit = static_cast<std::int64_t>(files.rlim_cur);
  struct statvfs shm = {};
  if (statvfs((root / "dev/shm").c_str(), &shm) == 0) {
    const auto block = static_cast<std::int64_t>(shm.f_frsize);
    found.shared_memory_bytes = block * static_cast<std::int64_t>(shm.f_blocks);
    found.shared_memory_free_bytes = block * static_cast<std::int64_t>(shm.f_bavail);
  }
  // The first is Linux's own limit; the others are Debian's and Ubuntu's switches.
  const auto value = [&root](const char* file, const std::string& fallback) {
    return internal::read_text_file(root / "proc/sys" / file).value_or(fallback);
  };
  found.user_namespaces = value("user/max_user_namespaces", "0") != "0" &&
                          value("kernel/unprivileged_userns_clone", "1") != "0" &&
                          value("kernel/apparmor_restrict_unprivileged_userns", "0") == "0";
  return found;
}

ExitCode doctor(const internal::Machine& machine, const Surroundings& surroundings, bool json,
                std::ostream& out) {
  if (json) {
    auto gpus = nlohmann::json::array();
    for (const auto& gpu : machine.gpus) gpus.push_back(gpu.id);
    const nlohmann::ordered_json report = {
        {"version", version()},
        {"host", machine.host},
        {"cpus", machine.cpus.cpus.units()},
        {"cpus_source", machine.cpus.source},
        {"threads", internal::thread_count(machine.cpus.cpus)},
        {"memory_bytes", machine.memory.bytes},
        {"memory_source", machine.memory.source},
        {"gpus", gpus},
        {"open_files_limit", surroundings.open_files_limit},
        {"shared_memory_bytes", surroundings.shared_memory_bytes},
        {"shared_memory_free_bytes", surroundings.shared_memory_free_bytes},
        {"user_namespaces", surroundings.user_namespaces},
    };
    // A host name or device id may hold bytes that are no UTF-8.
    out << report.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
    return ExitCode::done;
  }
  const auto line = [&out](const char* name, const std::string& value) {
    out << std::left << std::setw(18) << name << value << '\n';
  };
  line("version", version());
  line("host", machine.host);
  line("cpus", machine.cpus.cpus.text() + " (" + machine.cpus.source + ")");
  line("memory", machine.memory.bytes == 0
                     ? "unknown"
                     : bytes_text(machine.memory.bytes) + " (" + machine.memory.source + ")");
  std::string gpus;
  for (const auto& gpu : machine.gpus) gpus += " " + gpu.id;
  line("gpus", std::to_string(machine.gpus.size()) + gpus);
  line("open files", surroundings.open_files_limit < 0
                         ? "no limit"
                         : std::to_string(surroundings.open_files_limit));
  line("shared memory", surroundings.shared_memory_bytes == 0
                            ? "none"
                            : bytes_text(surroundings.shared_memory_free_bytes) + " free of " +
                                  bytes_text(surroundings.shared_memory_bytes));
  line("user namespaces", surroundings.user_namespaces ? "yes" : "no");
  return ExitCode::done;
}

}  // namespace troupe::nodes
