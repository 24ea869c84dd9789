#include "sgd/device.hpp"

#include "libactor/internal/context_state.hpp"

#include <doctest/doctest.h>

#include <torch/torch.h>

using namespace troupe;

TEST_CASE("device: the trial's seed and threads decide what LibTorch gives") {
  auto state = std::make_shared<Context::State>();
  state->seed = 7;
  state->threads = 1;
  const auto draw = [&state] {
    sgd::seed_everything(Context(state));
    return torch::rand({4});
  };
  const auto first = draw();
  CHECK(draw().equal(first));
  CHECK(at::get_num_threads() == 1);
  state->seed = 8;
  CHECK_FALSE(draw().equal(first));
}

TEST_CASE("device: without a GPU it is the CPU") {
  CHECK(sgd::device().is_cpu() == !torch::cuda::is_available());
}

TEST_CASE("device: programs of the build tree compute with OpenBLAS") {
  CHECK(sgd::blas_warning() == "");
}
