#include "libactor/blob.hpp"

#include <caf/binary_deserializer.hpp>
#include <caf/deserializer.hpp>
#include <caf/sec.hpp>
#include <caf/serializer.hpp>

#include <algorithm>

namespace troupe {

Blob Blob::copy_of(std::span<const std::byte> bytes) {
  return make(bytes.size(),
              [&](std::span<std::byte> out) { std::ranges::copy(bytes, out.begin()); });
}

std::string to_string(const Blob& blob) {
  return "Blob of " + std::to_string(blob.size()) + " bytes";
}

Error inspect(caf::serializer& sink, Blob& blob) {
  std::size_t size = blob.size_;
  if (size > limits::kMessageBytes)
    return make_error(Errc::bad_request, to_string(blob) + " in a message; at most " +
                                             std::to_string(limits::kMessageBytes) +
                                             ": send it in chunks");
  if (auto failed = sink.begin_sequence(size)) return failed;
  if (size == 0) return {};
  return sink.apply_raw(size, const_cast<std::byte*>(blob.bytes_.get()));
}

Error inspect(caf::deserializer& source, Blob& blob) {
  std::size_t size = 0;
  if (auto failed = source.begin_sequence(size)) return failed;
  // Nothing is allocated for bytes that have not arrived.
  const auto* binary = dynamic_cast<const caf::binary_deserializer*>(&source);
  if (size > limits::kMessageBytes || (binary && size > binary->remaining()))
    return caf::sec::end_of_stream;
  caf::error failed;
  blob = Blob::make(size, [&](std::span<std::byte> out) {
    if (size > 0) failed = source.apply_raw(size, out.data());
  });
  return failed;
}

}  // namespace troupe
