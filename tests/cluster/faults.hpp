#pragma once

#include "libactor/internal/process.hpp"
#include "tests/support/temp_folder.hpp"
#include "tune/internal/experiment_state.hpp"
#include "tune/internal/journal_record.hpp"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>

/// Runs of `faults_target`, and what must hold of what they leave behind.
namespace troupe::test {

using namespace std::chrono_literals;

/// True as soon as the condition is; it is looked at every 2 ms.
bool eventually(std::chrono::milliseconds limit, const std::function<bool()>& condition);

std::string content(const std::filesystem::path& path);
std::size_t file_count(const std::filesystem::path& folder);
std::int64_t now_ms();  ///< as in the target's `starts`

/// Instants and the like: from TROUPE_SEED, else from the time; a failure prints it.
class Seeded {
 public:
  Seeded();
  std::uint64_t seed() const { return seed_; }
  std::uint64_t below(std::uint64_t end);

 private:
  std::uint64_t seed_, state_;
};

using Words = std::map<std::string, std::string>;

/// One trial's traces.
struct TrialTraces {
  std::filesystem::path folder = {};
  std::vector<std::pair<pid_t, std::int64_t>> starts = {};  ///< pid, now_ms() of each setup
  std::string error_text = {};
};

/// A folder, and the driver processes that run in it, one after the other. Everything that they
/// start carries a mark in its environment; what is left of it is killed with the object.
class Target {
 public:
  Target();
  ~Target();
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;

  /// script: a shell's, in which "$@" is the target and its words; empty: the target itself.
  void start(const Words& words, const std::string& script = {});
  /// Its exit code, or minus the signal that ended it; -1000: it did not end in time.
  int wait(std::chrono::milliseconds limit = 60s);
  int run(const Words& words, const std::string& script = {}) {
    start(words, script);
    return wait();
  }
  void signal(int number) const { process_.signal(number); }

  pid_t pid() const { return process_.pid(); }  ///< of the target, or of the shell
  pid_t driver() const;                         ///< of the target; 0: none
  pid_t zygote() const;                         ///< 0: none
  std::vector<pid_t> processes() const;         ///< all that carry the mark
  /// Nothing that carries the mark is left; tells what was, and when the last went.
  bool nothing_left(std::chrono::milliseconds limit = 10s) const;

  const std::filesystem::path& path() const { return folder_.path(); }
  std::filesystem::path run_folder() const { return path() / "results" / "run"; }
  std::filesystem::path results() const { return path() / "results"; }
  std::filesystem::path temp() const { return path() / "temp"; }
  std::string errors() const { return content(path() / "stderr"); }
  std::string output() const { return content(path() / "stdout"); }

  /// By index, those that have begun.
  std::map<std::uint64_t, TrialTraces> trials() const;
  bool wait_for_file(std::uint64_t trial, const std::string& name,
                     std::chrono::milliseconds limit = 30s) const;

 private:
  TempFolder folder_;
  std::string mark_;
  internal::Process process_;
};

// --- what a run left ------------------------------------------------------------------------

std::vector<tune::internal::Record> journal_of(const std::filesystem::path& run_folder);

/// Rows in the journal, result.json and progress.csv are the same; their iterations are 1..n
/// without gap or double, and `hash` shows that the trial has done each once. Empty, or what
/// differs.
std::string differences(const std::filesystem::path& run_folder);

/// By trial and iteration: decision and score, with the config. What two runs with one slot agree
/// in.
std::map<std::pair<std::uint64_t, std::int64_t>, std::string> decisions(
    const std::filesystem::path& run_folder);

/// What the rows that the scheduler was asked about come to, in a new one that is fed the journal:
/// where it decides otherwise, a sentence.
std::string unlike_fresh_asha(const std::filesystem::path& run_folder, std::int64_t max_t);

tune::internal::ExperimentState state_of(const std::filesystem::path& run_folder);
/// "TERMINATED TERMINATED ERROR", in order of creation.
std::string states(const std::filesystem::path& run_folder);

}  // namespace troupe::test
