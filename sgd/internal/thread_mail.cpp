#include "sgd/internal/thread_mail.hpp"

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace troupe::sgd::internal {
namespace {

class CommThread {
 public:
  explicit CommThread(Exchange& exchange) : exchange_(exchange), thread_([this] { run(); }) {}
  ~CommThread() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    condition_.notify_one();
    thread_.join();
  }
  CommThread(const CommThread&) = delete;
  CommThread& operator=(const CommThread&) = delete;

  void post(const Note& note) {
    {
      const std::lock_guard lock(mutex_);
      notes_.push_back(note);
    }
    condition_.notify_one();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (!ends_) {
      if (notes_.empty()) {
        condition_.wait(lock);
        continue;
      }
      const Note note = notes_.front();
      notes_.pop_front();
      lock.unlock();
      exchange_.deliver(note);
      lock.lock();
    }
  }

  Exchange& exchange_;
  std::mutex mutex_;
  std::condition_variable condition_;
  std::deque<Note> notes_;
  bool ends_ = false;
  std::thread thread_;  // last: it uses the others
};

class ThreadCarrier final : public Carrier {
 public:
  explicit ThreadCarrier(std::span<Exchange* const> exchanges) {
    for (Exchange* exchange : exchanges)
      threads_.push_back(std::make_unique<CommThread>(*exchange));
  }
  void carry(int to_rank, const Note& note) override {
    threads_[static_cast<std::size_t>(to_rank)]->post(note);
  }

 private:
  std::vector<std::unique_ptr<CommThread>> threads_;
};

}  // namespace

MakeCarrier comm_threads() {
  return [](std::span<Exchange* const> exchanges) {
    return std::make_unique<ThreadCarrier>(exchanges);
  };
}

}  // namespace troupe::sgd::internal
