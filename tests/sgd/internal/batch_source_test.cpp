#include "sgd/internal/batch_source.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <thread>

#include <torch/torch.h>

using namespace troupe;
using namespace troupe::sgd;
using troupe::sgd::internal::BatchSource;
using troupe::sgd::internal::EpochPlan;
using troupe::sgd::internal::Share;
using namespace std::chrono_literals;

namespace {

/// Gives the indices back, throws at one of them, counts its calls, and can be told to wait.
class Probe final : public Dataset {
 public:
  std::int64_t size() const override { return 20; }

  Batch batch(const torch::Tensor& indices) override {
    std::unique_lock lock(mutex_);
    ++calls_;
    moved_.notify_all();
    moved_.wait_for(lock, 60s, [&] { return !held_; });
    if ((indices == bad_).any().item<bool>()) throw std::out_of_range("sample 9 can't be read");
    return {{indices.to(torch::kFloat32)}, indices};
  }

  void throw_at(std::int64_t index) { bad_ = index; }
  void hold(bool held) {
    const std::lock_guard lock(mutex_);
    held_ = held;
    moved_.notify_all();
  }
  bool wait_for_calls(int count) {
    std::unique_lock lock(mutex_);
    return moved_.wait_for(lock, 60s, [&] { return calls_ >= count; });
  }
  int calls() {
    const std::lock_guard lock(mutex_);
    return calls_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable moved_;
  int calls_ = 0;
  bool held_ = false;
  std::int64_t bad_ = -1;
};

constexpr LoaderOptions kInOrder{.batch_size = 2, .shuffle = false};

BatchSource source(const std::shared_ptr<Dataset>& data, std::int64_t prefetch,
                   std::int64_t first_step = 0, Share share = {}) {
  const EpochPlan plan(data->size(), kInOrder, share, 0);
  return BatchSource(data, plan, share, {.first_step = first_step, .end_step = plan.steps()},
                     prefetch, torch::kCPU);
}

}  // namespace

TEST_CASE("batch_source: batches come in the order of the plan, made ahead or not") {
  for (const std::int64_t prefetch : {0, 1, 2, 100}) {
    auto batches = source(std::make_shared<Probe>(), prefetch);
    for (std::int64_t step = 0; step < 10; ++step)
      CHECK(batches.next().target.equal(torch::tensor({2 * step, 2 * step + 1})));
  }
}

TEST_CASE("batch_source: it begins at the step that it is told") {
  auto batches = source(std::make_shared<Probe>(), 2, 7);
  CHECK(batches.next().target.equal(torch::tensor({14, 15})));
}

TEST_CASE("batch_source: as many batches are made ahead as asked for, and no more") {
  const auto data = std::make_shared<Probe>();
  auto batches = source(data, 3);
  for (int taken = 0; taken < 7; ++taken) {
    CHECK(data->wait_for_calls(taken + 3));
    CHECK(data->calls() == taken + 3);
    batches.next();
  }
}

TEST_CASE("batch_source: what the data set throws comes out after the batches before it") {
  for (const std::int64_t prefetch : {0, 4}) {
    const auto data = std::make_shared<Probe>();
    data->throw_at(9);
    auto batches = source(data, prefetch);
    for (int step = 0; step < 4; ++step) batches.next();
    CHECK_THROWS_WITH_AS(batches.next(), "sample 9 can't be read", std::out_of_range);
    CHECK_THROWS_AS(batches.next(), std::out_of_range);
  }
}

TEST_CASE("batch_source: given up in the middle it ends without making the rest") {
  const auto data = std::make_shared<Probe>();
  {
    auto batches = source(data, 2);
    batches.next();
  }
  CHECK(data->calls() <= 4);
}

TEST_CASE("batch_source: given up while the data set works it ends when that call does") {
  const auto data = std::make_shared<Probe>();
  data->hold(true);
  std::thread release;
  {
    auto batches = source(data, 2);
    CHECK(data->wait_for_calls(1));
    release = std::thread([&] { data->hold(false); });
  }
  release.join();
  CHECK(data->calls() <= 2);
}

TEST_CASE("batch_source: a rank without a sample in a step gets a batch without features") {
  const auto data = std::make_shared<Probe>();
  const Share share{.rank = 0, .world_size = 21};
  auto batches = source(data, 2, 0, share);
  const Batch batch = batches.next();
  CHECK(batch.features.empty());
  CHECK_FALSE(batch.target.defined());
  CHECK(data->calls() == 0);
}

TEST_CASE("batch_source: what a data set draws follows from seed, rank, epoch and step alone") {
  class Noise final : public Dataset {
   public:
    std::int64_t size() const override { return 20; }
    Batch batch(const torch::Tensor& indices) override {
      return {{torch::rand({4}, torch::kFloat64)}, indices};
    }
  };
  const auto draw = [](std::int64_t step, std::int64_t prefetch, Share share, std::int64_t epoch) {
    const EpochPlan plan(20, {.batch_size = 2}, share, epoch);
    BatchSource batches(std::make_shared<Noise>(), plan, share,
                        {.epoch = epoch, .first_step = step, .end_step = 5}, prefetch, torch::kCPU);
    return batches.next().features[0];
  };
  const Share share{.rank = 0, .world_size = 2, .seed = 1};
  const auto drawn = draw(3, 2, share, 0);
  torch::rand({9});
  CHECK(draw(3, 2, share, 0).equal(drawn));
  CHECK(draw(3, 0, share, 0).equal(drawn));
  CHECK_FALSE(draw(2, 2, share, 0).equal(drawn));
  CHECK_FALSE(draw(3, 2, share, 1).equal(drawn));
  CHECK_FALSE(draw(3, 2, {.rank = 1, .world_size = 2, .seed = 1}, 0).equal(drawn));
  CHECK_FALSE(draw(3, 2, {.rank = 0, .world_size = 2, .seed = 2}, 0).equal(drawn));
}

TEST_CASE("batch_source: the thread leaves the cores to the compute threads") {
  class Threads final : public Dataset {
   public:
    std::int64_t size() const override { return 20; }
    Batch batch(const torch::Tensor& indices) override {
      return {{torch::full(indices.sizes(), at::get_num_threads())}, indices};
    }
  };
  at::set_num_threads(2);
  auto batches = source(std::make_shared<Threads>(), 2);
  CHECK(batches.next().features[0][0].item<int>() == 1);
  CHECK(at::get_num_threads() == 2);
}
