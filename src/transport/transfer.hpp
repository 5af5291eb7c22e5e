// Transfer: one send or receive in progress. It belongs to the caller of a mailbox, and stays where it is while posted.
//
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>

namespace tutti::transport {

inline constexpr int any_source = -1;

struct Transfer {
    int peer = any_source;  ///< receives: becomes the sender's rank once matched
    std::uint64_t channel = 0;
    std::uint64_t fingerprint = 0;
    const std::byte* source = nullptr;  ///< sends
    std::byte* target = nullptr;        ///< receives into memory
    std::size_t bytes = 0;
    /// Receives that combine: gets the bytes in order, whole elements at a time.
    std::function<void(std::size_t offset, std::span<const std::byte>)> on_bytes;
    std::size_t element_bytes = 1;
    bool done = false;
    bool refused = false;  ///< sends: its receiver has left the group without it
    std::size_t bytes_done = 0;

    /// The whole message of a receive.
    void fill(std::span<const std::byte> message) {
        if (on_bytes)
            on_bytes(0, message);
        else if (!message.empty())
            std::memmove(target, message.data(), message.size());
        bytes_done = message.size();
        done = true;
    }
};

}  // namespace tutti::transport
