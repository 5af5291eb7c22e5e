// Transfer: one send or receive in progress. The caller of a mailbox owns it, and must not move it while it is posted.
//
// Threads: one at a time.
#pragma once

#include "core/assert.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace tutti::transport {

inline constexpr int any_source = -1;

/// Passes the bytes of a message, in order and as they arrive, to a function object, which must not move.
class ByteSink {
 public:
    ByteSink() = default;
    /// Calls `object(offset, bytes)`.
    template <class F>
    static ByteSink of(F& object) {
        ByteSink sink;
        sink.object_ = const_cast<void*>(static_cast<const void*>(&object));
        sink.call_ = [](void* at, std::size_t offset, std::span<const std::byte> bytes) {
            (*static_cast<F*>(at))(offset, bytes);
        };
        return sink;
    }
    explicit operator bool() const noexcept { return call_ != nullptr; }
    void operator()(std::size_t offset, std::span<const std::byte> bytes) const {
        TUTTI_ASSERT(call_ != nullptr);
        call_(object_, offset, bytes);
    }

 private:
    void* object_ = nullptr;
    void (*call_)(void* object, std::size_t offset, std::span<const std::byte> bytes) = nullptr;
};

struct Transfer {
    /// What a receive does with the message that it matches. A probe and a claim become a description of it: peer,
    /// channel, fingerprint, bytes and number.
    enum class Match : std::uint8_t {
        take,   ///< takes its bytes
        probe,  ///< leaves it where it is
        claim,  ///< leaves it there, but keeps it for the receive that names its number
    };
    Match match = Match::take;
    int peer = any_source;  ///< receives: becomes the sender's rank once matched
    bool standing = false;  ///< receives of any source: ready for whoever asks; no call of this rank waits for it
    std::uint64_t channel = 0;
    std::uint64_t channel_bits = ~std::uint64_t{0};  ///< probes and claims: the bits of the channel that count
    std::uint64_t number = 0;  ///< receives: the number of the claimed message that it takes; 0: the next that matches
    std::uint64_t fingerprint = 0;
    const std::byte* source = nullptr;  ///< sends
    std::byte* target = nullptr;        ///< receives into memory
    std::size_t bytes = 0;
    ByteSink on_bytes;  ///< receives that combine: gets whole elements at a time
    std::size_t element_bytes = 1;
    bool done = false;
    bool refused = false;  ///< sends: the receiver has left the group without taking it
    std::size_t bytes_done = 0;

    /// Completes a receive with its whole message.
    void fill(std::span<const std::byte> message) {
        TUTTI_ASSERT(!done);
        TUTTI_ASSERT(message.size() == bytes);
        TUTTI_ASSERT(on_bytes || target != nullptr || message.empty());
        if (on_bytes)
            on_bytes(0, message);
        else if (!message.empty())
            std::memmove(target, message.data(), message.size());
        bytes_done = message.size();
        done = true;
    }
};

}  // namespace tutti::transport
