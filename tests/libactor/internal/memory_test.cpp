#include "libactor/internal/memory.hpp"

#include "tests/support/child.hpp"
#include "tests/support/temp_folder.hpp"

#include <doctest/doctest.h>
#include <sys/mman.h>

#include <cstring>

using namespace troupe::internal;
using troupe::test::TempFolder;
using troupe::test::WaitingChild;

namespace {

constexpr std::int64_t kMiB = 1 << 20;

void add_process(const TempFolder& root, int pid, int group, int pss_kib,
                 std::string_view environment = "") {
  const std::string folder = "proc/" + std::to_string(pid) + "/";
  root.write(folder + "stat",
             std::to_string(pid) + " (a (b) c) S 1 " + std::to_string(group) + " 5 0 -1\n");
  root.write(folder + "smaps_rollup", "55-7f ---p 00 00:00 0 [rollup]\nRss: 999 kB\nPss:    " +
                                          std::to_string(pss_kib) + " kB\nPss_Anon: 1 kB\n");
  root.write(folder + "environ", environment);
}

}  // namespace

TEST_CASE("memory: PSS is summed over the group and over those who carry the lease elsewhere") {
  TempFolder root;
  using namespace std::string_view_literals;
  add_process(root, 10, 10, 100);
  add_process(root, 11, 10, 20);
  add_process(root, 12, 12, 3, "PATH=/bin\0TROUPE_LEASE=one\0X=\0"sv);  // left its group
  add_process(root, 13, 13, 4000, "TROUPE_LEASE=other\0NOT_TROUPE_LEASE=one\0"sv);
  add_process(root, 20, 20, 7);
  root.write("proc/99/stat", "99 (gone");
  root.write("proc/meminfo", "");
  const auto pss =
      pss_by_lease(root.path(), {{10, "one"}, {20, "two"}, {30, "three"}}, "TROUPE_LEASE");
  CHECK(pss == std::map<std::string, std::int64_t>{{"one", 123 * 1024}, {"two", 7 * 1024}});
}

TEST_CASE("memory: what a real process uses alone counts whole, what it shares counts in part") {
  constexpr std::size_t kShared = 32 * kMiB;
  void* shared = mmap(nullptr, kShared, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(shared != MAP_FAILED);
  std::memset(shared, 1, kShared);
  const auto allocate = [](std::size_t bytes) {
    void* own = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (own != MAP_FAILED) std::memset(own, 1, bytes);
  };
  WaitingChild large([&] { allocate(64 * kMiB); });
  WaitingChild small([&] { allocate(1 * kMiB); });
  REQUIRE(large.is_ready());
  REQUIRE(small.is_ready());
  const auto pss = pss_by_lease("/", {{large.pid(), "large"}, {small.pid(), "small"}}, "NO_SUCH");
  munmap(shared, kShared);
  REQUIRE(pss.size() == 2);
  CHECK(pss.at("large") > 64 * kMiB);
  CHECK(pss.at("small") < 32 * kMiB);  // a third of what all three share
  CHECK(pss.at("large") - pss.at("small") > 60 * kMiB);
}

TEST_CASE(
    "memory: out-of-memory kills are counted by our group, of either version, else the machine") {
  TempFolder root;
  CHECK(oom_kill_count(root.path()) == 0);
  root.write("proc/vmstat", "nr_free 1\noom_kill 3\n");
  CHECK(oom_kill_count(root.path()) == 3);
  root.write("proc/self/cgroup", "4:memory:/a\n");
  root.write("proc/self/mountinfo", "31 1 0:27 / /cg rw - cgroup cgroup rw,memory\n");
  root.write("cg/a/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n");
  CHECK(oom_kill_count(root.path()) == 5);
  root.write("proc/self/cgroup", "0::/b\n");
  root.write("proc/self/mountinfo", "31 1 0:27 / /cg rw - cgroup2 cgroup2 rw\n");
  root.write("cg/b/memory.events", "low 0\nhigh 2\nmax 9\noom 8\noom_kill 7\n");
  CHECK(oom_kill_count(root.path()) == 7);
}

TEST_CASE(
    "memory: above the grant there is a sentence with both numbers, at the grant there is none") {
  CHECK(above_grant(256 * kMiB, 512 * kMiB) == "out of memory: used 512.0MiB of 256.0MiB granted");
  CHECK_FALSE(above_grant(256 * kMiB, 256 * kMiB));
  CHECK_FALSE(above_grant(0, 512 * kMiB));
}
