#include "transport/peers.hpp"

#include "core/assert.hpp"
#include "core/log.hpp"

#include <utility>

namespace tutti::transport {

void Peer::lose(std::string why) {
    TUTTI_ASSERT(rank >= 0);
    lost = true;
    if (end) return;
    if (!why.empty()) TUTTI_DEBUG("the connection to rank {} ended: {}", rank, why);
    end = StreamEnd{Clock::now(), std::move(why)};
    TUTTI_ASSERT(lost && end);
}

// A peer that sends nothing more receives nothing more either: it does not need the frames that wait to be written.
bool Peer::look_at_end(const Stream& stream) {
    TUTTI_ASSERT(!lost);
    const StreamState state = stream.state();
    if (state == StreamState::open) return false;
    queue.clear();
    if (state == StreamState::ended)
        lose(reader.is_within_frame() ? "it ended within a message" : "");
    else
        lose(stream.reason().empty() ? "it broke off" : stream.reason());
    TUTTI_ASSERT(lost && queue.empty());
    return state == StreamState::damaged;
}

void Peer::drop() noexcept {
    queue.clear();
    awaited = 0;
    reader.end_payload();
    lost = true;
}

void Peers::meet(int rank) {
    TUTTI_ASSERT(peers_[static_cast<std::size_t>(rank)] == nullptr);
    auto& slot = peers_[static_cast<std::size_t>(rank)];
    slot = std::make_unique<Peer>();
    slot->rank = rank;
    order_.push_back(rank);
    TUTTI_ASSERT(order_.size() <= peers_.size());
}

}  // namespace tutti::transport
