// CRC-32C (Castagnoli; RFC 3720, appendix B.4): the checksum of iSCSI, ext4 and SCTP. It finds every change of one or
// two bits, and of up to 32 bits in a row; of others all but one in 2^32.
//
// CPUs have instructions for it: what this one has is found out when the program runs. Free functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tutti {

/// Of `bytes`, after those whose CRC-32C is `before` (0: there are none).
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before = 0) noexcept;

/// The ways to compute it, of which crc32c() takes the last: each is quicker than those before it.
struct Crc32cWay {
    const char* name;
    /// From state to state: the CRC's complement.
    std::uint32_t (*run)(std::uint32_t state, const std::byte* at, std::size_t bytes) noexcept;
};
/// That this CPU can go.
std::span<const Crc32cWay> crc32c_ways() noexcept;

}  // namespace tutti
