#pragma once

#include "libactor/limits.hpp"
#include "libactor/result.hpp"

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace caf {
class serializer;
class deserializer;
}  // namespace caf

namespace troupe {

/// Reference-counted bytes that never change: copies share them, also in messages inside one
/// process. Between processes they cost one copy on each side; at most limits::kMessageBytes, in
/// practice pieces of limits::kChunkBytes.
class Blob {
 public:
  Blob() = default;
  static Blob copy_of(std::span<const std::byte> bytes);
  static Blob copy_of(std::string_view text) {
    return copy_of(std::as_bytes(std::span(text.data(), text.size())));
  }
  /// `fill` is called once, with `size` bytes that nobody has zeroed.
  template <class Fill>
  static Blob make(std::size_t size, Fill&& fill) {
    auto bytes = std::make_shared_for_overwrite<std::byte[]>(size);
    std::forward<Fill>(fill)(std::span<std::byte>(bytes.get(), size));
    return Blob(std::move(bytes), size);
  }

  std::span<const std::byte> bytes() const { return {bytes_.get(), size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(bytes_.get()), size_}; }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

  friend bool operator==(const Blob& a, const Blob& b) { return a.text() == b.text(); }
  friend std::string to_string(const Blob& blob);  // CAF prints messages
  friend Error inspect(caf::serializer& sink, Blob& blob);
  friend Error inspect(caf::deserializer& source, Blob& blob);

 private:
  Blob(std::shared_ptr<const std::byte[]> bytes, std::size_t size)
      : bytes_(std::move(bytes)), size_(size) {}

  std::shared_ptr<const std::byte[]> bytes_;
  std::size_t size_ = 0;
};

std::string to_string(const Blob& blob);
Error inspect(caf::serializer& sink, Blob& blob);
Error inspect(caf::deserializer& source, Blob& blob);

}  // namespace troupe
