#pragma once

#include "libactor/resources.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace troupe::internal {

/// What this machine lets one process use. Everything is read below a root folder, so that tests
/// bring machines of their own.

/// What the kernel says of a process by system calls; the rest stands in files.
struct ProcessFacts {
  int affinity_cpu_count = 1;
  std::int64_t address_space_bytes = -1;                 ///< RLIMIT_AS; -1: none
  std::optional<std::string> cuda_visible_devices = {};  ///< inherited; unset and empty differ
};
ProcessFacts this_process();

/// A number, and what set it: "cpu.max of /sys/fs/cgroup/a.slice".
struct CpuLimit {
  Amount cpus = 1;  ///< quotas may be fractions
  std::string source = {};
};
struct MemoryLimit {
  std::int64_t bytes = 0;  ///< 0: unknown
  std::string source = {};
};

/// The least of affinity, cpuset and quota of our control group and all above it (version 1 and 2).
/// `std::thread::hardware_concurrency` knows only some of them.
CpuLimit detect_cpus(const std::filesystem::path& root, const ProcessFacts& process);

/// The least of host, limits up the control groups (version 1 and 2), and RLIMIT_AS.
MemoryLimit detect_memory(const std::filesystem::path& root, const ProcessFacts& process);

/// One device, at its place in Machine::gpus.
struct Gpu {
  std::string id = {};  ///< what CUDA_VISIBLE_DEVICES calls it: its UUID, or an inherited entry
};

/// The devices whose files can be opened (in a container /proc shows the host's) and that the
/// inherited list lets us see, in its order: a process that was started with "2,3" hands out 2 and
/// 3. CUDA's rule for lists holds: a wrong entry hides itself and all after it.
std::vector<Gpu> detect_gpus(const std::filesystem::path& root, const ProcessFacts& process);

/// Pretended devices: "0", "1", …
std::vector<Gpu> fake_gpus(int count);

struct Machine {
  std::string host = {};
  CpuLimit cpus = {};
  MemoryLimit memory = {};
  std::vector<Gpu> gpus = {};

  Resources resources() const;
};
Machine detect_machine(const std::filesystem::path& root = "/",
                       const ProcessFacts& process = this_process());

struct DeviceVisibility {
  std::string cuda_visible_devices = {};  ///< for the worker's environment; empty hides all
  std::string warning = {};               ///< said once a run; empty: none
};

/// What a worker may see. asked: `Resources::gpus` of its request; granted: indices into `gpus`.
/// More than 0 asked: exactly the granted ones. 0: none. Not said: none, and a warning where there
/// are some, since code that forgot to ask would run on the CPU unnoticed.
DeviceVisibility visible_devices(const std::optional<Amount>& asked, std::span<const Gpu> gpus,
                                 std::span<const int> granted);

/// max(1, floor(cpus)).
int thread_count(Amount cpus);

}  // namespace troupe::internal
