#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace troupe {

/// CRC-32C (Castagnoli; reflected polynomial 0x82f63b78) of `bytes`, continued from `crc`.
/// A byte at a time (about 0.4 GB/s): for headers and records, not for blobs.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t crc = 0);

}  // namespace troupe
