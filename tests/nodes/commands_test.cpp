#include "nodes/commands.hpp"

#include "tests/support/temp_folder.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <sstream>

using namespace troupe;
using troupe::test::TempFolder;

namespace {

const internal::Machine kMachine{.host = "alpha",
                                 .cpus = {1.5, "/sys/fs/cgroup/cpu.max"},
                                 .memory = {std::int64_t{3} << 30, "host"},
                                 .gpus = internal::fake_gpus(2)};

std::string report(bool json) {
  std::ostringstream out;
  const nodes::Surroundings surroundings{.open_files_limit = 256, .user_namespaces = true};
  CHECK(nodes::doctor(kMachine, surroundings, json, out) == nodes::ExitCode::done);
  return out.str();
}

}  // namespace

TEST_CASE("doctor: text says the amount and where its limit comes from") {
  const std::string text = report(false);
  CHECK(text.find("cpus              1.5 (/sys/fs/cgroup/cpu.max)\n") != std::string::npos);
  CHECK(text.find("memory            3.0GiB (host)\n") != std::string::npos);
  CHECK(text.find("gpus              2 0 1\n") != std::string::npos);
  CHECK(text.find("shared memory     none\n") != std::string::npos);
}

TEST_CASE("doctor: --json is one object with numbers") {
  const auto json = nlohmann::json::parse(report(true));
  CHECK(json["cpus"] == 1.5);
  CHECK(json["threads"] == 1);
  CHECK(json["memory_bytes"] == std::int64_t{3} << 30);
  CHECK(json["gpus"].size() == 2);
  CHECK(json["open_files_limit"] == 256);
  CHECK(json["user_namespaces"] == true);
}

TEST_CASE("doctor: user namespaces are off when any of the three switches is") {
  TempFolder root;
  CHECK_FALSE(nodes::detect_surroundings(root.path()).user_namespaces);
  root.write("proc/sys/user/max_user_namespaces", "100\n");
  CHECK(nodes::detect_surroundings(root.path()).user_namespaces);
  root.write("proc/sys/kernel/unprivileged_userns_clone", "0\n");
  CHECK_FALSE(nodes::detect_surroundings(root.path()).user_namespaces);
  root.write("proc/sys/kernel/unprivileged_userns_clone", "1\n");
  root.write("proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1\n");
  CHECK_FALSE(nodes::detect_surroundings(root.path()).user_namespaces);
}
