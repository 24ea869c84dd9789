#pragma once

// The options that the Tune examples share.

#include "examples/command_line.hpp"

#include <libactor/cluster.hpp>
#include <tune/run.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <string>

namespace examples {

struct Options {
  std::int64_t num_samples = 16;
  std::int64_t max_iterations = 100;
  std::uint64_t seed = 0;
  double cpus_per_trial = 1;
  std::int64_t max_concurrent = 0;
  std::int64_t max_failures = 0;
  std::int64_t checkpoint_freq = -1;
  std::string data_dir = {};
  std::string local_dir = {};
  std::string name = {};
  troupe::tune::Resume resume = troupe::tune::Resume::no;
  int verbose = 2;
};

/// Reads argv after `init` has taken its own options out of it. Ends the process as `parse_or_exit`
/// does. `defaults` are those of the example, and `more` adds options of its own.
inline Options parse(int argc, char** argv, const std::string& description, Options defaults = {},
                     const std::function<void(CLI::App&)>& more = {}) {
  using troupe::tune::Resume;
  const std::map<std::string, Resume> resumes{{"yes", Resume::yes},
                                              {"automatic", Resume::automatic},
                                              {"errored_only", Resume::errored_only},
                                              {"restart_errored", Resume::restart_errored}};
  Options o = std::move(defaults);
  CLI::App app(description);
  app.option_defaults()->always_capture_default();
  app.add_option("--num-samples", o.num_samples, "Configs to try; -1: without end")
      ->check(number_in<std::int64_t>(-1));
  app.add_option("--max-iterations", o.max_iterations, "Steps of a trial, at most")
      ->check(number_in<std::int64_t>(1));
  app.add_option("--seed", o.seed, "The same seed gives the same configs; 0: drawn")
      ->check(number_in<std::uint64_t>(0));
  app.add_option("--cpus-per-trial", o.cpus_per_trial, "May be a fraction")
      ->check(number_in<double>(0, 1e6));
  app.add_option("--max-concurrent", o.max_concurrent, "Trials at once; 0: as CPUs allow")
      ->check(number_in<std::int64_t>(0));
  app.add_option("--max-failures", o.max_failures,
                 "A trial's own failures that are retried; -1: all")
      ->check(number_in<std::int64_t>(-1));
  app.add_option("--checkpoint-freq", o.checkpoint_freq,
                 "Steps between two; 0: never, -1: automatic")
      ->check(number_in<std::int64_t>(-1));
  app.add_option("--data-dir", o.data_dir, "Where the data set lies")->check(not_empty());
  app.add_option("--local-dir", o.local_dir, "Default: TROUPE_RESULT_DIR, else ~/troupe_results")
      ->check(not_empty());
  app.add_option("--name", o.name, "Of the folder for results")->check(not_empty());
  std::string resume;
  app.add_option("--resume", resume, "Go on with the run in that folder; alone: yes")
      ->option_text("[yes|automatic|errored_only|restart_errored]")
      ->expected(0, 1)
      ->check(CLI::IsMember(resumes));
  app.add_option("--verbose", o.verbose, "How much is told, 0 to 3")->check(number_in<int>(0, 3));
  if (more) more(app);
  app.footer(
      "Taken by init() before these: --address, --token-file. The address may stand in "
      "TROUPE_ADDRESS too.");
  parse_or_exit(app, argc, argv);
  if (app.count("--resume") > 0) o.resume = resumes.at(resume.empty() ? "yes" : resume);
  return o;
}

/// What of a run follows from the options.
inline troupe::tune::RunOptions run_options(const Options& o) {
  return {
      .name = o.name,
      .num_samples = o.num_samples,
      .max_concurrent_trials = o.max_concurrent,
      .seed = o.seed,
      .resources_per_trial = troupe::Resources{.cpus = o.cpus_per_trial},
      .checkpoint_freq = {o.checkpoint_freq},
      .max_failures = o.max_failures,
      .resume = o.resume,
      .local_dir = o.local_dir,
      .verbose = o.verbose,
  };
}

}  // namespace examples
