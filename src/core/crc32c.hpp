// CRC-32C (Castagnoli; RFC 3720, appendix B.4): the checksum of iSCSI, ext4 and SCTP. It finds every change of one or
// two bits, and of up to 32 bits in a row; of other changes it misses one in 2^32.
//
// CPUs have instructions for it; the program detects those of this CPU when it runs. Free functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tutti {

/// The CRC-32C of a message that ends with `bytes`; `before` is the CRC-32C of the message's bytes before them (0:
/// none).
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before = 0) noexcept;

/// A way to compute it. crc32c() takes the last: each is quicker than those before it.
struct Crc32cWay {
    const char* name;
    /// From state to state: the CRC's complement.
    std::uint32_t (*run)(std::uint32_t state, const std::byte* at, std::size_t bytes) noexcept;
};
/// The ways that this CPU has.
std::span<const Crc32cWay> crc32c_ways() noexcept;

}  // namespace tutti
