#pragma once

#include "libactor/resources.hpp"
#include "libactor/result.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// One machine of the cluster, as the head knows it.
struct NodeInfo {
  std::string id = {};
  std::string host = {};
  Resources total = {};
  Resources free = {};
};

/// The driver's handle on the machines it may use. Made by `init`; leaving the scope ends
/// everything that runs. Thread-safe. Moves, does not copy.
class Cluster {
 public:
  struct Impl;

  explicit Cluster(std::unique_ptr<Impl> impl);
  ~Cluster();
  Cluster(Cluster&&) noexcept;
  Cluster& operator=(Cluster&&) noexcept;

  /// Empty for a cluster of this machine alone.
  std::string address() const;
  std::vector<NodeInfo> nodes() const;
  Resources total() const;

  /// out_of_resources when no machine could ever grant this; names the resource, the amount and the
  /// most there is.
  Result<void> could_grant(const Resources& wanted) const;

  /// A text that every worker started from now on, and every function in `preloaded`, can read by
  /// `parameter(name)`: a data folder, for example. At most 4 KiB in all.
  Result<void> set_parameter(std::string_view name, std::string_view value);

  Impl& impl() const { return *impl_; }  ///< for `libactor/actor.hpp`

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe
