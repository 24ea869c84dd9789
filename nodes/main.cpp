#include "libactor/output.hpp"
#include "nodes/commands.hpp"

#include <CLI/CLI.hpp>

#include <cstdio>
#include <iostream>

using namespace troupe;
using nodes::ExitCode;

namespace {

ExitCode comes_with_the_cluster(const char* command) {
  std::fprintf(
      stderr,
      "node %s: comes with the cluster of several machines; this version runs on one, where "
      "your program starts all it needs\n",
      command);
  return ExitCode::usage;
}

ExitCode run(int argc, char** argv) {
  CLI::App app("The daemon of one machine of a Troupe cluster.", "node");
  app.set_version_flag("--version", nodes::version());
  app.require_subcommand(0, 1);  // CLI11's own message would not name a word that is no command
  bool json = false;
  auto* doctor = app.add_subcommand("doctor", "what this machine offers, and what limits it");
  doctor->add_flag("--json", json, "for programs; the text is for people and may change");
  for (const char* later : {"start", "stop", "status", "logs", "token", "run"})
    app.add_subcommand(later, "comes with the cluster")->allow_extras();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? ExitCode::done : ExitCode::usage;  // prints help, version or error
  }
  if (app.get_subcommands().empty()) {
    std::cerr << app.help();
    return ExitCode::usage;
  }
  if (!doctor->parsed())
    return comes_with_the_cluster(app.get_subcommands()[0]->get_name().c_str());
  return nodes::doctor(internal::detect_machine(), nodes::detect_surroundings(), json, std::cout);
}

}  // namespace

int main(int argc, char** argv) {
  guard_output();
  return static_cast<int>(run(argc, argv));
}
