#include "tune/internal/syncer.hpp"

#include "libactor/limits.hpp"

namespace troupe::tune::internal {

Syncer::Syncer(std::function<Result<void>()> sync)
    : sync_(std::move(sync)), thread_([this] { loop(); }) {}

Syncer::~Syncer() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void Syncer::written() {
  const std::lock_guard lock(mutex_);
  dirty_ = true;
}

void Syncer::hurry() {
  {
    const std::lock_guard lock(mutex_);
    dirty_ = hurry_ = true;
  }
  wake_.notify_one();
}

Result<void> Syncer::finish() {
  hurry();
  std::unique_lock lock(mutex_);
  idle_.wait_for(lock, limits::kRequest, [this] { return !dirty_ && !busy_; });
  if (dirty_ || busy_) return make_error(Errc::timed_out, "the disk took longer than 30 s to sync");
  return last_;
}

void Syncer::loop() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    wake_.wait_for(lock, limits::kSync, [this] { return stop_ || hurry_; });
    hurry_ = false;
    if (!dirty_) continue;
    dirty_ = false;
    busy_ = true;
    lock.unlock();
    auto synced = sync_();
    lock.lock();
    busy_ = false;
    last_ = std::move(synced);
    idle_.notify_all();
  }
}

}  // namespace troupe::tune::internal
