#include "transport/shm/ring_stream.hpp"

#include "core/assert.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace tutti::transport {
namespace {

constexpr std::size_t piece_bytes = std::size_t{64} << 10;

}  // namespace

RingStream::RingStream(std::shared_ptr<Arena> arena, int local_rank, int local_peer, StagingCopy* copy)
    : arena_(std::move(arena)),
      copy_(copy),
      peer_(local_peer),
      out_(arena_->ring_control(local_rank, local_peer)),
      in_(arena_->ring_control(local_peer, local_rank)),
      out_data_(arena_->ring_data(local_rank, local_peer)),
      in_data_(arena_->ring_data(local_peer, local_rank)),
      capacity_(arena_->layout().ring_bytes) {
    TUTTI_ASSERT(local_rank != local_peer);
    TUTTI_ASSERT(std::has_single_bit(capacity_));
}

std::size_t RingStream::put(std::span<const std::byte> bytes, std::uint64_t at) {
    TUTTI_ASSERT(bytes.size() <= capacity_);
    const std::size_t start = at % capacity_;
    const std::size_t first = std::min(bytes.size(), capacity_ - start);
    copy_staged(copy_, out_data_ + start, bytes.data(), first);
    copy_staged(copy_, out_data_, bytes.data() + first, bytes.size() - first);
    return bytes.size();
}

// Bytes that fit now: as many as wanted if the reader is known to have left them, else as many as it has by now.
std::size_t RingStream::room(std::size_t wanted) {
    TUTTI_ASSERT(wanted > 0);
    const auto free = [this] { return capacity_ - static_cast<std::size_t>(written_ - peer_taken_); };
    if (free() < wanted) peer_taken_ = out_.taken.load(std::memory_order_acquire);
    return free();
}

std::size_t RingStream::write(std::span<const std::byte> header, std::span<const std::byte> payload) {
    TUTTI_ASSERT(header.size() + payload.size() > 0);
    // In pieces, so that the reader takes one while the next is being written.
    const std::size_t space = std::min(room(header.size() + payload.size()), piece_bytes);
    if (space == 0) return 0;
    std::size_t done = put(header.first(std::min(header.size(), space)), written_);
    done += put(payload.first(std::min(payload.size(), space - done)), written_ + done);
    TUTTI_ASSERT(done > 0 && done <= space);
    written_ += done;
    out_.written.store(written_, std::memory_order_release);
    arena_->ring_doorbell(peer_);
    return done;
}

bool RingStream::put(const ShortMessage& message, const std::byte* payload) {
    TUTTI_ASSERT(payload != nullptr || message.length == 0);
    if (sent_ - peer_received_ == RingControl::slots) {
        peer_received_ = out_.slots_taken.load(std::memory_order_acquire);
        if (sent_ - peer_received_ == RingControl::slots) return false;
    }
    MessageSlot& slot = out_.messages[sent_ % RingControl::slots];
    const std::uint64_t at = written_;
    if (message.length > MessageSlot::inline_bytes) {
        if (room(message.length) < message.length) return false;
        written_ += put({payload, message.length}, at);
    } else if (message.length > 0) {
        std::memcpy(slot.payload.data(), payload, message.length);
    }
    slot.at = at;
    slot.message = message;
    slot.stamped().store(++sent_, std::memory_order_release);
    arena_->ring_doorbell(peer_);
    // This rank writes the next slot soon: have its line here by then.
    __builtin_prefetch(&out_.messages[sent_ % RingControl::slots], 1);
    return true;
}

std::size_t RingStream::get(std::span<std::byte> into, std::uint64_t at) const {
    TUTTI_ASSERT(at >= taken_);
    const std::size_t start = at % capacity_;
    const std::size_t first = std::min(into.size(), capacity_ - start);
    if (first > 0) std::memcpy(into.data(), in_data_ + start, first);
    if (into.size() > first) std::memcpy(into.data() + first, in_data_, into.size() - first);
    return into.size();
}

// The end of the bytes that come before the next message (null if there is none yet).
std::uint64_t RingStream::readable_end(const MessageSlot*& next) const {
    const std::uint64_t written = in_.written.load(std::memory_order_acquire);
    MessageSlot& slot = in_.messages[received_ % RingControl::slots];
    const bool arrived = slot.stamped().load(std::memory_order_acquire) == received_ + 1;
    next = arrived ? &slot : nullptr;
    return arrived ? slot.at : std::max(written, taken_);  // `written` may not yet count payloads of messages
}

std::size_t RingStream::read(std::span<std::byte> into, std::span<std::byte> ahead) {
    const MessageSlot* message = nullptr;
    const auto available = static_cast<std::size_t>(readable_end(message) - taken_);
    if (available == 0 || into.empty()) return 0;
    std::size_t count = get(into.first(std::min(into.size(), available)), taken_);
    count += get(ahead.first(std::min(ahead.size(), available - count)), taken_ + count);
    taken_ += count;
    TUTTI_ASSERT(count <= available && count <= into.size() + ahead.size());
    TUTTI_ASSERT(told_ <= taken_);
    told_ = taken_;
    in_.taken.store(taken_, std::memory_order_release);
    arena_->ring_doorbell(peer_);
    return count;
}

// The bytes written before the end are there by then.
StreamState RingStream::state() const noexcept {
    if (in_.ended.load(std::memory_order_acquire) == 0) return StreamState::open;
    const MessageSlot* slot = nullptr;
    return readable_end(slot) == taken_ && slot == nullptr ? StreamState::ended : StreamState::open;
}

// The memory stays with the reader.
bool RingStream::end() {
    out_.ended.store(1, std::memory_order_release);
    arena_->ring_doorbell(peer_);
    return true;
}

Arrival RingStream::next(ShortMessage& message) {
    const MessageSlot* slot = nullptr;
    if (readable_end(slot) != taken_) return Arrival::bytes;
    if (slot == nullptr) return Arrival::nothing;
    message = slot->message;
    return Arrival::short_message;
}

void RingStream::take(std::byte* into) {
    TUTTI_ASSERT(told_messages_ <= received_ && told_ <= taken_);
    const MessageSlot& slot = in_.messages[received_ % RingControl::slots];
    const std::size_t length = slot.message.length;
    TUTTI_ASSERT(into != nullptr || length == 0);
    if (length > MessageSlot::inline_bytes)
        taken_ += get({into, length}, taken_);
    else if (length > 0)
        std::memcpy(into, slot.payload.data(), length);
    ++received_;
    // The writer has room for more messages than this; it need not hear of each.
    if (received_ - told_messages_ < RingControl::slots / 4 && taken_ - told_ < capacity_ / 4) return;
    told_messages_ = received_;
    told_ = taken_;
    in_.slots_taken.store(received_, std::memory_order_release);
    in_.taken.store(taken_, std::memory_order_release);
    arena_->ring_doorbell(peer_);
}

}  // namespace tutti::transport
