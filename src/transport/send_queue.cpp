#include "transport/send_queue.hpp"

#include "core/assert.hpp"

#include <algorithm>
#include <span>

namespace tutti::transport {

bool SendQueue::write(Stream& stream) {
    bool moved = false;
    for (std::size_t left = turn_bytes; !frames_.empty() && left > 0;) {
        Outgoing& out = frames_.front();
        TUTTI_ASSERT(out.transfer == nullptr || !out.transfer->done);
        const auto header =
            out.written < sizeof(Frame) ? out.frame.bytes().subspan(out.written) : std::span<const std::byte>{};
        const std::size_t payload_done = out.written > sizeof(Frame) ? out.written - sizeof(Frame) : 0;
        const std::span<const std::byte> payload = out.transfer != nullptr
                                                       ? std::span(out.transfer->source, out.transfer->bytes)
                                                       : std::span<const std::byte>{};
        TUTTI_ASSERT(payload_done <= payload.size());
        TUTTI_ASSERT(out.written < sizeof(Frame) + payload.size());
        const auto rest = payload.subspan(payload_done);
        const std::size_t count = stream.write(header, rest.first(std::min(rest.size(), left)));
        if (count == 0) break;
        moved = true;
        out.written += count;
        left -= std::min(left, count);
        if (out.transfer != nullptr && out.written > sizeof(Frame))
            out.transfer->bytes_done = out.written - sizeof(Frame);
        if (out.written < sizeof(Frame) + payload.size()) continue;
        if (out.transfer != nullptr) out.transfer->done = true;
        frames_.pop();
    }
    return moved;
}

bool SendQueue::holds(const Transfer& transfer) const {
    return std::ranges::find(frames_.items(), &transfer, &Outgoing::transfer) != frames_.items().end();
}

}  // namespace tutti::transport
