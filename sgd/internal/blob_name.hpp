#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace troupe::sgd::internal {

/// Of a part of something in a checkpoint: "net/weight", "optimizer/1".
inline std::string blob_name(std::string_view name, std::string_view part) {
  return std::string(name) + "/" + std::string(part);
}
inline std::string blob_name(std::string_view name, std::size_t index) {
  return blob_name(name, std::to_string(index));
}

}  // namespace troupe::sgd::internal
