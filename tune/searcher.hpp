#pragma once

#include "libactor/result.hpp"
#include "tune/config.hpp"
#include "tune/metrics.hpp"
#include "tune/search_space.hpp"

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::tune {

/// What a run asks of its searcher.
struct SearchOptions {
  std::int64_t num_samples = 1;  ///< -1: endless
  std::vector<Config> points_to_evaluate = {};
  std::string metric = {};  ///< empty when the run has none
  std::optional<Mode> mode = {};
  std::uint64_t seed = 0;
};

struct Suggestion {
  Config config = {};
  std::string tag = {};  ///< `experiment_tag`: "3_lr=0.001,momentum=0.5"
};

/// Decides which config comes next. A plain object: no clock, no I/O, no threads.
///
/// It runs beside the scheduler. After a crash or a resume a new one is made and fed the same
/// events in the same order, so it must give the same suggestions: randomness comes from the seed
/// and the trial's index. Trials are named by their index, 0 for the first.
class Searcher {
 public:
  virtual ~Searcher() = default;

  /// Called once before everything else. bad_request when the searcher can't serve this space.
  virtual Result<void> begin(const SearchSpace& space, const SearchOptions& options) = 0;
  /// The config of trial `index`; nothing when there are no more trials. Called with 0, 1, 2, …
  /// Errors: bad_request, user_code (a `sample_from` that fails).
  virtual Result<std::optional<Suggestion>> suggest(std::int64_t index) = 0;
  /// How many trials there will be; -1: endless; nothing: not known.
  virtual std::optional<std::int64_t> total() const = 0;

  virtual void on_trial_result(std::int64_t index, const TrialResult& result) {
    (void)index, (void)result;
  }
  /// The trial is over; `last` is its last result, empty when it had none; `failed`: it is in
  /// ERROR.
  virtual void on_trial_complete(std::int64_t index, const TrialResult& last, bool failed) {
    (void)index, (void)last, (void)failed;
  }

  /// Class and parameters, JSON: what the journal keeps.
  virtual std::string spec() const = 0;
  /// Everything that it has learnt, JSON: for tests, the status page and comparison after a resume.
  virtual std::string state() const = 0;
};

/// The default: the whole grid, `num_samples` times, everything else drawn anew for each trial.
///
/// Ray's order: the first `grid_search` by path varies fastest. Each of `points_to_evaluate` comes
/// first and uses up one sample; a `grid_search` key that the point fixes does not multiply.
/// `suggest` costs the same for every index and keeps nothing: a grid of 10^12 is fine, and any
/// index may be asked at any time. Values that a point fixes are not in the tag, as in Ray.
class BasicVariantGenerator final : public Searcher {
 public:
  Result<void> begin(const SearchSpace& space, const SearchOptions& options) override;
  Result<std::optional<Suggestion>> suggest(std::int64_t index) override;
  std::optional<std::int64_t> total() const override { return total_; }
  std::string spec() const override;
  std::string state() const override;

 private:
  struct Variant {
    const Config* point = nullptr;  // what is fixed; nullptr: nothing
    std::int64_t grid_index = 0;    // which combination of the grid keys that are left
  };
  Variant variant(std::int64_t index) const;

  SearchSpace space_;
  std::uint64_t seed_ = 0;
  std::vector<Config> points_;
  std::vector<std::int64_t> point_ends_;  // index after each point's last trial
  std::int64_t grid_size_ = 1;
  std::int64_t total_ = 0;
};

/// A searcher as an option: a copyable recipe. Every run makes its own object from it.
class AnySearcher {
 public:
  AnySearcher();  ///< grid times random

  template <class S>
  requires(std::derived_from<S, Searcher>&& std::copy_constructible<S>) AnySearcher(S prototype)
      : make_([prototype = std::move(prototype)] { return std::make_unique<S>(prototype); }) {}

  std::unique_ptr<Searcher> make() const { return make_(); }

 private:
  std::function<std::unique_ptr<Searcher>()> make_;
};

}  // namespace troupe::tune
