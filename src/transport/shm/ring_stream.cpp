#include "transport/shm/ring_stream.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace tutti::transport {

RingStream::RingStream(std::shared_ptr<Arena> arena, int local_rank, int local_peer)
    : arena_(std::move(arena)),
      peer_(local_peer),
      out_(arena_->ring_control(local_rank, local_peer)),
      in_(arena_->ring_control(local_peer, local_rank)),
      out_data_(arena_->ring_data(local_rank, local_peer)),
      in_data_(arena_->ring_data(local_peer, local_rank)),
      capacity_(arena_->layout().ring_bytes) {}

std::size_t RingStream::put(std::span<const std::byte> bytes, std::uint64_t at) {
    const std::size_t start = at % capacity_;
    const std::size_t first = std::min(bytes.size(), capacity_ - start);
    if (first > 0) std::memcpy(out_data_ + start, bytes.data(), first);
    if (bytes.size() > first) std::memcpy(out_data_, bytes.data() + first, bytes.size() - first);
    return bytes.size();
}

std::size_t RingStream::write(std::span<const std::byte> header, std::span<const std::byte> payload) {
    const std::uint64_t written = out_.written.load(std::memory_order_relaxed);
    const std::size_t space =
        capacity_ - static_cast<std::size_t>(written - out_.taken.load(std::memory_order_acquire));
    if (space == 0) return 0;
    std::size_t done = put(header.first(std::min(header.size(), space)), written);
    done += put(payload.first(std::min(payload.size(), space - done)), written + done);
    out_.written.store(written + done, std::memory_order_release);
    arena_->ring_doorbell(peer_);
    return done;
}

std::size_t RingStream::get(std::span<std::byte> into, std::uint64_t at) const {
    const std::size_t start = at % capacity_;
    const std::size_t first = std::min(into.size(), capacity_ - start);
    if (first > 0) std::memcpy(into.data(), in_data_ + start, first);
    if (into.size() > first) std::memcpy(into.data() + first, in_data_, into.size() - first);
    return into.size();
}

std::size_t RingStream::read(std::span<std::byte> into, std::span<std::byte> ahead) {
    const std::uint64_t taken = in_.taken.load(std::memory_order_relaxed);
    const auto available = static_cast<std::size_t>(in_.written.load(std::memory_order_acquire) - taken);
    if (available == 0 || into.empty()) return 0;
    std::size_t count = get(into.first(std::min(into.size(), available)), taken);
    count += get(ahead.first(std::min(ahead.size(), available - count)), taken + count);
    in_.taken.store(taken + count, std::memory_order_release);
    arena_->ring_doorbell(peer_);
    return count;
}

}  // namespace tutti::transport
