#include "zmq/stream.hpp"

#include <memory>
#include <utility>

namespace tutti::backends::zeromq {

// Behind the last chunk, as long as the thread has not taken it, if there is room.
void ZmqStream::send(std::size_t /*lane*/, Kind kind, std::span<const std::byte> header,
                     std::span<const std::byte> payload) {
    const bool fits = kind == Kind::bytes && !outgoing_.empty() && outgoing_.back().header.kind == kind &&
                      outgoing_.back().bytes.size() + header.size() + payload.size() <= chunk_bytes;
    if (!fits) outgoing_.push_back({.header = {.kind = kind, .number = sent_++}, .bytes = {}});
    std::vector<std::byte>& bytes = outgoing_.back().bytes;
    bytes.insert(bytes.end(), header.begin(), header.end());
    bytes.insert(bytes.end(), payload.begin(), payload.end());
    desk_.call();
}

ZmqStream::Chunk ZmqStream::take_outgoing() {
    Chunk chunk = std::move(outgoing_.front());
    outgoing_.pop_front();
    sent(chunk.bytes.size());
    return chunk;
}

void ZmqStream::take_incoming(const Header& header, zmq::message_t bytes) {
    if (is_closed()) return;
    if (header.number != received_++) return fail("ZeroMQ has lost a message, with a connection that broke");
    const auto owner = std::make_shared<const zmq::message_t>(std::move(bytes));
    arrived(0, header.kind, owner, {owner->data<std::byte>(), owner->size()});
}

}  // namespace tutti::backends::zeromq
