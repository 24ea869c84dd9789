#include <sgd/state.hpp>

#include <torch/torch.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

/// A model goes into a checkpoint and comes out into another one.
int main() {
  const auto folder =
      std::filesystem::temp_directory_path() / ("consumer_sgd." + std::to_string(::getpid()));
  torch::nn::Linear written(3, 2), read(3, 2);
  auto out = troupe::unwrap(troupe::CheckpointWriter::begin(folder, {}));
  troupe::sgd::save(*out, "net", *written);
  troupe::unwrap(out->commit());
  troupe::sgd::load(troupe::unwrap(troupe::CheckpointReader::open(folder)), "net", *read);
  std::filesystem::remove_all(folder);
  const bool equal = torch::equal(written->weight, read->weight);
  std::printf("the weights are %s\n", equal ? "the same" : "different");
  return equal ? 0 : 1;
}
