// A mailbox's state for each peer, and for messages that have come before their receive.
#pragma once

#include "transport/mailbox.hpp"

#include <array>
#include <cstring>
#include <optional>

namespace tutti::transport {

// A turn moves a bounded number of bytes each way, so that both directions flow at once, and bytes under way between
// two ranks of one machine are still in the cache when they are read.
inline constexpr std::size_t turn_bytes = std::size_t{256} << 10;
inline constexpr std::size_t bounce_bytes = std::size_t{64} << 10;
// The cost of an eager message beside its bytes: the bookkeeping while no receive is posted.
inline constexpr std::size_t message_cost = 256;

inline std::uint64_t grant_key(int source, std::uint64_t id) {
    return (static_cast<std::uint64_t>(source) << 40) ^ id;
}

struct Mailbox::Unexpected {
    int source = 0;
    Frame frame;
    std::unique_ptr<std::byte[]> bytes;  // eager; frame.length of them
    bool complete = false;               // all bytes are here (request: always)
    Transfer* bound = nullptr;           // a receive that waits for the rest
    Transfer* local_send = nullptr;      // a message to oneself

    void hand_to(Transfer& receive) const {
        if (receive.on_bytes)
            receive.on_bytes(0, std::span(bytes.get(), frame.length));
        else if (frame.length > 0)
            std::memcpy(receive.target, bytes.get(), frame.length);
        receive.bytes_done = frame.length;
        receive.done = true;
    }
};

struct Mailbox::Peer {
    struct Outgoing {
        Frame frame;
        const std::byte* payload;
        std::size_t bytes;
        std::size_t written;
        Transfer* transfer;
    };
    int rank = 0;
    std::deque<Outgoing> out;
    std::size_t credit = credit_bytes;  // bytes that we may still send ahead of the peer's receives
    std::size_t unconsumed = 0;         // bytes that the peer has sent and we have not given back
    std::size_t owed = 0;               // bytes that we have consumed and not given back
    std::size_t awaited = 0;            // receives of it that are posted or granted, and sends that it has to answer
    Frame header;
    // Short messages come in one read: the header together with the bytes that follow it.
    std::array<std::byte, 1024> stage;
    std::size_t stage_begin = 0, stage_end = 0;
    bool drained = false;  // the last read of this turn brought less than it could take
    // Where the payload of the current frame goes: a transfer, or an unexpected message.
    Transfer* transfer = nullptr;
    Unexpected* unexpected = nullptr;
    std::size_t payload_bytes = 0;
    std::size_t payload_done = 0;
    std::size_t carried = 0;  // bytes of an incomplete element at the front of `bounce_carry`
    std::vector<std::byte> bounce_carry;
    bool in_payload = false;
    bool lost = false;             // nothing is read or written any more
    std::optional<StreamEnd> end;  // why
    bool has_end = false;          // we have told the peer so
};

}  // namespace tutti::transport
