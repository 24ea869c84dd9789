// tidy: test-mirror: the program `node` itself.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace {

struct Ended {
  int exit_code = -1;
  std::string output = {};  ///< standard output and error
};

Ended run(std::vector<std::string> arguments) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    std::vector<char*> argv;
    for (auto& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    execvp(argv[0], argv.data());
    _exit(127);
  }
  close(ends[1]);
  Ended ended;
  char buffer[4096];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;) ended.output.append(buffer, n);
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status)) ended.exit_code = WEXITSTATUS(status);
  return ended;
}

}  // namespace

TEST_CASE("node: under taskset to one CPU it reports 1 and says that the affinity limits it") {
  cpu_set_t set;
  REQUIRE(sched_getaffinity(0, sizeof set, &set) == 0);
  int first = 0;
  while (!CPU_ISSET(first, &set)) ++first;
  const Ended ended =
      run({"taskset", "-c", std::to_string(first), NODE_PROGRAM, "doctor", "--json"});
  REQUIRE(ended.exit_code == 0);
  const auto json = nlohmann::json::parse(ended.output);
  CHECK(json["cpus"] <= 1);  // less where a quota is smaller
  CHECK(json["threads"] == 1);
  if (CPU_COUNT(&set) > 1 && json["cpus"] == 1) CHECK(json["cpus_source"] == "affinity");
}

TEST_CASE("node: wrong usage ends with 2, help and version with 0") {
  CHECK(run({NODE_PROGRAM}).exit_code == 2);
  const Ended unknown = run({NODE_PROGRAM, "dance"});
  CHECK(unknown.exit_code == 2);
  CHECK(unknown.output.find("dance") != std::string::npos);
  CHECK(run({NODE_PROGRAM, "doctor", "--jsn"}).exit_code == 2);
  CHECK(run({NODE_PROGRAM, "--help"}).exit_code == 0);
  const Ended version = run({NODE_PROGRAM, "--version"});
  CHECK(version.exit_code == 0);
  CHECK(version.output.find('.') != std::string::npos);
}

TEST_CASE("node: a command of the cluster says in one sentence that it comes with it") {
  const Ended ended = run({NODE_PROGRAM, "start", "--head"});
  CHECK(ended.exit_code == 2);
  CHECK(ended.output.starts_with("node start: comes with the cluster"));
}
