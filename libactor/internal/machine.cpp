#include "libactor/internal/machine.hpp"

#include "libactor/assert.hpp"
#include "libactor/id.hpp"
#include "libactor/internal/cgroup.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <system_error>

namespace troupe::internal {
namespace fs = std::filesystem;
namespace {

std::optional<std::int64_t> parse_int(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// "/sys/fs/cgroup/x" of a file below a fixture's root, for people.
std::string shown(const fs::path& root, const fs::path& file) {
  return "/" + file.lexically_relative(root).string();
}

/// How many CPUs "0-3,8" names; 0 for an empty or broken list.
int count_cpus(std::string_view list) {
  std::int64_t count = 0;
  std::istringstream ranges{std::string(list)};
  for (std::string range; std::getline(ranges, range, ',');) {
    const auto dash = range.find('-');
    const auto first = parse_int(std::string_view(range).substr(0, dash));
    const auto last =
        dash == std::string::npos ? first : parse_int(std::string_view(range).substr(dash + 1));
    if (!first || !last || *last < *first) return 0;
    count += *last - *first + 1;
  }
  return static_cast<int>(std::min<std::int64_t>(count, 1 << 20));
}

/// quota/period of one group, or nullopt when it has none.
std::optional<Amount> cpu_quota(const fs::path& folder, std::string& file_name) {
  std::optional<std::int64_t> quota, period;
  if (const auto text = read_text_file(folder / "cpu.max")) {  // version 2: "150000 100000"
    file_name = "cpu.max";
    const auto blank = text->find(' ');
    if (blank == std::string::npos) return std::nullopt;
    quota = parse_int(std::string_view(*text).substr(0, blank));  // "max" is no number
    period = parse_int(std::string_view(*text).substr(blank + 1));
  } else if (const auto v1 = read_text_file(folder / "cpu.cfs_quota_us")) {
    file_name = "cpu.cfs_quota_us";
    quota = parse_int(*v1);  // -1: none
    if (const auto text1 = read_text_file(folder / "cpu.cfs_period_us")) period = parse_int(*text1);
  }
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return std::max(Amount::of_parts(1),
                  Amount(static_cast<double>(*quota) / static_cast<double>(*period)));
}

void lower(CpuLimit& limit, Amount cpus, const std::string& source) {
  if (cpus < limit.cpus) limit = {cpus, source};
}

void lower(MemoryLimit& limit, std::int64_t bytes, const std::string& source) {
  if (bytes > 0 && (limit.bytes == 0 || bytes < limit.bytes)) limit = {bytes, source};
}

bool can_be_opened(const fs::path& device) {
  const int fd = open(device.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return false;
  close(fd);
  return true;
}

/// The value of "Key: \t value" in a file of such lines.
std::string field(const std::string& text, std::string_view key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(key) || line.size() <= key.size() || line[key.size()] != ':') continue;
    const auto start = line.find_first_not_of(" \t", key.size() + 1);
    return start == std::string::npos ? "" : line.substr(start);
  }
  return "";
}

/// The UUIDs of the devices that we may open, in the order of their bus; "" where it is not known.
std::vector<std::string> openable_devices(const fs::path& root) {
  std::vector<std::string> uuids;
  std::error_code error;
  std::vector<fs::path> folders;
  for (fs::directory_iterator at(root / "proc/driver/nvidia/gpus", error), end; !error && at != end;
       at.increment(error))
    folders.push_back(at->path());
  std::sort(folders.begin(), folders.end());
  for (const auto& folder : folders) {
    const auto information = read_text_file(folder / "information");
    if (!information) continue;
    const auto minor = parse_int(field(*information, "Device Minor"));
    if (!minor || !can_be_opened(root / "dev" / ("nvidia" + std::to_string(*minor)))) continue;
    const std::string uuid = field(*information, "GPU UUID");
    uuids.push_back(uuid.starts_with("GPU-") && uuid.find('?') == std::string::npos ? uuid : "");
  }
  if (!folders.empty()) return uuids;
  for (fs::directory_iterator at(root / "dev", error), end; !error && at != end;
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with("nvidia") &&
        parse_int(std::string_view(name).substr(6)).value_or(-1) >= 0 && can_be_opened(at->path()))
      uuids.push_back("");
  }
  return uuids;
}

/// Whether CUDA would take this entry of an inherited list.
bool names_a_device(const std::string& entry, const std::vector<std::string>& uuids) {
  if (const auto index = parse_int(entry))
    return *index >= 0 && *index < static_cast<std::int64_t>(uuids.size());
  if (entry.starts_with("MIG-")) return true;  // slices are listed nowhere in /proc
  if (!entry.starts_with("GPU-")) return false;
  return std::any_of(uuids.begin(), uuids.end(), [&entry](const std::string& uuid) {
    return uuid.empty() || uuid.starts_with(entry);  // a shortened one is allowed
  });
}

}  // namespace

ProcessFacts this_process() {
  ProcessFacts facts;
  // A fixed cpu_set_t holds 1,024 CPUs; the kernel answers EINVAL where it has more.
  for (int capacity = CPU_SETSIZE; capacity <= 1 << 20; capacity *= 2) {
    const std::size_t size = CPU_ALLOC_SIZE(capacity);
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(
        CPU_ALLOC(capacity), [](cpu_set_t* allocated) { CPU_FREE(allocated); });
    if (sched_getaffinity(0, size, set.get()) == 0) {
      facts.affinity_cpu_count = std::max(1, CPU_COUNT_S(size, set.get()));
      break;
    }
    if (errno != EINVAL) break;
  }
  rlimit limit = {};
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    facts.address_space_bytes =
        static_cast<std::int64_t>(std::min<rlim_t>(limit.rlim_cur, static_cast<rlim_t>(INT64_MAX)));
  if (const char* inherited = std::getenv("CUDA_VISIBLE_DEVICES"))
    facts.cuda_visible_devices = inherited;
  return facts;
}

CpuLimit detect_cpus(const fs::path& root, const ProcessFacts& process) {
  CpuLimit limit{process.affinity_cpu_count, "affinity"};
  for (const auto& folder : cgroup_folders(root, "cpuset"))
    // Version 2, version 1, and the lists before what is missing is inherited.
    for (const char* name : {"cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"})
      if (const auto list = read_text_file(folder / name))
        if (const int count = count_cpus(*list); count > 0)
          lower(limit, count, shown(root, folder / name));
  for (const auto& folder : cgroup_folders(root, "cpu")) {
    std::string name;
    if (const auto quota = cpu_quota(folder, name))
      lower(limit, *quota, shown(root, folder / name));
  }
  return limit;
}

MemoryLimit detect_memory(const fs::path& root, const ProcessFacts& process) {
  MemoryLimit limit;
  if (const auto text = read_text_file(root / "proc/meminfo")) {
    std::string total = field(*text, "MemTotal");  // "2048000 kB"
    if (const auto kib = parse_int(total.substr(0, total.find(' '))))
      lower(limit, *kib * 1024, "host");
  }
  for (const auto& folder : cgroup_folders(root, "memory"))
    for (const char* name : {"memory.max", "memory.high", "memory.limit_in_bytes"})
      if (const auto text = read_text_file(folder / name))  // "max" is no number
        if (const auto bytes = parse_int(*text)) lower(limit, *bytes, shown(root, folder / name));
  lower(limit, process.address_space_bytes, "RLIMIT_AS");
  return limit;
}

std::vector<Gpu> detect_gpus(const fs::path& root, const ProcessFacts& process) {
  const auto uuids = openable_devices(root);
  std::vector<Gpu> gpus;
  if (!process.cuda_visible_devices) {
    const bool all_known = std::find(uuids.begin(), uuids.end(), "") == uuids.end();
    for (std::size_t i = 0; i < uuids.size(); ++i)
      gpus.push_back({all_known ? uuids[i] : std::to_string(i)});  // CUDA takes no mixed lists
    return gpus;
  }
  if (uuids.empty()) return gpus;
  std::istringstream entries(*process.cuda_visible_devices);
  for (std::string entry; std::getline(entries, entry, ',');) {
    entry.erase(0, entry.find_first_not_of(' '));
    entry.erase(entry.find_last_not_of(' ') + 1);
    const bool twice =
        std::any_of(gpus.begin(), gpus.end(), [&entry](const Gpu& gpu) { return gpu.id == entry; });
    if (twice || !names_a_device(entry, uuids)) break;
    gpus.push_back({entry});
  }
  return gpus;
}

std::vector<Gpu> fake_gpus(int count) {
  std::vector<Gpu> gpus;
  for (int i = 0; i < count; ++i) gpus.push_back({std::to_string(i)});
  return gpus;
}

Resources Machine::resources() const {
  return {.cpus = cpus.cpus, .gpus = static_cast<int>(gpus.size()), .memory_bytes = memory.bytes};
}

Machine detect_machine(const fs::path& root, const ProcessFacts& process) {
  return {.host = host_name(),
          .cpus = detect_cpus(root, process),
          .memory = detect_memory(root, process),
          .gpus = detect_gpus(root, process)};
}

DeviceVisibility visible_devices(const std::optional<Amount>& asked, std::span<const Gpu> gpus,
                                 std::span<const int> granted) {
  DeviceVisibility result;
  if (!asked && !gpus.empty())
    result.warning = "this machine has " + std::to_string(gpus.size()) +
                     " GPU(s), and none was asked for, so none is visible; ask for .gpus = 1, or "
                     "say .gpus = 0 if that is meant";
  if (!asked || *asked == Amount()) return result;
  for (int index : granted) {
    TROUPE_ASSERT(index >= 0 && index < static_cast<int>(gpus.size()), index, gpus.size());
    if (!result.cuda_visible_devices.empty()) result.cuda_visible_devices += ',';
    result.cuda_visible_devices += gpus[index].id;
  }
  return result;
}

int thread_count(Amount cpus) {
  return static_cast<int>(std::clamp<std::int64_t>(cpus.parts() / Amount::kScale, 1, 1 << 20));
}

}  // namespace troupe::internal
