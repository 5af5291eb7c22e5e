#include "transport/frame.hpp"

#include "core/assert.hpp"

namespace tutti::transport {
namespace {

/// The fields of a frame that a short message's header lacks; they are that message's payload.
struct ShortRest {
    std::uint64_t length, id, address;
};

}  // namespace

bool put_frame(Stream& stream, const Frame& frame) {
    TUTTI_ASSERT(frame.magic == Frame::magic_number);
    TUTTI_ASSERT(frame.kind != Frame::Kind::eager && frame.kind != Frame::Kind::data);  // these have a payload
    const ShortRest rest{frame.length, frame.id, frame.address};
    const ShortMessage message{frame.channel, frame.fingerprint, 0, static_cast<std::uint8_t>(frame.kind), sizeof rest};
    return stream.put(message, reinterpret_cast<const std::byte*>(&rest));
}

Frame take_frame(Stream& stream, const ShortMessage& message, std::uint64_t world) {
    TUTTI_ASSERT(static_cast<Frame::Kind>(message.kind) != Frame::Kind::eager);
    ShortRest rest{};
    if (message.length == sizeof rest) stream.take(reinterpret_cast<std::byte*>(&rest));
    Frame frame;
    frame.magic = message.length == sizeof rest ? Frame::magic_number : 0;
    frame.kind = static_cast<Frame::Kind>(message.kind);
    frame.world = world;
    frame.channel = message.channel;
    frame.fingerprint = message.fingerprint;
    frame.length = rest.length;
    frame.id = rest.id;
    frame.address = rest.address;
    return frame;
}

}  // namespace tutti::transport
