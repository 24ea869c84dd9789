#include "libactor/internal/cgroup.hpp"

#include "tests/support/temp_folder.hpp"

#include <doctest/doctest.h>

using namespace troupe::internal;
using troupe::test::TempFolder;

namespace {

std::vector<std::string> folders(const TempFolder& root, std::string_view controller) {
  std::vector<std::string> result;
  for (const auto& folder : cgroup_folders(root.path(), controller))
    result.push_back("/" + folder.lexically_relative(root.path()).string());
  return result;
}

using Folders = std::vector<std::string>;

}  // namespace

TEST_CASE("cgroup: version 2: own group first, then all above it") {
  TempFolder root;
  root.write("proc/self/cgroup", "0::/user.slice/job.scope\n");
  root.write("proc/self/mountinfo",
             "22 1 0:20 / /proc rw - proc proc rw\n"
             "30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n");
  CHECK(folders(root, "cpu") == Folders{"/sys/fs/cgroup/user.slice/job.scope",
                                        "/sys/fs/cgroup/user.slice", "/sys/fs/cgroup"});
}

TEST_CASE("cgroup: version 1: a controller has its own mount, and shares it under both names") {
  TempFolder root;
  root.write("proc/self/cgroup", "5:memory:/m\n4:cpu,cpuacct:/a/b\n3:cpuset:/\n");
  root.write("proc/self/mountinfo",
             "31 1 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
             "32 1 0:28 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n");
  CHECK(folders(root, "cpu") == Folders{"/sys/fs/cgroup/cpu,cpuacct/a/b",
                                        "/sys/fs/cgroup/cpu,cpuacct/a",
                                        "/sys/fs/cgroup/cpu,cpuacct"});
  CHECK(folders(root, "cpuset") == Folders{"/sys/fs/cgroup/cpuset"});
  CHECK(folders(root, "memory").empty());  // no mount of it
}

TEST_CASE("cgroup: hybrid: both versions' folders, version 1 first") {
  TempFolder root;
  root.write("proc/self/cgroup", "4:cpu:/a\n0::/b\n");
  root.write("proc/self/mountinfo",
             "31 1 0:27 / /cg/cpu rw - cgroup cgroup rw,cpu\n"
             "32 1 0:28 / /cg/unified rw - cgroup2 cgroup2 rw\n");
  CHECK(folders(root, "cpu") == Folders{"/cg/cpu/a", "/cg/cpu", "/cg/unified/b", "/cg/unified"});
}

TEST_CASE(
    "cgroup: a container that sees a part of the tree, or none of it, takes what is mounted") {
  TempFolder root;
  root.write("proc/self/mountinfo",
             "31 1 0:27 /docker/c1 /sys/fs/cgroup/my\\040cpu rw - cgroup cgroup rw,cpu\n");
  root.write("proc/self/cgroup", "4:cpu:/docker/c1/inner\n");
  CHECK(folders(root, "cpu") == Folders{"/sys/fs/cgroup/my cpu/inner", "/sys/fs/cgroup/my cpu"});
  root.write("proc/self/cgroup", "4:cpu:/docker/c1\n");
  CHECK(folders(root, "cpu") == Folders{"/sys/fs/cgroup/my cpu"});
  root.write("proc/self/cgroup", "4:cpu:/elsewhere\n");
  CHECK(folders(root, "cpu") == Folders{"/sys/fs/cgroup/my cpu"});
  root.write("proc/self/cgroup", "4:cpu:/../outside\n");
  CHECK(folders(root, "cpu") == Folders{"/sys/fs/cgroup/my cpu"});
}

TEST_CASE("cgroup: broken or missing files give no folders") {
  TempFolder root;
  CHECK(folders(root, "cpu").empty());
  root.write("proc/self/cgroup", "nonsense\n:\n\n");
  root.write("proc/self/mountinfo", "1 2 3\n - \n31 1 0:27 / /x rw - \n");
  CHECK(folders(root, "cpu").empty());
}
