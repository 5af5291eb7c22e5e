// CRC-32C (Castagnoli; RFC 3720, appendix B.4): the checksum of iSCSI, ext4 and SCTP. It finds every change of one or
// two bits, and of up to 32 bits in a row; of other changes it misses one in 2^32.
//
// Uses the CPU's instructions for CRC-32C, detected at run time. Free functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tutti {

/// Extends a checksum: returns the CRC-32C of the bytes whose CRC-32C is `before` (0: no bytes) followed by `bytes`.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before = 0) noexcept;

/// One implementation of CRC-32C. crc32c() uses the last one of crc32c_ways().
struct Crc32cWay {
    const char* name;
    /// Returns the state after the `bytes` bytes at `at`; `state` is the state before them. A state is the complement
    /// of a CRC.
    std::uint32_t (*run)(std::uint32_t state, const std::byte* at, std::size_t bytes) noexcept;
};
/// The implementations that this CPU supports, slowest first.
std::span<const Crc32cWay> crc32c_ways() noexcept;

}  // namespace tutti
