#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <utility>

namespace troupe {

/// Lower-case letters and digits from the system's random source, a letter first (so that no tool
/// takes "00123" or "1e5" for a number).
std::string random_id(int length = 8);

/// 64 bits from the system's random source: the seed of a run that was given none.
std::uint64_t random_seed();

/// This machine's name, for people; "localhost" when it has none.
std::string host_name();

/// A name that only its own kind compares with. Empty: none.
template <class Kind>
class Id {
 public:
  Id() = default;
  explicit Id(std::string text) : text_(std::move(text)) {}
  static Id random() { return Id(random_id()); }

  const std::string& text() const { return text_; }
  bool empty() const { return text_.empty(); }
  auto operator<=>(const Id&) const = default;
  friend std::ostream& operator<<(std::ostream& out, const Id& id) { return out << id.text_; }
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, Id& id) {
    return f(id.text_);
  }

 private:
  std::string text_;
};

using NodeId = Id<struct NodeKind>;
using WorkerId = Id<struct WorkerKind>;
using RequestId = Id<struct RequestKind>;  ///< of a request for resources, and of what was granted

}  // namespace troupe

template <class Kind>
struct std::hash<troupe::Id<Kind>> {
  std::size_t operator()(const troupe::Id<Kind>& id) const {
    return std::hash<std::string>{}(id.text());
  }
};
