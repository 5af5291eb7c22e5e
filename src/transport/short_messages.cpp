// Short messages: frames that a stream carries in one piece.
#include "transport/mailbox_state.hpp"

#include <algorithm>

namespace tutti::transport {
namespace {

/// The fields of a frame other than an eager one that a short message's header lacks; they are that message's payload.
struct ShortRest {
    std::uint64_t length, id, address;
};

}  // namespace

bool Mailbox::send_now(int to, std::uint64_t channel, std::uint64_t fingerprint, std::span<const std::byte> payload) {
    if (to == rank_ || payload.size() >= pull_bytes_ || place_of(to, payload) != 0) return false;
    Peer& p = peer(to);
    const std::size_t cost = payload.size() + message_cost;
    if (p.lost || !p.out.empty() || cost > p.credit) return false;
    Stream* stream = streams_.to(to);
    const ShortMessage message{channel, fingerprint, static_cast<std::uint32_t>(p.owed),
                               static_cast<std::uint8_t>(Frame::Kind::eager),
                               static_cast<std::uint32_t>(payload.size() & 0xffffff)};
    if (stream == nullptr || !stream->put(message, payload.data())) return false;
    p.credit -= cost;
    give_back(p);
    return true;
}

// The place of a message that the peer can read where it lies (Place::bits()), or 0.
std::uint64_t Mailbox::place_of(int to, std::span<const std::byte> payload) const {
    return payload.size() >= pull_bytes_on_shared_cores && neighbours_ != nullptr ? neighbours_->place(to, payload) : 0;
}

bool Mailbox::receive_now(Transfer& receive, Waiting& waiting) {
    if (receive.peer == rank_ || (!unexpected_.empty() && unexpected_.contains(receive.channel))) return false;
    Peer& p = peer(receive.peer);
    if (p.lost || p.in_payload || p.stage_begin != p.stage_end || !p.out.empty() || !pulls_.empty()) return false;
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
    return on_short(receive.peer, p, *stream, message, &receive);
}

// A frame without a payload, in one piece; false if the stream cannot.
bool Mailbox::put_short(int to, const Frame& frame) {
    Stream* stream = streams_.to(to);
    if (stream == nullptr) return false;
    const ShortRest rest{frame.length, frame.id, frame.address};
    const ShortMessage message{frame.channel, frame.fingerprint, 0, static_cast<std::uint8_t>(frame.kind), sizeof rest};
    return stream->put(message, reinterpret_cast<const std::byte*>(&rest));
}

// A message that came in one piece, and the receive that it meets (null: none waits yet).
bool Mailbox::on_short(int from, Peer& p, Stream& stream, const ShortMessage& message, Transfer* receive) {
    const std::uint64_t bytes =
        message.length < pull_bytes_on_own_cores ? message.length + message_cost : credit_bytes + 1;
    if (!count_eager(p, bytes, message.given_back)) return false;
    Frame frame;
    frame.world = world_;
    frame.channel = message.channel;
    frame.fingerprint = message.fingerprint;
    frame.length = message.length;
    if (receive != nullptr) {
        if (!check(from, frame, *receive)) return false;
        receive->peer = from;
        take_short(stream, *receive);
        consumed(from, frame);
        return true;
    }
    if (!check_unmet(from, frame)) return false;
    Unexpected& kept = unexpected_[frame.channel].emplace_back();
    kept.source = from;
    kept.frame = frame;
    kept.bytes = std::make_unique_for_overwrite<std::byte[]>(frame.length);
    kept.complete = true;
    stream.take(kept.bytes.get());
    return true;
}

// Any other frame that came in one piece.
bool Mailbox::on_short_frame(int from, Peer& p, Stream& stream, const ShortMessage& message) {
    ShortRest rest{};
    if (message.length == sizeof rest) stream.take(reinterpret_cast<std::byte*>(&rest));
    p.header.magic = message.length == sizeof rest ? Frame::magic_number : 0;
    p.header.kind = static_cast<Frame::Kind>(message.kind);
    p.header.world = world_;
    p.header.channel = message.channel;
    p.header.fingerprint = message.fingerprint;
    p.header.length = rest.length;
    p.header.id = rest.id;
    p.header.address = rest.address;
    return on_header(from, p);
}

void Mailbox::take_short(Stream& stream, Transfer& receive) {
    if (receive.on_bytes) {
        if (bounce_.size() < receive.bytes) bounce_.resize(std::max(receive.bytes, bounce_bytes));
        stream.take(bounce_.data());
        receive.on_bytes(0, std::span(bounce_).first(receive.bytes));
    } else {
        stream.take(receive.target);
    }
    receive.bytes_done = receive.bytes;
    receive.done = true;
}

}  // namespace tutti::transport
