#include "common/chunk_stream.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace tutti::backends {

using transport::StreamState;

// ---- The rank's thread

std::size_t ChunkStream::write(std::span<const std::byte> header, std::span<const std::byte> payload) {
    const std::lock_guard lock(desk_.mutex);
    if (ends_ || is_closed()) return 0;
    const std::size_t wanted = header.size() + payload.size();
    const std::size_t count = std::min(wanted, outgoing_bytes - std::min(waiting_bytes_, outgoing_bytes));
    wants_room_ = count < wanted;
    has_room_news_ = false;
    ring();
    for (std::size_t left = count; left > 0 && why_.empty();) {
        const auto first = header.first(std::min({left, header.size(), chunk_bytes}));
        const auto second = payload.first(std::min({left - first.size(), payload.size(), chunk_bytes - first.size()}));
        left -= first.size() + second.size();
        header = header.subspan(first.size());
        payload = payload.subspan(second.size());
        waiting_bytes_ += first.size() + second.size();
        send_next(Kind::bytes, first, second);
    }
    return count;
}

void ChunkStream::send_next(Kind kind, std::span<const std::byte> header, std::span<const std::byte> payload) {
    send(sent_++ % arrived_.size(), kind, header, payload);
}

std::size_t ChunkStream::read(std::span<std::byte> into, std::span<std::byte> ahead) {
    const std::lock_guard lock(desk_.mutex);
    std::size_t done = 0;
    for (std::span<std::byte> part : std::array{into, ahead}) {
        while (!part.empty() && !incoming_.empty()) {
            Chunk& chunk = incoming_.front();
            const std::size_t count = std::min(part.size(), chunk.bytes.size());
            std::memcpy(part.data(), chunk.bytes.data(), count);
            part = part.subspan(count);
            chunk.bytes = chunk.bytes.subspan(count);
            done += count;
            if (chunk.bytes.empty()) incoming_.pop_front();
        }
    }
    if (done == 0) return 0;
    unread_less(done);
    ring();
    return done;
}

void ChunkStream::unread_less(std::size_t bytes) {
    const bool was_full = desk_.is_full();
    desk_.unread -= bytes;
    if (was_full && !desk_.is_full()) desk_.no_longer_full();
}

StreamState ChunkStream::state() const noexcept {
    const std::lock_guard lock(desk_.mutex);
    if (closed_) return StreamState::closed;
    if (!incoming_.empty()) return StreamState::open;
    if (peer_has_ended_) return StreamState::ended;
    return why_.empty() ? StreamState::open : StreamState::closed;
}

bool ChunkStream::end() {
    const std::lock_guard lock(desk_.mutex);
    if (ends_ || is_closed()) return true;
    ends_ = true;
    send_next(Kind::end);
    return true;
}

void ChunkStream::close() noexcept {
    const std::lock_guard lock(desk_.mutex);
    closed_ = true;
    std::size_t dropped = 0;
    for (const Chunk& chunk : incoming_) dropped += chunk.bytes.size();
    incoming_.clear();
    unread_less(dropped);
    drop();
}

bool ChunkStream::delivered() const noexcept {
    const std::lock_guard lock(desk_.mutex);
    return is_closed() || !ends_ || end_is_acknowledged_;
}

std::string ChunkStream::reason() const {
    const std::lock_guard lock(desk_.mutex);
    return why_;
}

void ChunkStream::pollables(bool /*output*/, std::vector<transport::Pollable>& into) const {
    into.push_back({bell_.fd(), false});
}

bool ChunkStream::is_used() const {
    const std::lock_guard lock(desk_.mutex);
    return sent_ > 0 || has_come_;
}

// ---- The transport's threads

void ChunkStream::arrived(std::size_t lane, Kind kind, std::shared_ptr<const void> owner,
                          std::span<const std::byte> bytes) {
    if (is_closed()) return;
    has_come_ = true;
    arrived_[lane].push_back({kind, std::move(owner), bytes});
    for (;;) {
        auto& next = arrived_[received_ % arrived_.size()];
        if (next.empty()) return;
        ++received_;
        Chunk chunk = std::move(next.front());
        next.pop_front();
        take(std::move(chunk));
    }
}

void ChunkStream::take(Chunk chunk) {
    switch (chunk.kind) {
        case Kind::bytes:
            if (chunk.bytes.empty() || peer_has_ended_) break;
            desk_.unread += chunk.bytes.size();
            incoming_.push_back(std::move(chunk));
            return ring();
        case Kind::end:
            peer_has_ended_ = true;
            if (acknowledges_ends()) send_next(Kind::acknowledged);
            return ring();
        case Kind::acknowledged: end_is_acknowledged_ = true; return;
    }
    fail("it sent something that is not a part of its stream");
}

void ChunkStream::sent(std::size_t bytes) {
    waiting_bytes_ -= bytes;
    if (!wants_room_) return;
    has_room_news_ = true;
    ring();
}

void ChunkStream::fail(const std::string& why) {
    if (!why_.empty()) return;
    why_ = why;
    drop();
    ring();
}

}  // namespace tutti::backends
