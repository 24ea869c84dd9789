// Replays scheduler cases; `tune_replay --help` tells how.

#include <cstdio>
#include <limits>
#include <string>

#include "examples/command_line.hpp"
#include "libactor/file.hpp"
#include "libactor/output.hpp"
#include "tools/replay.hpp"

namespace {

using namespace troupe;

Result<tools::Replay> replay_file(const std::string& path, bool check) {
  const auto text = read_bounded(path, std::numeric_limits<std::int64_t>::max());
  if (!text) return text.error();
  const auto file = fence(Errc::bad_request, [&] { return nlohmann::json::parse(*text); });
  auto done = file ? tools::replay(*file, check) : Result<tools::Replay>(file.error());
  if (!done) return with_context(done.error(), path);
  return done;
}

}  // namespace

int main(int argc, char** argv) {
  guard_output();
  CLI::App app(
      "Feeds the events of a file of scheduler cases to the schedulers and prints decision and "
      "side "
      "effects of each as JSON. Exit codes: 0 all well, 1 with --check: something differs, 2 a "
      "scheduler or option that does not exist here, 3 the file is bad.");
  std::string path;
  bool check = false;
  app.add_option("CASES", path, "JSON file, see tests/golden/scheduler-cases.json")->required();
  app.add_flag("--check", check, "compare with what the cases expect");
  examples::parse_or_exit(app, argc, argv);

  const auto done = replay_file(path, check);
  if (!done) {
    fail(done.error());
    return 3;
  }
  std::printf("%s\n", nlohmann::json{{"cases", done->cases}, {"summary", done->summary()}}
                          .dump(1, ' ', false, nlohmann::json::error_handler_t::replace)
                          .c_str());
  for (const auto& difference : done->differences) std::fprintf(stderr, "%s\n", difference.c_str());
  std::fprintf(stderr, "%s\n", done->summary().c_str());
  return done->exit_code();
}
