// Replays scheduler cases; `tune_replay --help` tells how.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <string>

#include "tools/replay.hpp"

namespace {

using namespace troupe;

Result<nlohmann::json> read(const std::string& path) {
  std::ifstream file(path);
  if (!file) return make_error(Errc::not_found, "no such file, or it can't be read");
  return fence(Errc::bad_request, [&] { return nlohmann::json::parse(file); });
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Feeds the events of a file of scheduler cases to the schedulers and prints decision and "
      "side "
      "effects of each as JSON. Exit codes: 0 all well, 1 with --check: something differs, 2 a "
      "scheduler or option that does not exist here, 3 the file is bad.");
  std::string path;
  bool check = false;
  app.add_option("CASES", path, "JSON file, see tests/golden/scheduler-cases.json")->required();
  app.add_flag("--check", check, "compare with what the cases expect");
  CLI11_PARSE(app, argc, argv);

  auto file = read(path);
  auto done = file ? tools::replay(*file, check) : Result<tools::Replay>(file.error());
  if (!done) {
    fail(with_context(done.error(), path));
    return 3;
  }
  std::printf("%s\n", nlohmann::json{{"cases", done->cases}, {"summary", done->summary()}}
                          .dump(1, ' ', false, nlohmann::json::error_handler_t::replace)
                          .c_str());
  for (const auto& difference : done->differences) std::fprintf(stderr, "%s\n", difference.c_str());
  std::fprintf(stderr, "%s\n", done->summary().c_str());
  return done->exit_code();
}
