#include "sgd/device.hpp"

#include "libactor/log.hpp"

#include <dlfcn.h>

#include <torch/torch.h>

namespace troupe::sgd {

torch::Device device() {
  return torch::cuda::is_available() ? torch::Device(torch::kCUDA, 0) : torch::Device(torch::kCPU);
}

void seed_everything(const Context& context) {
  torch::manual_seed(context.seed());
  at::set_num_threads(context.threads());
  static const bool warned = [] {
    if (const std::string warning = blas_warning(); !warning.empty()) log_warn(warning);
    return true;
  }();
  (void)warned;
}

std::string blas_warning() {
  // Each of these is exported by one quick BLAS and by no other library.
  for (const char* symbol :
       {"openblas_get_config", "MKL_Get_Version", "bli_info_get_version_str", "ATL_buildinfo"})
    if (::dlsym(RTLD_DEFAULT, symbol) != nullptr) return {};
  return "LibTorch computes with the reference BLAS, 14 to 28 times slower than OpenBLAS: install "
         "libopenblas0-openmp";
}

}  // namespace troupe::sgd
