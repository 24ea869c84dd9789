#include "libactor/context.hpp"

#include "libactor/internal/context_state.hpp"
#include "libactor/log.hpp"
#include "libactor/preload.hpp"

namespace troupe {

void Context::State::set_progress(std::int64_t done, std::int64_t total, std::string_view unit) {
  std::lock_guard lock(mutex_);
  done_ = done;
  total_ = total;
  unit_ = unit;
  has_progress_ = true;
}

std::string Context::State::progress_text() const {
  std::lock_guard lock(mutex_);
  if (!has_progress_) return {};
  std::string text = std::to_string(done_);
  if (total_ > 0) text += "/" + std::to_string(total_);
  if (!unit_.empty()) text += " " + unit_;
  return text;
}

const std::string& Context::id() const { return state_->id; }
const std::string& Context::name() const { return state_->name; }
const std::filesystem::path& Context::directory() const { return state_->directory; }
const Resources& Context::resources() const { return state_->resources; }
int Context::threads() const { return state_->threads; }
int Context::device_index() const { return state_->device_index; }
std::int64_t Context::iteration() const { return state_->iteration; }
std::uint64_t Context::seed() const { return state_->seed; }
bool Context::cancelled() const { return state_->cancelled; }

void Context::log(std::string_view sentence) const {
  if (state_->log_sink)
    state_->log_sink(sentence);
  else
    log_info(sentence);
}

void Context::progress(std::int64_t done, std::int64_t total, std::string_view unit) const {
  state_->set_progress(done, total, unit);
}

std::string Context::parameter(std::string_view name) const { return troupe::parameter(name); }

}  // namespace troupe
