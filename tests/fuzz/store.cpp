// What a store's server reads of its clients: frames, and requests in them.
#include "store/server_data.hpp"
#include "store/wire.hpp"
#include "targets.hpp"

#include <string>
#include <vector>

namespace tutti::fuzz {
namespace {

using store::FrameBody;
using store::FrameHeader;
using store::FrameReader;

struct Cut {
    std::vector<std::string> bodies;
    bool is_ours = true;

    bool operator==(const Cut&) const = default;
};

// As a connection gives it, `piece` bytes at a time.
Cut cut(std::string_view bytes, std::size_t piece) {
    Cut result;
    FrameReader reader;
    const auto keep = [&](const FrameHeader&, FrameBody body) {
        result.bodies.push_back(body.take());
        return true;
    };
    while (!bytes.empty() && result.is_ours) {
        result.is_ours = reader.feed(bytes.substr(0, piece), keep);
        bytes.remove_prefix(std::min(piece, bytes.size()));
    }
    return result;
}

}  // namespace

// How a stream of bytes comes in pieces makes no difference.
void store_stream(std::string_view bytes) {
    const Cut whole = cut(bytes, bytes.size());
    if (cut(bytes, 1) != whole || cut(bytes, 7) != whole) wrong("pieces of a stream gave other frames than the whole");
}

// Two clients, who take turns.
void store_requests(std::string_view bytes) {
    std::size_t answered = 0;
    store::ServerData data([&](store::ConnectionId, std::uint64_t, store::Op, std::span<const store::Field> fields) {
        for (const store::Field& field : fields) answered += field.bytes.size();
    });
    data.tell_workers([](store::ConnectionId) { return std::string_view("door"); }, "127.0.0.1");
    FrameReader reader;
    store::ConnectionId from = 1;
    reader.feed(bytes, [&](const FrameHeader& header, FrameBody body) {
        from = 3 - from;
        const bool makes_sense = data.handle(from, header, body.view());
        if (!makes_sense) data.forget(from);
        return makes_sense;
    });
    data.forget(1);
    data.forget(2);
    if (data.waiting() != 0) wrong("a client that is gone still waits");
}

}  // namespace tutti::fuzz
