#pragma once

#include "libactor/result.hpp"

#include <string>
#include <utility>

namespace troupe::sgd::internal {

/// For what user code calls (`setup`, `load_checkpoint`): throws `Exception`.
[[noreturn]] inline void refuse(std::string text) {
  throw Exception(make_error(Errc::bad_request, std::move(text)));
}

}  // namespace troupe::sgd::internal
