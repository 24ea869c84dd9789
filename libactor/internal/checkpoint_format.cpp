#include "libactor/internal/checkpoint_format.hpp"

#include "libactor/assert.hpp"
#include "libactor/checkpoint.capnp.h"
#include "libactor/crc32c.hpp"
#include "libactor/id.hpp"
#include "libactor/limits.hpp"

#include <capnp/message.h>
#include <capnp/serialize.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace troupe::internal::checkpoint_format {
namespace {

static_assert(std::endian::native == std::endian::little, "the file is little-endian");

// The first byte is no text; CR LF and LF show a transfer in text mode; 0x1a ends a file for DOS.
constexpr std::array<unsigned char, 8> kHeaderMagic{0x89, 'C', 'K', 'P', 'T', '\r', '\n', 0x1a};
constexpr std::array<unsigned char, 8> kFooterMagic{'C', 'K', 'P', 'T', 'E', 'N', 'D', '\n'};
constexpr std::uint16_t kMajor = 1;
constexpr std::uint16_t kMinor = 0;
constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 62;

template <class T>
void put(std::span<std::byte> bytes, std::size_t at, const T& value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

template <class T>
T at(std::span<const std::byte> bytes, std::size_t offset) {
  T value{};
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

// Whole, with a NUL where there is one.
std::string text_of(capnp::Text::Reader text) { return {text.begin(), text.size()}; }
capnp::Text::Reader text_of(const std::string& text) { return {text.data(), text.size()}; }

Error corrupt(std::string text) { return make_error(Errc::corrupt, std::move(text)); }

std::string named(const std::string& name) { return "blob '" + name + "': "; }

Result<void> check_header(std::span<const std::byte> header) {
  if (std::memcmp(header.data(), kHeaderMagic.data(), kHeaderMagic.size()) != 0)
    return corrupt("is not a checkpoint (its first bytes are others)");
  if (at<std::uint32_t>(header, 56) != crc32c(header.first(56)))
    return corrupt("header: checksum differs");
  if (at<std::uint16_t>(header, 8) != kMajor)
    return corrupt("format version " + std::to_string(at<std::uint16_t>(header, 8)) +
                   " is unknown; this build reads version " + std::to_string(kMajor));
  if (at<std::uint32_t>(header, 12) != 0 || at<std::uint32_t>(header, 60) != 0)
    return corrupt("header: unknown flags");
  return {};
}

Result<void> check_footer(std::span<const std::byte> footer) {
  if (std::memcmp(footer.data(), kFooterMagic.data(), kFooterMagic.size()) != 0 ||
      at<std::uint32_t>(footer, 28) != crc32c(footer.first(28)))
    return corrupt("footer: is missing or damaged");
  return {};
}

Result<CheckpointEntry> decode_blob(schema::Blob::Reader blob) {
  CheckpointEntry entry;
  entry.name = text_of(blob.getName());
  if (entry.name.empty() || entry.name.size() > limits::kNameBytes ||
      entry.name.find('\0') != std::string::npos)
    return corrupt("a blob's name is empty, too long or holds a NUL");
  entry.dtype = static_cast<DType>(blob.getDtype());
  if (entry.dtype != DType::none && width_of(entry.dtype) == 0)
    return corrupt(named(entry.name) + "unknown type " + std::to_string(blob.getDtype()));
  if (blob.getCodec() != 0)
    return corrupt(named(entry.name) + "unknown codec " + std::to_string(blob.getCodec()));
  for (std::uint64_t length : blob.getShape()) entry.shape.push_back(length);
  entry.offset = blob.getOffset();
  entry.size = blob.getSize();
  if (entry.dtype == DType::none && !entry.shape.empty())
    return corrupt(named(entry.name) + "bytes without a type have a shape");
  if (entry.dtype != DType::none && bytes_of(entry.dtype, entry.shape) != entry.size)
    return corrupt(named(entry.name) + "size does not follow from type and shape");
  const XXH128_hash_t sum{blob.getXxh3Low(), blob.getXxh3High()};
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, sum);
  std::memcpy(entry.xxh3.data(), canonical.digest, sizeof canonical.digest);
  return entry;
}

/// Every blob lies inside the file, on its alignment, and no two share a byte.
Result<void> check_places(const std::vector<CheckpointEntry>& blobs, std::uint64_t toc_offset) {
  std::vector<const CheckpointEntry*> order;
  for (const auto& blob : blobs) order.push_back(&blob);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::pair(a->offset, a->size) < std::pair(b->offset, b->size);
  });
  std::uint64_t end = kHeaderBytes;
  for (const auto* blob : order) {
    if (blob->offset % kBlobAlignment != 0)
      return corrupt(named(blob->name) + "offset is not a multiple of 64");
    if (blob->offset > toc_offset || blob->size > toc_offset - blob->offset)
      return corrupt(named(blob->name) + "lies outside the file");
    if (blob->offset < end) return corrupt(named(blob->name) + "overlaps what is before it");
    end = blob->offset + blob->size;
  }
  return {};
}

Result<Contents> parse_contents(std::span<const std::byte> toc) {
  // One segment, and its length is that of the table: nothing is allocated by the file's word.
  if (toc.size() < 16 || at<std::uint32_t>(toc, 0) != 0 ||
      std::uint64_t{at<std::uint32_t>(toc, 4)} * 8 + 8 != toc.size())
    return corrupt("table of contents: is not one segment");
  std::vector<capnp::word> words(toc.size() / sizeof(capnp::word));
  std::memcpy(words.data(), toc.data(), toc.size());
  auto parsed = fence(Errc::corrupt, [&words] {
    Contents contents;
    capnp::FlatArrayMessageReader message(kj::arrayPtr(words.data(), words.size()));
    const auto root = message.getRoot<schema::TableOfContents>();
    contents.writer = text_of(root.getWriter());
    contents.info = {.trial_id = text_of(root.getTrialId()),
                     .iteration = root.getIteration(),
                     .time_total_s = root.getTimeTotalS(),
                     .timesteps_total = root.getTimestepsTotal(),
                     .config_json = text_of(root.getConfigJson()),
                     .parent_uuid = text_of(root.getParentUuid())};
    contents.wall_time_ns = root.getWallTimeNs();
    for (const auto blob : root.getBlobs()) contents.blobs.push_back(unwrap(decode_blob(blob)));
    return contents;
  });
  if (!parsed) return with_context(parsed.error(), "table of contents");
  return parsed;
}

}  // namespace

Uuid make_uuid() {
  Uuid uuid{};
  put(uuid, 0, random_seed());
  put(uuid, 8, random_seed());
  return uuid;
}

std::string to_hex(const Uuid& uuid) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : uuid) {
    text += kDigits[std::to_integer<std::size_t>(byte >> 4)];
    text += kDigits[std::to_integer<std::size_t>(byte & std::byte{15})];
  }
  return text;
}

std::uint64_t width_of(DType dtype) {
  switch (dtype) {
    case DType::none: return 0;
    case DType::int8:
    case DType::uint8:
    case DType::boolean: return 1;
    case DType::float16:
    case DType::bfloat16:
    case DType::int16: return 2;
    case DType::float32:
    case DType::int32: return 4;
    case DType::float64:
    case DType::int64:
    case DType::complex64: return 8;
    case DType::complex128: return 16;
  }
  return 0;
}

std::optional<std::uint64_t> bytes_of(DType dtype, std::span<const std::uint64_t> shape) {
  // A length of 0 counts as 1 here, so that [0, 2^63, 2^63] is refused too: readers multiply in
  // their own order.
  std::uint64_t product = width_of(dtype);
  bool empty = false;
  for (const std::uint64_t length : shape) {
    if (__builtin_mul_overflow(product, std::max<std::uint64_t>(length, 1), &product) ||
        product > kMaxBytes)
      return std::nullopt;
    empty = empty || length == 0;
  }
  return empty ? 0 : product;
}

std::uint64_t align_blob(std::uint64_t end, std::uint64_t size) {
  const std::uint64_t step = size >= kLargeBlobBytes ? kLargeBlobAlignment : kBlobAlignment;
  return (end + step - 1) / step * step;
}

std::vector<std::byte> encode_header(const Frame& frame) {
  std::vector<std::byte> header(kHeaderBytes);
  put(header, 0, kHeaderMagic);
  put(header, 8, kMajor);
  put(header, 10, kMinor);
  put(header, 16, frame.toc_offset);
  put(header, 24, frame.toc_size);
  put(header, 32, frame.toc_offset + frame.toc_size + kFooterBytes);
  put(header, 40, frame.uuid);
  put(header, 56, crc32c(std::span(header).first(56)));
  return header;
}

std::vector<std::byte> encode_footer(const Frame& frame, std::span<const std::byte> toc) {
  std::vector<std::byte> footer(kFooterBytes);
  put(footer, 0, kFooterMagic);
  put(footer, 8, std::uint64_t{XXH3_64bits(toc.data(), toc.size())});
  put(footer, 16, frame.toc_offset + frame.toc_size + kFooterBytes);
  std::memcpy(footer.data() + 24, frame.uuid.data(), 4);
  put(footer, 28, crc32c(std::span(footer).first(28)));
  return footer;
}

Result<std::vector<std::byte>> encode_contents(const Contents& contents) {
  capnp::MallocMessageBuilder first;
  auto root = first.initRoot<schema::TableOfContents>();
  root.setWriter(text_of(contents.writer));
  root.setWallTimeNs(contents.wall_time_ns);
  root.setTrialId(text_of(contents.info.trial_id));
  root.setIteration(contents.info.iteration);
  root.setTimeTotalS(contents.info.time_total_s);
  root.setTimestepsTotal(contents.info.timesteps_total);
  root.setConfigJson(text_of(contents.info.config_json));
  root.setParentUuid(text_of(contents.info.parent_uuid));
  auto blobs = root.initBlobs(static_cast<unsigned>(contents.blobs.size()));
  for (unsigned i = 0; i < blobs.size(); ++i) {
    const CheckpointEntry& entry = contents.blobs[i];
    blobs[i].setName(text_of(entry.name));
    blobs[i].setDtype(static_cast<std::uint16_t>(entry.dtype));
    auto shape = blobs[i].initShape(static_cast<unsigned>(entry.shape.size()));
    for (unsigned d = 0; d < shape.size(); ++d) shape.set(d, entry.shape[d]);
    blobs[i].setOffset(entry.offset);
    blobs[i].setSize(entry.size);
    XXH128_canonical_t canonical;
    std::memcpy(canonical.digest, entry.xxh3.data(), sizeof canonical.digest);
    const XXH128_hash_t sum = XXH128_hashFromCanonical(&canonical);
    blobs[i].setXxh3High(sum.high64);
    blobs[i].setXxh3Low(sum.low64);
  }
  // Copied once more, into one segment.
  const auto words = root.asReader().totalSize().wordCount + 1;
  if (words * sizeof(capnp::word) + 8 > limits::kTocBytes)
    return make_error(Errc::bad_request,
                      "the table of contents is longer than 16 MiB; write fewer, larger blobs");
  capnp::MallocMessageBuilder message(static_cast<unsigned>(words),
                                      capnp::AllocationStrategy::FIXED_SIZE);
  message.setRoot(root.asReader());
  const auto flat = capnp::messageToFlatArray(message);
  const auto bytes = std::as_bytes(std::span(flat.begin(), flat.size()));
  TROUPE_ASSERT(message.getSegmentsForOutput().size() == 1, words);
  return std::vector<std::byte>(bytes.begin(), bytes.end());
}

Result<Frame> decode_frame(std::span<const std::byte> header, std::span<const std::byte> footer,
                           std::uint64_t file_size) {
  TROUPE_ASSERT(header.size() == kHeaderBytes && footer.size() == kFooterBytes);
  if (auto ok = check_header(header); !ok) return ok.error();
  if (at<std::uint64_t>(header, 32) != file_size)
    return corrupt("is " + std::to_string(file_size) + " bytes long, but was written with " +
                   std::to_string(at<std::uint64_t>(header, 32)));
  if (auto ok = check_footer(footer); !ok) return ok.error();
  Frame frame{at<std::uint64_t>(header, 16), at<std::uint64_t>(header, 24), at<Uuid>(header, 40)};
  if (at<std::uint64_t>(footer, 16) != file_size ||
      std::memcmp(footer.data() + 24, frame.uuid.data(), 4) != 0)
    return corrupt("footer: belongs to another file");
  if (frame.toc_size > static_cast<std::uint64_t>(limits::kTocBytes) || frame.toc_size % 8 != 0 ||
      frame.toc_offset % 8 != 0 || frame.toc_offset < kHeaderBytes ||
      frame.toc_offset > file_size || file_size - frame.toc_offset != frame.toc_size + kFooterBytes)
    return corrupt("header: the table of contents lies outside its place");
  return frame;
}

Result<Contents> decode_contents(std::span<const std::byte> toc, std::span<const std::byte> footer,
                                 const Frame& frame) {
  if (XXH3_64bits(toc.data(), toc.size()) != at<std::uint64_t>(footer, 8))
    return corrupt("table of contents: checksum differs");
  auto contents = parse_contents(toc);
  if (!contents) return contents;
  const auto& blobs = contents->blobs;
  for (std::size_t i = 1; i < blobs.size(); ++i)
    if (blobs[i - 1].name >= blobs[i].name)
      return corrupt(named(blobs[i].name) + "the name is there twice, or not in order");
  if (auto ok = check_places(blobs, frame.toc_offset); !ok) return ok.error();
  return contents;
}

}  // namespace troupe::internal::checkpoint_format
