#pragma once

#include <cstdint>

namespace troupe::sgd {

/// How the ranks' gradients become one.
enum class Average : std::uint8_t {
  by_sample,  ///< weighted by the samples of each rank's batch: what one process with all of them
              ///< would have got
  by_rank,    ///< the mean over ranks, as PyTorch's DDP; with equal batches the same bits
};

/// What an `all_reduce` makes of the ranks' values.
enum class ReduceOp : std::uint8_t { sum, average, min, max };

enum class Compression : std::uint8_t { none, fp16, bf16 };  ///< of gradients on their way

/// What PyTorch's DistributedDataParallel takes, with its defaults.
struct DdpOptions {
  Average average = Average::by_sample;
  /// Some parameters may take no part in a step; without it that is an error that names them.
  bool find_unused_parameters = false;
  bool broadcast_buffers = true;  ///< rank 0's, after every training step
  std::int64_t bucket_bytes = std::int64_t{25} << 20;
  std::int64_t first_bucket_bytes = std::int64_t{1} << 20;
  Compression compression = Compression::none;
};

}  // namespace troupe::sgd
