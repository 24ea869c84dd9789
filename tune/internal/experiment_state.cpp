#include "tune/internal/experiment_state.hpp"

#include "libactor/file.hpp"
#include "tune/internal/format.hpp"
#include "tune/naming.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>

namespace troupe::tune::internal {
namespace {

using namespace std::chrono_literals;

constexpr auto kLeastPause = 10s;
constexpr int kPauseFactor = 19;  // of 20 parts of the time one is spent on saving
constexpr const char* kFileName = "experiment_state.json";

constexpr std::array kStates = {TrialState::pending, TrialState::running, TrialState::paused,
                                TrialState::terminated, TrialState::error};

/// Appends `"name": ` and a value; commas between members.
class ObjectWriter {
 public:
  explicit ObjectWriter(std::string& out) : out_(out) { out_ += '{'; }

  void add(std::string_view name, const Value& value) {
    begin(name);
    append_json(out_, value);
  }
  /// For a value that the caller appends.
  void begin(std::string_view name) {
    if (!first_) out_ += ", ";
    first_ = false;
    append_json_text(out_, name);
    out_ += ": ";
  }
  void end() { out_ += '}'; }

 private:
  std::string& out_;
  bool first_ = true;
};

Value or_null(const std::optional<double>& number) { return number ? Value(*number) : Value(); }

void append_checkpoint(std::string& out, const CheckpointPolicy::Kept& checkpoint) {
  ObjectWriter object(out);
  object.add("iteration", checkpoint.iteration);
  object.add("name", checkpoint.name);
  object.add("score", or_null(checkpoint.score));
  object.end();
}

/// A trial a line, so that people can grep.
void append_trial(std::string& out, const SavedTrial& trial) {
  ObjectWriter object(out);
  object.add("trial_id", trial.id);
  object.add("name", trial.name);
  object.add("experiment_tag", trial.tag);
  object.add("directory", trial.directory);
  object.add("status", name_of(trial.state));
  object.add("training_iteration", trial.iteration);
  object.add("metric", or_null(trial.metric));
  object.add("num_failures", trial.failure_count);
  object.begin("checkpoints");
  out += '[';
  for (const auto& checkpoint : trial.checkpoints) {
    if (&checkpoint != &trial.checkpoints.front()) out += ", ";
    append_checkpoint(out, checkpoint);
  }
  out += ']';
  object.end();
}

std::string_view name_of_mode(Mode mode) { return mode == Mode::min ? "min" : "max"; }

std::optional<double> optional_number(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return {};
  return found->get<double>();
}

/// These throw what the JSON library throws on a wrong type; `read_experiment_state` fences it.
SavedTrial trial_of(const nlohmann::json& json) {
  SavedTrial trial{
      .id = json.at("trial_id").get<std::string>(),
      .name = json.at("name").get<std::string>(),
      .tag = json.at("experiment_tag").get<std::string>(),
      .directory = json.at("directory").get<std::string>(),
      .iteration = json.at("training_iteration").get<std::int64_t>(),
      .metric = optional_number(json, "metric"),
      .failure_count = json.at("num_failures").get<std::int64_t>(),
  };
  for (const TrialState state : kStates)
    if (name_of(state) == json.at("status").get<std::string>()) trial.state = state;
  for (const auto& checkpoint : json.at("checkpoints"))
    trial.checkpoints.push_back({.iteration = checkpoint.at("iteration").get<std::int64_t>(),
                                 .name = checkpoint.at("name").get<std::string>(),
                                 .score = optional_number(checkpoint, "score")});
  return trial;
}

ExperimentState state_of(const nlohmann::json& json) {
  ExperimentState state{
      .name = json.at("name").get<std::string>(),
      .trainable = json.at("trainable").get<std::string>(),
      .metric = json.at("metric").get<std::string>(),
      .seed = json.at("seed").get<std::uint64_t>(),
      .start = Clock::WallTime(std::chrono::seconds(json.at("start_time").get<std::int64_t>())),
      .finished = json.at("finished").get<bool>(),
  };
  if (json.at("mode").is_string())
    state.mode = json.at("mode").get<std::string>() == "min" ? Mode::min : Mode::max;
  for (const auto& trial : json.at("trials")) state.trials.push_back(trial_of(trial));
  return state;
}

}  // namespace

Result<void> write_experiment_state(const std::filesystem::path& folder,
                                    const ExperimentState& state, bool durable) {
  std::string out;
  out.reserve(256 + state.trials.size() * 384);
  ObjectWriter object(out);
  object.add("name", state.name);
  object.add("trainable", state.trainable);
  object.add("metric", state.metric);
  object.add("mode", state.mode ? Value(name_of_mode(*state.mode)) : Value());
  object.begin("seed");  // above what an int64 holds, half of the time
  out += fmt::format("{}", state.seed);
  object.add("start_time",
             static_cast<std::int64_t>(std::chrono::system_clock::to_time_t(state.start)));
  object.add("start_date", date_for_name(state.start));
  object.add("finished", state.finished);
  object.begin("trials");
  out += '[';
  for (const auto& trial : state.trials) {
    out += &trial == &state.trials.front() ? "\n" : ",\n";
    append_trial(out, trial);
  }
  out += "\n]";
  object.end();
  out += '\n';
  return write_atomically(folder / kFileName, out, {.durable = durable});
}

Result<ExperimentState> read_experiment_state(const std::filesystem::path& folder) {
  const auto path = folder / kFileName;
  const auto text = read_bounded(path, std::numeric_limits<std::int64_t>::max());
  if (!text) return text.error();
  auto state = fence(Errc::corrupt, [&] { return state_of(nlohmann::json::parse(*text)); });
  if (!state) return with_context(state.error(), path.string());
  return state;
}

void SavePace::saved(Clock::Time begin, Clock::Time end) {
  next_ = end + std::max<Clock::Time::duration>(kLeastPause, kPauseFactor * (end - begin));
}

}  // namespace troupe::tune::internal
