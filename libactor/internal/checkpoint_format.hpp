#pragma once

#include "libactor/checkpoint.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

/// The bytes of a checkpoint file, without any I/O: libactor/CHECKPOINT.md. Every function that
/// reads takes bytes from anybody and answers corrupt with a sentence.
namespace troupe::internal::checkpoint_format {

inline constexpr std::string_view kCheckpointFile = "checkpoint";  ///< its name in its folder
inline constexpr std::uint64_t kHeaderBytes = 64;
inline constexpr std::uint64_t kFooterBytes = 32;
inline constexpr std::uint64_t kBlobAlignment = 64;
inline constexpr std::uint64_t kLargeBlobBytes = std::uint64_t{1} << 20;  ///< from here on …
inline constexpr std::uint64_t kLargeBlobAlignment = 4096;                ///< … on pages

using Uuid = std::array<std::byte, 16>;

/// What header and footer say: where the table of contents lies, and that the file is whole.
struct Frame {
  std::uint64_t toc_offset = 0;
  std::uint64_t toc_size = 0;
  Uuid uuid = {};
};

/// The table of contents.
struct Contents {
  std::string writer = {};  ///< "troupe 0.1.0"
  CheckpointInfo info = {};
  std::int64_t wall_time_ns = 0;
  std::vector<CheckpointEntry> blobs = {};
};

Uuid make_uuid();
std::string to_hex(const Uuid& uuid);

/// Bytes of one element; 0 for DType::none and for numbers that are no DType.
std::uint64_t width_of(DType dtype);
/// Product of the shape times the width; nothing when it passes 2^63 - 1.
std::optional<std::uint64_t> bytes_of(DType dtype, std::span<const std::uint64_t> shape);
/// Where a blob of `size` bytes begins that follows byte `end`.
std::uint64_t align_blob(std::uint64_t end, std::uint64_t size);

std::vector<std::byte> encode_header(const Frame& frame);
/// toc: the encoded table of contents.
std::vector<std::byte> encode_footer(const Frame& frame, std::span<const std::byte> toc);
/// blobs: sorted by name. bad_request when it would be longer than `limits::kTocBytes`.
Result<std::vector<std::byte>> encode_contents(const Contents& contents);

/// Header and footer of a file of `file_size` bytes; checks all but the table's sum.
Result<Frame> decode_frame(std::span<const std::byte> header, std::span<const std::byte> footer,
                           std::uint64_t file_size);
/// Checks the table's sum and every entry: name, type, size, alignment, bounds, overlap.
Result<Contents> decode_contents(std::span<const std::byte> toc, std::span<const std::byte> footer,
                                 const Frame& frame);

}  // namespace troupe::internal::checkpoint_format
