// Hello: the first message on a connection between two ranks, after the handshake if there is one (LIFELINES.md). It
// says which rank has connected, and for what purpose.
//
// Threads: a value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tutti::rendezvous {

struct Hello {
    /// `memory`: asks the receiver for its shared memory, over the receiver's local endpoint.
    enum class Purpose : std::uint32_t { lifeline = 1, data = 2, memory = 3 };
    std::uint64_t world = 0;
    Purpose purpose = Purpose::data;
    std::int32_t rank = -1;

    std::span<const std::byte> bytes() const { return std::as_bytes(std::span(this, 1)); }
};
static_assert(sizeof(Hello) == 16);

}  // namespace tutti::rendezvous
