// SendQueue: frames that wait until the stream to their peer takes them, in order.
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
    /// A frame, and behind it the message of a transfer, which is done when all has been written; null: none.
    void push(const Frame& frame, Transfer* transfer) {
        TUTTI_ASSERT(frame.magic == Frame::magic_number);
        TUTTI_ASSERT(transfer == nullptr || frame.length == transfer->bytes);
        TUTTI_ASSERT(transfer == nullptr || !transfer->done);
        frames_.push({frame, 0, transfer});
    }
    /// A turn's worth. True: some bytes have gone.
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

/// A turn moves a bounded number of bytes each way, so that both directions flow at once, and bytes under way between
/// two ranks of one machine are still in the cache when they are read.
inline constexpr std::size_t turn_bytes = std::size_t{256} << 10;

}  // namespace tutti::transport
