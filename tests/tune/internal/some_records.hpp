#pragma once

#include "tune/internal/journal_record.hpp"

#include <vector>

namespace troupe::tune::internal {

/// One record of every kind, in the order of the variant, no member at its default.
inline std::vector<Record> some_records() {
  return {
      RunBegun{.name = "mnist_asha",
               .experiment_id = "0123456789abcdef",
               .trainable = "MnistTrainable",
               .seed = 0xfedcba9876543210,
               .started_s = 1796115600.25,
               .metric = "mean_accuracy",
               .mode = Mode::max,
               .num_samples = -1,
               .scheduler = R"({"class":"ASHAScheduler"})",
               .searcher = R"({"class":"BasicVariantGenerator"})",
               .space = R"({"lr":{"loguniform":[0.0001,0.1]}})",
               .build_id = "8c1d"},
      RunResumed{.resumed_s = 1796115700.5, .mode = "automatic"},
      TrialAdded{.trial = 3,
                 .id = "a1b2c_00003",
                 .tag = "3_lr=0.1",
                 .directory = "MnistTrainable_a1b2c_00003",
                 .config = std::string("\0bytes\xff", 7)},
      TrialStarted{.trial = 3, .incarnation = 2, .from_iteration = 17},
      ResultRow{.trial = 3,
                .iteration = 18,
                .row = "row",
                .decision = Decision::stop,
                .by_stopper = true},
      CheckpointSaved{.trial = 3, .iteration = 18, .name = "checkpoint_000018", .uuid = "c0ffee"},
      CheckpointDeleted{.trial = 3, .name = "checkpoint_000017"},
      TrialFailed{.trial = 3, .user = true, .text = "CUDA out of memory", .failure_count = 2},
      TrialEnded{.trial = 3, .state = TrialState::error, .why = "failed"},
      TrialReopened{.trial = 3, .from_beginning = true},
      TimeUsed{.seconds = 12.5},
      RunEnded{.why = "complete"},
  };
}

}  // namespace troupe::tune::internal
