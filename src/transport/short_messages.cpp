// Short messages: frames that a stream carries in one piece.
#include "core/assert.hpp"
#include "transport/mailbox.hpp"

#include <algorithm>

namespace tutti::transport {

bool Mailbox::send_now(int to, std::uint64_t channel, std::uint64_t fingerprint, std::span<const std::byte> payload) {
    TUTTI_ASSERT(to >= 0);
    if (to == rank_ || payload.size() >= pulls_.from_bytes() || pulls_.place_of(to, payload) != 0) return false;
    Peer& p = peers_.at(to);
    const std::size_t cost = Credit::cost_of(payload.size());
    if (p.lost || !p.queue.empty() || !p.credit.allows(cost)) return false;
    Stream* stream = streams_.to(to);
    TUTTI_ASSERT(payload.size() < pull_bytes_on_own_cores);  // the peer takes no longer one
    TUTTI_ASSERT(p.credit.owed() <= Credit::limit);
    const ShortMessage message{channel, fingerprint, static_cast<std::uint32_t>(p.credit.owed()),
                               static_cast<std::uint8_t>(Frame::Kind::eager),
                               static_cast<std::uint32_t>(payload.size() & 0xffffff)};
    if (stream == nullptr || !stream->put(message, payload.data())) return false;
    p.credit.spend(cost);
    p.credit.give_back();
    TUTTI_ASSERT(p.credit.owed() == 0);
    return true;
}

bool Mailbox::receive_now(Transfer& receive, Waiting& waiting) {
    TUTTI_ASSERT(receive.peer >= 0);
    TUTTI_ASSERT(receive.on_bytes || receive.target != nullptr || receive.bytes == 0);
    if (receive.peer == rank_ || matching_.has_unexpected(receive.channel)) return false;
    Peer& p = peers_.at(receive.peer);
    if (p.lost || p.reader.is_within_frame() || !p.queue.empty() || !pulls_.empty()) return false;
    TUTTI_ASSERT(!matching_.is_posted(receive.peer, receive.channel));
    Stream* stream = streams_.to(receive.peer);
    if (stream == nullptr) return false;
    ShortMessage message{};
    Arrival arrival = stream->next(message);
    for (Waiting::Looks looks(waiting); arrival == Arrival::nothing; arrival = stream->next(message)) {
        if (!looks.again()) return false;
    }
    if (arrival != Arrival::short_message || message.channel != receive.channel ||
        static_cast<Frame::Kind>(message.kind) != Frame::Kind::eager)
        return false;
    return on_short(p, *stream, message, &receive);
}

// A message that came in one piece, and the receive that it meets (null: none waits yet); or another frame.
bool Mailbox::on_short(Peer& p, Stream& stream, const ShortMessage& message, Transfer* receive) {
    TUTTI_ASSERT(!p.lost && !p.reader.is_within_frame());
    TUTTI_ASSERT(receive == nullptr || receive->channel == message.channel);
    if (static_cast<Frame::Kind>(message.kind) != Frame::Kind::eager) {
        p.reader.set_header(take_frame(stream, message, world_));
        return on_frame(p, p.reader.header());
    }
    if (!p.credit.take_in(Credit::cost_of(message.length), message.given_back, pull_bytes_on_own_cores - 1)) {
        p.lose("it sent more than it was allowed to");
        return false;
    }
    Frame frame;
    frame.world = world_;
    frame.channel = message.channel;
    frame.fingerprint = message.fingerprint;
    frame.length = message.length;
    if (receive == nullptr) {
        if (!checks_.allows_unmet(p.rank, frame)) return false;
        Unexpected& kept = matching_.keep_with_bytes(p.rank, frame);
        kept.complete = true;
        stream.take(kept.bytes.get());
        tell_probes(kept);
        return true;
    }
    if (!findings_.fits(p.rank, frame, *receive)) return false;
    TUTTI_ASSERT(receive->bytes == message.length);
    receive->peer = p.rank;
    if (receive->on_bytes) {
        const std::span<std::byte> bytes = bounce_.of(std::max(receive->bytes, Bounce::usual_bytes));
        stream.take(bytes.data());
        receive->on_bytes(0, bytes.first(receive->bytes));
    } else {
        stream.take(receive->target);
    }
    receive->bytes_done = receive->bytes;
    receive->done = true;
    consumed(p, frame.length);
    return true;
}

}  // namespace tutti::transport
