#pragma once

#include "libactor/context.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

namespace troupe {

/// The worker's side of one lease: what an entry's body gets. Lives as long as the body runs.
class Worker {
 public:
  struct Impl;

  explicit Worker(Impl& impl) : impl_(impl) {}

  const Context& context() const;
  const std::string& argument() const;  ///< `ChildSpec::argument`
  std::uint64_t child() const;          ///< the owner's number of this child
  std::uint64_t incarnation() const;    ///< grows with every restart; older ones are fenced

  /// The iteration that `Context::iteration` shows.
  void set_iteration(std::int64_t iteration);
  /// The sentence that becomes the failure's cause when the body then returns something else than
  /// 0.
  void fail(std::string text);

  Impl& impl() const {
    return impl_;
  }  ///< for those who send messages: libactor/internal/worker_main.hpp

 private:
  Impl& impl_;
};

}  // namespace troupe
