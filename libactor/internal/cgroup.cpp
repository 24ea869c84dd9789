#include "libactor/internal/cgroup.hpp"

#include <fstream>
#include <iterator>
#include <sstream>

namespace troupe::internal {
namespace fs = std::filesystem;
namespace {

struct Mount {
  std::string group;  ///< the group that lies at `point`
  std::string point;
};

bool has_word(std::string_view comma_list, std::string_view word) {
  while (!comma_list.empty()) {
    const auto comma = comma_list.find(',');
    if (comma_list.substr(0, comma) == word) return true;
    if (comma == std::string_view::npos) break;
    comma_list.remove_prefix(comma + 1);
  }
  return false;
}

/// mountinfo writes a blank as \040.
std::string unescape(const std::string& text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      result += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 +
                                  (text[i + 3] - '0'));
      i += 3;
    } else {
      result += text[i];
    }
  }
  return result;
}

/// The mount of version 1's `controller`, or of version 2 when it is empty.
std::optional<Mount> find_mount(const std::string& mountinfo, std::string_view controller) {
  std::istringstream lines(mountinfo);
  for (std::string line; std::getline(lines, line);) {
    const auto dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream before(line.substr(0, dash)), after(line.substr(dash + 3));
    std::string skipped, group, point, type, source, options;
    before >> skipped >> skipped >> skipped >> group >> point;
    after >> type >> source >> options;
    const bool wanted =
        controller.empty() ? type == "cgroup2" : type == "cgroup" && has_word(options, controller);
    if (wanted) return Mount{unescape(group), unescape(point)};
  }
  return std::nullopt;
}

/// The group of this process in version 1's `controller`, or in version 2 when it is empty.
std::optional<std::string> find_group(const std::string& cgroup, std::string_view controller) {
  std::istringstream lines(cgroup);
  for (std::string line; std::getline(lines, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (controller.empty() ? controllers.empty() : has_word(controllers, controller))
      return line.substr(second + 1);
  }
  return std::nullopt;
}

void add_folders(const fs::path& root, const Mount& mount, const std::string& group,
                 std::vector<fs::path>& folders) {
  // In a container the mount may show a part of the tree only. A group that is not below it (made
  // before the container, or in another namespace) can't be seen: what is mounted is ours then.
  const fs::path below = fs::path(group).lexically_relative(mount.group);
  const fs::path top = root / fs::path(mount.point).relative_path();
  const bool visible = !below.empty() && below != "." && *below.begin() != "..";
  for (fs::path at = visible ? top / below : top;; at = at.parent_path()) {
    folders.push_back(at);
    if (at == top) break;
  }
}

}  // namespace

std::optional<std::string> read_text_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return std::nullopt;
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (in.bad()) return std::nullopt;
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

std::vector<fs::path> cgroup_folders(const fs::path& root, std::string_view controller) {
  std::vector<fs::path> folders;
  const auto cgroup = read_text_file(root / "proc/self/cgroup");
  const auto mountinfo = read_text_file(root / "proc/self/mountinfo");
  if (!cgroup || !mountinfo) return folders;
  for (std::string_view wanted : {controller, std::string_view()}) {
    const auto mount = find_mount(*mountinfo, wanted);
    const auto group = find_group(*cgroup, wanted);
    if (mount && group) add_folders(root, *mount, *group, folders);
  }
  return folders;
}

}  // namespace troupe::internal
