// SendQueue: frames that wait, in order, until the stream to their peer accepts them.
//
// Threads: one at a time.
#pragma once

#include "core/assert.hpp"
#include "core/queue.hpp"
#include "transport/frame.hpp"
#include "transport/transfer.hpp"

#include <tutti/transport.hpp>

#include <cstddef>

namespace tutti::transport {

class SendQueue {
 public:
    bool empty() const noexcept { return frames_.empty(); }
    /// Queues a frame and the message of `transfer` (null: none). The transfer is done when all its bytes are written.
    void push(const Frame& frame, Transfer* transfer) {
        TUTTI_ASSERT(frame.magic == Frame::magic_number);
        TUTTI_ASSERT(transfer == nullptr || frame.length == transfer->bytes);
        TUTTI_ASSERT(transfer == nullptr || !transfer->done);
        frames_.push({frame, 0, transfer});
    }
    /// Writes at most turn_bytes. True: the stream has taken some bytes.
    bool write(Stream& stream);
    bool holds(const Transfer& transfer) const;
    void clear() noexcept { frames_.clear(); }

 private:
    struct Outgoing {
        Frame frame;
        std::size_t written;
        Transfer* transfer;
    };
    Queue<Outgoing> frames_;
};

/// The most bytes that a turn moves in each direction, so that both directions flow at once, and bytes between two
/// ranks of one machine are still in the cache when the receiver reads them.
inline constexpr std::size_t turn_bytes = std::size_t{256} << 10;

}  // namespace tutti::transport
