#include "sgd/internal/dtype.hpp"

namespace troupe::sgd::internal {

const std::map<torch::ScalarType, DType>& dtypes() {
  static const std::map<torch::ScalarType, DType> map{
      {torch::kFloat32, DType::float32},
      {torch::kFloat64, DType::float64},
      {torch::kFloat16, DType::float16},
      {torch::kBFloat16, DType::bfloat16},
      {torch::kInt8, DType::int8},
      {torch::kInt16, DType::int16},
      {torch::kInt32, DType::int32},
      {torch::kInt64, DType::int64},
      {torch::kUInt8, DType::uint8},
      {torch::kBool, DType::boolean},
      {torch::kComplexFloat, DType::complex64},
      {torch::kComplexDouble, DType::complex128},
  };
  return map;
}

DType dtype_of(torch::ScalarType type) {
  const auto found = dtypes().find(type);
  return found == dtypes().end() ? DType::none : found->second;
}

}  // namespace troupe::sgd::internal
