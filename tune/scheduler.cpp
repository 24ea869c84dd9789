#include "tune/scheduler.hpp"

namespace troupe::tune {

std::string_view name_of(Decision decision) {
  switch (decision) {
    case Decision::proceed: return "CONTINUE";
    case Decision::pause: return "PAUSE";
    case Decision::stop: return "STOP";
  }
  return "?";
}

std::optional<std::string> TrialScheduler::choose_trial_to_run(
    const std::vector<TrialView>& candidates) {
  if (candidates.empty()) return std::nullopt;
  return candidates.front().id;
}

AnyScheduler::AnyScheduler() : AnyScheduler(FIFOScheduler()) {}

Result<void> FIFOScheduler::begin(const std::string&, std::optional<Mode>, std::uint64_t) {
  return {};
}
void FIFOScheduler::on_trial_add(const TrialView&) {}
Verdict FIFOScheduler::on_trial_result(const TrialView&, const TrialResult&) { return {}; }
Verdict FIFOScheduler::on_trial_complete(const TrialView&, const TrialResult&) { return {}; }
Verdict FIFOScheduler::on_trial_remove(const TrialView&) { return {}; }
std::string FIFOScheduler::debug_string() const { return "Using FIFO scheduling algorithm."; }
std::string FIFOScheduler::spec() const { return R"({"class":"FIFOScheduler"})"; }
std::string FIFOScheduler::state() const { return "{}"; }

}  // namespace troupe::tune
