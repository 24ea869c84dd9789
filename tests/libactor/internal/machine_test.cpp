#include "libactor/internal/machine.hpp"

#include "tests/support/temp_folder.hpp"

#include <doctest/doctest.h>

using namespace troupe;
using namespace troupe::internal;
using troupe::test::TempFolder;

namespace {

struct V2 : TempFolder {
  V2() {
    write("proc/self/cgroup", "0::/a/b\n");
    write("proc/self/mountinfo", "30 22 0:26 / /cg rw - cgroup2 cgroup2 rw\n");
    write("proc/meminfo", "MemTotal:        8000000 kB\nMemFree: 1 kB\n");
  }
};

struct V1 : TempFolder {
  V1() {
    write("proc/self/cgroup", "5:memory:/a\n4:cpu,cpuacct:/a\n3:cpuset:/a\n");
    write("proc/self/mountinfo",
          "31 1 0:27 / /cg/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
          "32 1 0:28 / /cg/cpuset rw - cgroup cgroup rw,cpuset\n"
          "33 1 0:29 / /cg/memory rw - cgroup cgroup rw,memory\n");
    write("proc/meminfo", "MemTotal:        8000000 kB\n");
  }
};

constexpr ProcessFacts k16Cpus{.affinity_cpu_count = 16};

CpuLimit cpus(const TempFolder& root) { return detect_cpus(root.path(), k16Cpus); }
MemoryLimit memory(const TempFolder& root, ProcessFacts process = k16Cpus) {
  return detect_memory(root.path(), process);
}

}  // namespace

TEST_CASE("cpus: without control groups the affinity counts") {
  TempFolder root;
  CHECK(cpus(root).cpus == Amount(16));
  CHECK(cpus(root).source == "affinity");
}

TEST_CASE("cpus: version 2: the least quota up the tree, its fraction kept; max is none") {
  V2 root;
  root.write("cg/a/b/cpu.max", "max 100000\n");
  CHECK(cpus(root).cpus == Amount(16));
  root.write("cg/a/cpu.max", "150000 100000\n");
  CHECK(cpus(root).cpus == Amount(1.5));
  CHECK(cpus(root).source == "/cg/a/cpu.max");
  root.write("cg/a/b/cpu.max", "25000 50000\n");
  CHECK(cpus(root).cpus == Amount(0.5));
  root.write("cg/a/b/cpu.max", "9900000 100000\n");
  CHECK(cpus(root).cpus == Amount(1.5));
}

TEST_CASE("cpus: version 2: the effective cpuset, and a list where there is no effective one") {
  V2 root;
  root.write("cg/a/b/cpuset.cpus.effective", "0-2,8\n");
  CHECK(cpus(root).cpus == Amount(4));
  CHECK(cpus(root).source == "/cg/a/b/cpuset.cpus.effective");
  root.write("cg/a/cpuset.cpus", "1,3\n");
  CHECK(cpus(root).cpus == Amount(2));
}

TEST_CASE("cpus: version 1: -1 is no quota, an ancestor's counts, and so does the cpuset") {
  V1 root;
  root.write("cg/cpu/a/cpu.cfs_quota_us", "-1\n");
  root.write("cg/cpu/a/cpu.cfs_period_us", "100000\n");
  CHECK(cpus(root).cpus == Amount(16));
  root.write("cg/cpuset/a/cpuset.cpus", "0-7\n");
  CHECK(cpus(root).cpus == Amount(8));
  root.write("cg/cpu/cpu.cfs_quota_us", "250000\n");
  CHECK(cpus(root).cpus == Amount(8));  // no period beside it: means nothing
  root.write("cg/cpu/cpu.cfs_period_us", "100000\n");
  CHECK(cpus(root).cpus == Amount(2.5));
  CHECK(cpus(root).source == "/cg/cpu/cpu.cfs_quota_us");
}

TEST_CASE("cpus: hybrid: a limit of either version counts") {
  V1 root;
  root.write("proc/self/cgroup", "4:cpu:/a\n0::/u\n");
  root.write("proc/self/mountinfo",
             "31 1 0:27 / /cg/cpu rw - cgroup cgroup rw,cpu\n"
             "32 1 0:28 / /cg/unified rw - cgroup2 cgroup2 rw\n");
  root.write("cg/cpu/a/cpu.cfs_quota_us", "600000\n");
  root.write("cg/cpu/a/cpu.cfs_period_us", "100000\n");
  CHECK(cpus(root).cpus == Amount(6));
  root.write("cg/unified/u/cpu.max", "300000 100000\n");
  CHECK(cpus(root).cpus == Amount(3));
}

TEST_CASE("cpus: files that make no sense limit nothing, and nothing limits to zero") {
  V2 root;
  root.write("cg/a/b/cpuset.cpus.effective", "\n");
  for (const char* text : {"", "max", "0 100000", "-5 100000", "x y", "100000 0", "100000"}) {
    root.write("cg/a/b/cpu.max", text);
    CHECK(cpus(root).cpus == Amount(16));
  }
  for (const char* text : {"3-1", "a", "1-", "-"}) {
    root.write("cg/a/b/cpuset.cpus.effective", text);
    CHECK(cpus(root).cpus == Amount(16));
  }
  root.write("cg/a/b/cpu.max", "1 100000000");
  CHECK(cpus(root).cpus.parts() == 1);
}

TEST_CASE("cpus: threads are whole, at least one") {
  CHECK(thread_count(0.5) == 1);
  CHECK(thread_count(0) == 1);
  CHECK(thread_count(2.9) == 2);
  CHECK(thread_count(4) == 4);
}

TEST_CASE("memory: the least of host, limits up the tree, and address space") {
  V2 root;
  CHECK(memory(root).bytes == std::int64_t{8000000} * 1024);
  CHECK(memory(root).source == "host");
  root.write("cg/a/b/memory.max", "max\n");
  root.write("cg/a/memory.max", "4000000000\n");
  CHECK(memory(root).bytes == 4000000000);
  root.write("cg/a/b/memory.high", "3000000000\n");
  CHECK(memory(root).source == "/cg/a/b/memory.high");
  CHECK(memory(root, {.address_space_bytes = 1 << 20}).source == "RLIMIT_AS");
}

TEST_CASE("memory: version 1's huge number is no limit") {
  V1 root;
  root.write("cg/memory/a/memory.limit_in_bytes", "9223372036854771712\n");
  CHECK(memory(root).source == "host");
  root.write("cg/memory/memory.limit_in_bytes", "1000000\n");
  CHECK(memory(root).bytes == 1000000);
}

namespace {

void add_gpu(const TempFolder& root, const std::string& bus, int minor, const std::string& uuid,
             bool device_file = true) {
  root.write("proc/driver/nvidia/gpus/" + bus + "/information",
             "Model: \t\t NVIDIA\nIRQ:   \t\t 24\nGPU UUID: \t " + uuid + "\nDevice Minor: \t " +
                 std::to_string(minor) + "\n");
  if (device_file) root.write("dev/nvidia" + std::to_string(minor), "");
}

std::string gpus(const TempFolder& root, std::optional<std::string> inherited = {}) {
  std::string text;
  for (const auto& gpu : detect_gpus(root.path(), {.cuda_visible_devices = inherited}))
    text += gpu.id + ";";
  return text;
}

}  // namespace

TEST_CASE("gpus: UUIDs in the order of the bus, and only where the device can be opened") {
  TempFolder root;
  CHECK(gpus(root).empty());
  add_gpu(root, "0000:04:00.0", 0, "GPU-bb");
  add_gpu(root, "0000:03:00.0", 1, "GPU-aa");
  add_gpu(root, "0000:05:00.0", 2, "GPU-cc", false);  // the host's, not the container's
  CHECK(gpus(root) == "GPU-aa;GPU-bb;");
}

TEST_CASE("gpus: one unknown UUID makes all of them numbers, since CUDA takes no mixed list") {
  TempFolder root;
  add_gpu(root, "0000:03:00.0", 0, "GPU-aa");
  add_gpu(root, "0000:04:00.0", 1, "GPU-?-?");
  CHECK(gpus(root) == "0;1;");
}

TEST_CASE("gpus: device files alone are counted; nvidiactl and the like are none") {
  TempFolder root;
  for (const char* name : {"nvidia0", "nvidia7", "nvidiactl", "nvidia-uvm", "nvidia-1"})
    root.write(std::string("dev/") + name, "");
  CHECK(gpus(root) == "0;1;");
}

TEST_CASE("gpus: an inherited list is mapped through, up to its first wrong entry") {
  TempFolder root;
  for (int i = 0; i < 4; ++i)
    add_gpu(root, "0000:0" + std::to_string(i), i, "GPU-a" + std::to_string(i));
  CHECK(gpus(root, "2,3") == "2;3;");
  CHECK(gpus(root, " 3 , 0 ") == "3;0;");
  CHECK(gpus(root, "") == "");
  CHECK(gpus(root, "-1") == "");
  CHECK(gpus(root, "1,9,2") == "1;");
  CHECK(gpus(root, "1,,2") == "1;");
  CHECK(gpus(root, "1,1,2") == "1;");
  CHECK(gpus(root, "NoDevFiles") == "");
  CHECK(gpus(root, "GPU-a2,MIG-x,GPU-zz") == "GPU-a2;MIG-x;");
  CHECK(gpus(TempFolder(), "0,1") == "");  // no device at all
}

TEST_CASE("gpus: a worker sees exactly what it was granted") {
  const std::vector<Gpu> two = {{"2"}, {"3"}};
  const std::vector<int> both = {0, 1}, second = {1};
  CHECK(visible_devices(Amount(2), two, both).cuda_visible_devices == "2,3");
  CHECK(visible_devices(Amount(0.5), two, second).cuda_visible_devices == "3");
  CHECK(visible_devices(Amount(1), two, second).warning.empty());
}

TEST_CASE("gpus: 0 hides all in silence; not said hides all with a warning where there are some") {
  CHECK(visible_devices(Amount(0), fake_gpus(2), {}).cuda_visible_devices.empty());
  CHECK(visible_devices(Amount(0), fake_gpus(2), {}).warning.empty());
  CHECK(visible_devices({}, fake_gpus(2), {}).cuda_visible_devices.empty());
  CHECK(visible_devices({}, fake_gpus(2), {}).warning.find("2 GPU(s)") != std::string::npos);
  CHECK(visible_devices({}, {}, {}).warning.empty());
}

TEST_CASE("machine: this one has a name, a CPU and memory") {
  const Machine machine = detect_machine();
  CHECK_FALSE(machine.host.empty());
  CHECK(machine.cpus.cpus > Amount(0));
  CHECK(machine.memory.bytes > 1 << 20);
  CHECK(machine.resources().gpus == Amount(static_cast<int>(machine.gpus.size())));
}
