#include "tune/internal/trial_actor.hpp"

#include "libactor/limits.hpp"

#include <caf/all.hpp>

#include <optional>

namespace troupe::tune::internal {

TrialActor::TrialActor(Worker& worker)
    : worker_(worker), experiment_(owner_of(worker)), self_(actor_system(worker)) {}

template <class Answer, class Message>
Result<Answer> TrialActor::ask(const Message& message) {
  for (;;) {
    std::optional<Answer> answer;
    Error error;
    self_->request(experiment_, limits::kRequest, message)
        .receive([&](Answer& value) { answer = std::move(value); },
                 [&](caf::error& e) { error = std::move(e); });
    if (answer) return std::move(*answer);
    if (code_of(error) != Errc::timed_out)
      return with_context(error, "the experiment did not answer");
  }
}

void TrialActor::ready(TrialReady ready) {
  ready.trial = trial();
  ready.incarnation = worker_.incarnation();
  self_->send(experiment_, std::move(ready));
}

Result<TrialOrder> TrialActor::report(std::int64_t iteration, std::string row) {
  return ask<TrialOrder>(TrialReport{.trial = trial(),
                                     .incarnation = worker_.incarnation(),
                                     .iteration = iteration,
                                     .row = std::move(row)});
}

Result<void> TrialActor::saved(std::int64_t iteration, std::string name, std::string uuid) {
  auto answer = ask<std::int64_t>(TrialSaved{.trial = trial(),
                                             .incarnation = worker_.incarnation(),
                                             .iteration = iteration,
                                             .name = std::move(name),
                                             .uuid = std::move(uuid)});
  if (!answer) return answer.error();
  return {};
}

void TrialActor::config_error(const std::string& text) {
  self_->send(experiment_, config_error_atom_v, trial(), text);
}

void TrialActor::note(const std::string& sentence) {
  self_->send(experiment_, note_atom_v, trial(), sentence);
}

}  // namespace troupe::tune::internal
