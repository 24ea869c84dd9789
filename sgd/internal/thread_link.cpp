#include "sgd/internal/thread_link.hpp"

#include "sgd/internal/link_core.hpp"

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <thread>
#include <utility>

namespace troupe::sgd::internal {

class ThreadLinks::One final : public Link, private LinkCore::Post {
 public:
  One(ThreadLinks& all, const Groups& groups, std::uint64_t epoch)
      : all_(all),
        group_(groups.group),
        epoch_(epoch),
        core_(groups, epoch, *this),
        thread_([this] { run(); }) {}
  ~One() override { stop(); }

  /// Nothing is carried out any more, and nothing sent.
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    condition_.notify_one();
    if (thread_.joinable()) thread_.join();
  }

  void open(Exchange& leader, std::function<void(const Error&)> fail) override {
    do_and_wait([this, &leader, fail] { core_.open(leader, fail); });
  }
  void close() override {
    do_and_wait([this] { core_.close(); });
  }
  void publish(const Note& piece) override {
    for (const auto& other : all_.links_)
      if (other.get() != this)
        other->post([&core = other->core_, from = group_, piece] { core.on_note(from, piece); });
  }
  void begin(const Job& job) override {
    post([this, job] { core_.on_begin(job); });
  }
  void fail(const Error& error) override {
    post([this, error] { core_.on_failure(error); });
  }

 private:
  void post(std::function<void()> what) {
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(std::move(what));
    }
    condition_.notify_one();
  }
  void do_and_wait(const std::function<void()>& what) {
    std::promise<void> done;
    post([&] {
      what();
      done.set_value();
    });
    done.get_future().wait();
  }
  void run() {
    std::unique_lock lock(mutex_);
    while (!ends_) {
      if (queue_.empty()) {
        condition_.wait(lock);
        continue;
      }
      const auto what = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      what();
      lock.lock();
    }
  }

  One& to(int group) { return *all_.links_[static_cast<std::size_t>(group)]; }
  void chunk(int to_group, const Chunk& chunk) override {
    to(to_group).post([&core = to(to_group).core_, from = group_, epoch = epoch_, chunk] {
      core.on_chunk(from, epoch, chunk);
    });
  }
  void acknowledge(int to_group) override {
    to(to_group).post([&core = to(to_group).core_, from = group_, epoch = epoch_] {
      core.on_acknowledged(from, epoch);
    });
  }
  void error(int to_group, const Error& error) override {
    to(to_group).post([&core = to(to_group).core_, from = group_, epoch = epoch_, error] {
      core.on_error(from, epoch, error);
    });
  }

  ThreadLinks& all_;
  const int group_;
  const std::uint64_t epoch_;
  LinkCore core_;
  std::mutex mutex_;
  std::condition_variable condition_;
  std::deque<std::function<void()>> queue_;
  bool ends_ = false;
  std::thread thread_;  // last: it uses the others
};

ThreadLinks::ThreadLinks(const std::vector<int>& rank_counts, std::uint64_t epoch) {
  for (int group = 0; group < static_cast<int>(rank_counts.size()); ++group)
    links_.push_back(
        std::make_unique<One>(*this, Groups{.group = group, .rank_counts = rank_counts}, epoch));
}

/// They send to each other to the end.
ThreadLinks::~ThreadLinks() {
  for (auto& link : links_) link->stop();
}

Link& ThreadLinks::operator[](int group) { return *links_[static_cast<std::size_t>(group)]; }

}  // namespace troupe::sgd::internal
