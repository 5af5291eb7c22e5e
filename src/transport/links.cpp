#include "transport/links.hpp"

#include "core/assert.hpp"
#include "core/log.hpp"
#include "transport/shm/ring_stream.hpp"

#include <tutti/error.hpp>

namespace tutti::transport {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds peers_turn{20};  // in which the lower rank is left to connect
constexpr milliseconds lane_patience{1000};
constexpr milliseconds cause_patience{300};  // for news of why a rank cannot be reached

}  // namespace

Links::Links(LinkOptions options, const Neighbours& neighbours, Connector& connector)
    : options_(std::move(options)),
      neighbours_(neighbours),
      connector_(connector),
      streams_(options_.checksums.size()),
      wanted_(options_.checksums.size()) {
    TUTTI_ASSERT(options_.rank >= 0 && static_cast<std::size_t>(options_.rank) < streams_.size());
    TUTTI_ASSERT(options_.patience.count() >= 0);
}

SocketStream& Links::socket_to(int peer) {
    TUTTI_ASSERT(static_cast<std::size_t>(peer) < streams_.size());
    TUTTI_ASSERT(!neighbours_.share_memory_with(peer));
    auto& stream = streams_[static_cast<std::size_t>(peer)];
    if (!stream) {
        stream = std::make_unique<SocketStream>(options_.congestion, options_.lanes,
                                                options_.checksums[static_cast<std::size_t>(peer)], socket_time_,
                                                [this, peer] { return has_taken_all(peer); });
    }
    TUTTI_ASSERT(stream != nullptr);
    return static_cast<SocketStream&>(*stream);
}

bool Links::is_connected(int peer) const noexcept {
    TUTTI_ASSERT(static_cast<std::size_t>(peer) < streams_.size());
    if (neighbours_.share_memory_with(peer)) return false;
    const auto& stream = streams_[static_cast<std::size_t>(peer)];
    return stream && static_cast<const SocketStream&>(*stream).lanes() > 0;
}

bool Links::has_taken_all(int peer) {
    TUTTI_ASSERT(static_cast<std::size_t>(peer) < streams_.size());
    if (neighbours_.share_memory_with(peer)) return true;
    const auto look = looks_.try_emplace(peer, connector_.next_round()).first;
    TUTTI_ASSERT(look->second <= connector_.next_round());
    return connector_.is_through(look->second) && !connector_.has_incoming();
}

std::vector<SocketStream*> Links::connected() {
    std::vector<SocketStream*> streams;
    for (int peer = 0; peer < static_cast<int>(streams_.size()); ++peer) {
        if (is_connected(peer)) streams.push_back(&socket_to(peer));
    }
    return streams;
}

Stream* Links::existing(int peer) {
    TUTTI_ASSERT(static_cast<std::size_t>(peer) < streams_.size());
    return neighbours_.share_memory_with(peer) || is_connected(peer) ? to(peer) : nullptr;
}

Stream* Links::to(int peer) {
    TUTTI_ASSERT(static_cast<std::size_t>(peer) < streams_.size());
    if (neighbours_.share_memory_with(peer)) {
        auto& stream = streams_[static_cast<std::size_t>(peer)];
        if (!stream) {
            stream = std::make_unique<RingStream>(neighbours_.arena(), neighbours_.own_local(),
                                                  neighbours_.local_of(peer), options_.short_copy);
        }
        TUTTI_ASSERT(stream != nullptr);
        return stream.get();
    }
    SocketStream& socket = socket_to(peer);
    if (!connects_) return socket.needs_connection() ? nullptr : &socket;
    if (socket.wants_connection()) add_lane(peer, socket);
    return socket.needs_connection() ? connect(peer, socket) : &socket;
}

// For a moment, from when it was wanted first.
bool Links::lets_peer_connect(int peer) {
    TUTTI_ASSERT(peer != options_.rank);
    if (options_.rank < peer) return false;
    const Instant now = Clock::now();
    Instant& wanted = wanted_[static_cast<std::size_t>(peer)];
    if (wanted == Instant{}) wanted = now;
    TUTTI_ASSERT(wanted <= now);
    return now - wanted < peers_turn;
}

Stream* Links::connect(int peer, SocketStream& socket) {
    TUTTI_ASSERT(connects_);
    TUTTI_ASSERT(socket.needs_connection());
    if (lets_peer_connect(peer)) return nullptr;
    if (const auto found = refused_.find(peer); found != refused_.end()) {
        const auto& [since, why] = found->second;
        if (connector_.has_incoming()) take_incoming();
        if (!socket.needs_connection()) return &socket;
        if (!has_taken_all(peer) || Clock::now() - since < cause_patience) return nullptr;
        socket.give_up();
        if (!unreachable_) unreachable_ = {peer, why};
        return &socket;
    }
    try {
        socket.add(connector_.connect(peer, Deadline::after(options_.patience)));
    } catch (const DistError& error) {
        refused_[peer] = {Clock::now(), error.what()};
        looks_[peer] = connector_.next_round();
        return nullptr;
    }
    TUTTI_ASSERT(!socket.needs_connection());
    TUTTI_ASSERT(refused_.find(peer) == refused_.end());
    return &socket;
}

void Links::add_lane(int peer, SocketStream& socket) {
    TUTTI_ASSERT(connects_);
    TUTTI_ASSERT(socket.wants_connection());
    try {
        socket.add(connector_.connect(peer, Deadline::after(lane_patience)));
        TUTTI_DEBUG("{} connections to rank {}", socket.lanes(), peer);
    } catch (const DistError& error) {
        TUTTI_DEBUG("no further connection to rank {}: {}", peer, error.what());
        socket.give_up();
        TUTTI_ASSERT(!socket.wants_connection());
    }
}

void Links::take_incoming() {
    for (auto& [peer, connection] : connector_.take_incoming()) {
        if (neighbours_.share_memory_with(peer)) continue;
        socket_to(peer).add(std::move(connection));
        arrived_.push_back(peer);
        looks_.erase(peer);
    }
}

std::vector<int> Links::take_arrived() {
    if (connector_.has_incoming()) take_incoming();
    return std::exchange(arrived_, {});
}

void Links::close() noexcept {
    for (const auto& stream : streams_) {
        if (stream) stream->close();
    }
}

}  // namespace tutti::transport
