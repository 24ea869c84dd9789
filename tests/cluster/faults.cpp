#include "tests/cluster/faults.hpp"

#include "tune/internal/journal.hpp"
#include "tune/internal/journal_disk.hpp"
#include "tune/internal/result_files.hpp"
#include "tune/internal/wire.hpp"
#include "tune/schedulers/asha.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <stdexcept>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

namespace troupe::test {

using namespace tune::internal;
namespace fs = std::filesystem;

namespace {

constexpr const char* kMark = "TROUPE_TEST_MARK";

/// The digits before the tag: "Counter_a1b2c_00003_3_rate=…".
std::uint64_t index_of(const std::string& trial_folder) {
  for (std::size_t at = trial_folder.find('_'); at != std::string::npos;
       at = trial_folder.find('_', at + 1)) {
    const auto digits = trial_folder.substr(at + 1, 5);
    if (digits.size() == 5 && digits.find_first_not_of("0123456789") == std::string::npos &&
        trial_folder.substr(at + 6, 1) == "_")
      return std::stoull(digits);
  }
  throw std::runtime_error("no trial folder: " + trial_folder);
}

}  // namespace

bool eventually(std::chrono::milliseconds limit, const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return condition();
    ::poll(nullptr, 0, 2);
  }
  return true;
}

std::string content(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return std::move(text).str();
}

std::size_t file_count(const fs::path& folder) {
  std::error_code gone;
  return static_cast<std::size_t>(
      std::distance(fs::directory_iterator(folder, gone), fs::directory_iterator()));
}

std::int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Seeded::Seeded() {
  const char* given = std::getenv("TROUPE_SEED");
  seed_ = given ? std::strtoull(given, nullptr, 10)
                : static_cast<std::uint64_t>(now_ms()) * 2654435761 % 1'000'000;
  state_ = seed_ * 0x9e3779b97f4a7c15 + 1;
}

std::uint64_t Seeded::below(std::uint64_t end) {
  state_ ^= state_ << 13;
  state_ ^= state_ >> 7;
  state_ ^= state_ << 17;
  return end == 0 ? 0 : (state_ >> 11) % end;
}

// --- Target ---------------------------------------------------------------------------------

Target::Target() : mark_(folder_.path().filename().string()) {
  fs::create_directory(results());
  fs::create_directory(temp());
}

Target::~Target() {
  for (const pid_t pid : processes()) ::kill(pid, SIGKILL);
  if (process_.pid() > 0) static_cast<void>(process_.wait(5s));
}

void Target::start(const Words& words, const std::string& script) {
  const auto open = [&](const char* name) {
    return Fd(::open((path() / name).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  };
  const Fd out = open("stdout"), error = open("stderr");
  internal::SpawnOptions options{
      .environment = {{kMark, mark_}, {"TMPDIR", temp().string()}, {"HOME", path().string()}},
      .descriptors = {{out.value(), STDOUT_FILENO}, {error.value(), STDERR_FILENO}}};
  if (script.empty()) {
    options.executable = FAULTS_TARGET;
  } else {
    options.executable = "/bin/sh";
    options.arguments = {"sh", "-c", script, "sh"};
  }
  options.arguments.push_back(FAULTS_TARGET);
  for (const auto& [name, value] : words) {
    if (name == "cpus") {
      options.arguments.push_back("--troupe-cpus=" + value);
    } else if (name == "strict") {
      options.arguments.push_back("--troupe-strict");
    } else if (name == "early_thread") {
      options.environment["TROUPE_TEST_EARLY_THREAD"] = value;
    } else {
      options.arguments.push_back(name + "=" + value);
    }
  }
  if (!words.contains("folder")) options.arguments.push_back("folder=" + results().string());
  process_ = internal::Process(unwrap(internal::spawn(options)));
}

int Target::wait(std::chrono::milliseconds limit) {
  const auto exit = process_.wait(limit);
  if (!exit) {
    MESSAGE("the target did not end; it said: " << errors());
    return -1000;
  }
  // A zygote that a sanitizer ends is replaced, and the run ends well.
  if (errors().find("Sanitizer") != std::string::npos) FAIL_CHECK(errors());
  return exit->signal != 0 ? -exit->signal : exit->code;
}

std::vector<pid_t> Target::processes() const {
  std::vector<pid_t> pids;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const pid_t pid = std::atoi(entry.path().filename().c_str());
    if (pid > 0 && pid != ::getpid() && internal::environment_of(pid, kMark) == mark_)
      pids.push_back(pid);
  }
  return pids;
}

pid_t Target::driver() const {
  for (const pid_t pid : processes()) {
    if (!internal::environment_of(pid, "TROUPE_LEASE").empty()) continue;
    std::error_code gone;
    const auto program = fs::read_symlink("/proc/" + std::to_string(pid) + "/exe", gone);
    if (program.filename() == fs::path(FAULTS_TARGET).filename()) return pid;
  }
  return 0;
}

pid_t Target::zygote() const {
  for (const pid_t pid : processes())
    if (internal::environment_of(pid, "TROUPE_LEASE").ends_with(".0000000000000000")) return pid;
  return 0;
}

bool Target::nothing_left(std::chrono::milliseconds limit) const {
  const auto began = now_ms();
  const bool none = eventually(limit, [&] { return processes().empty(); });
  const auto took = now_ms() - began;
  if (took > 20) MESSAGE("the last process was gone after " << took << " ms");
  for (const pid_t pid : processes())
    MESSAGE("left: " << pid << " " << content("/proc/" + std::to_string(pid) + "/cmdline"));
  return none;
}

std::map<std::uint64_t, TrialTraces> Target::trials() const {
  std::map<std::uint64_t, TrialTraces> found;
  std::error_code gone;
  for (const auto& entry : fs::directory_iterator(run_folder(), gone)) {
    if (!entry.is_directory()) continue;
    TrialTraces traces{.folder = entry.path(), .error_text = content(entry.path() / "error.txt")};
    std::ifstream starts(entry.path() / "starts");
    pid_t pid = 0;
    std::int64_t when = 0;
    while (starts >> pid >> when) traces.starts.emplace_back(pid, when);
    found[index_of(entry.path().filename().string())] = std::move(traces);
  }
  return found;
}

bool Target::wait_for_file(std::uint64_t trial, const std::string& name,
                           std::chrono::milliseconds limit) const {
  return eventually(limit, [&] {
    const auto all = trials();
    const auto at = all.find(trial);
    return at != all.end() && fs::exists(at->second.folder / name) &&
           content(at->second.folder / name).ends_with('\n');
  });
}

// --- what a run left ------------------------------------------------------------------------

std::vector<Record> journal_of(const fs::path& run_folder) {
  std::vector<Record> records;
  auto disk = unwrap(open_journal_file(run_folder / "journal", JournalAccess::read_only));
  unwrap(read_journal(*disk, [&](const Record& record) {
    records.push_back(record);
    return Result<void>();
  }));
  return records;
}

std::string differences(const fs::path& run_folder) {
  std::string wrong;
  std::map<std::uint64_t, std::string> folders;
  std::map<std::uint64_t, std::vector<tune::TrialResult>> rows;
  for (const auto& record : journal_of(run_folder)) {
    if (const auto* added = std::get_if<TrialAdded>(&record))
      folders[added->trial] = added->directory;
    if (const auto* row = std::get_if<ResultRow>(&record))
      rows[row->trial].push_back(unwrap(decode_metrics(row->row)));
    if (const auto* again = std::get_if<TrialReopened>(&record); again && again->from_beginning)
      rows[again->trial].clear();
  }
  for (const auto& [trial, folder] : folders) {
    const auto tell = [&, trial = trial](const std::string& text) {
      wrong += "trial " + std::to_string(trial) + ": " + text + "\n";
    };
    const auto& journalled = rows[trial];
    const auto written = read_results(run_folder / folder);
    if (!written) {
      tell(text_of(written.error()));
      continue;
    }
    if (written->size() != journalled.size())
      tell("journal " + std::to_string(journalled.size()) + " rows, result.json " +
           std::to_string(written->size()));
    std::int64_t hash = 0;
    for (std::size_t i = 0; i < std::min(written->size(), journalled.size()); ++i) {
      const auto number = static_cast<std::int64_t>(i) + 1;
      hash = (hash * 31 + number) % 1'000'000'007;
      for (const auto* row : {&(*written)[i], &journalled[i]}) {
        if (row->number("training_iteration") != double(number))
          tell("row " + std::to_string(number) + " has another training_iteration");
        if (row->number("count") != double(number) || row->number("hash") != double(hash))
          tell("row " + std::to_string(number) + " was computed from another state");
      }
      if ((*written)[i].number("timestamp") != journalled[i].number("timestamp") ||
          (*written)[i].number("pid") != journalled[i].number("pid"))
        tell("row " + std::to_string(number) + " differs between journal and result.json");
    }
    const auto table = content(run_folder / folder / "progress.csv");
    const auto lines = static_cast<std::size_t>(std::count(table.begin(), table.end(), '\n'));
    if (lines != (written->empty() ? 0 : written->size() + 1))
      tell("progress.csv has " + std::to_string(lines) + " lines for " +
           std::to_string(written->size()) + " rows");
  }
  return wrong;
}

std::map<std::pair<std::uint64_t, std::int64_t>, std::string> decisions(
    const fs::path& run_folder) {
  std::map<std::pair<std::uint64_t, std::int64_t>, std::string> found;
  for (const auto& record : journal_of(run_folder)) {
    if (const auto* added = std::get_if<TrialAdded>(&record))
      found[{added->trial, 0}] = added->id + " " + unwrap(decode_config(added->config)).to_json();
    if (const auto* row = std::get_if<ResultRow>(&record))
      found[{row->trial, row->iteration}] =
          std::to_string(static_cast<int>(row->decision)) + " " +
          std::to_string(*unwrap(decode_metrics(row->row)).number("score"));
  }
  return found;
}

std::string unlike_fresh_asha(const fs::path& run_folder, std::int64_t max_t) {
  std::string wrong;
  tune::ASHAScheduler asha({.max_t = double(max_t), .grace_period = 1, .reduction_factor = 2});
  std::map<std::uint64_t, std::pair<std::string, tune::Config>> known;
  for (const auto& record : journal_of(run_folder)) {
    if (const auto* begun = std::get_if<RunBegun>(&record))
      unwrap(asha.begin(begun->metric, begun->mode, begun->seed));
    if (const auto* added = std::get_if<TrialAdded>(&record)) {
      auto& trial = known[added->trial] = {added->id, unwrap(decode_config(added->config))};
      asha.on_trial_add({.id = trial.first, .config = trial.second});
    }
    if (const auto* row = std::get_if<ResultRow>(&record)) {
      const auto& trial = known.at(row->trial);
      const tune::TrialView view{.id = trial.first, .config = trial.second};
      const auto values = unwrap(decode_metrics(row->row));
      if (row->by_stopper)
        asha.on_trial_complete(view, values);
      else if (asha.on_trial_result(view, values).decision != row->decision)
        wrong += trial.first + " at " + std::to_string(row->iteration) + ": decided otherwise\n";
    }
  }
  return wrong;
}

ExperimentState state_of(const fs::path& run_folder) {
  return unwrap(read_experiment_state(run_folder));
}

std::string states(const fs::path& run_folder) {
  std::string text;
  for (const auto& trial : state_of(run_folder).trials)
    text += (text.empty() ? "" : " ") + std::string(name_of(trial.state));
  return text;
}

}  // namespace troupe::test
