#include "transport/frame_reader.hpp"

#include "core/assert.hpp"

#include <algorithm>
#include <cstring>

namespace tutti::transport {

bool FrameReader::look_for_header(Stream& stream) {
    TUTTI_ASSERT(!in_payload_);
    while (bytes_ahead() < sizeof(Frame)) {
        if (drained_) return false;
        std::copy(stage_.begin() + static_cast<std::ptrdiff_t>(begin_),
                  stage_.begin() + static_cast<std::ptrdiff_t>(end_), stage_.begin());
        end_ -= begin_;
        begin_ = 0;
        const auto room = std::span(stage_).subspan(end_);
        const std::size_t count = stream.read(room, {});
        drained_ = count < room.size();
        end_ += count;
    }
    TUTTI_ASSERT(bytes_ahead() >= sizeof(Frame));
    std::memcpy(&header_, stage_.data() + begin_, sizeof(Frame));
    return true;
}

void FrameReader::begin_payload(Transfer* receive, Unexpected* unexpected) noexcept {
    TUTTI_ASSERT(!in_payload_);
    TUTTI_ASSERT(carried_.empty());
    TUTTI_ASSERT((receive == nullptr) != (unexpected == nullptr));
    TUTTI_ASSERT(receive == nullptr || receive->bytes == header_.length);
    TUTTI_ASSERT(unexpected == nullptr || unexpected->frame.length == header_.length);
    receive_ = receive;
    unexpected_ = unexpected;
    payload_done_ = 0;
    in_payload_ = true;
}

void FrameReader::end_payload() noexcept {
    TUTTI_ASSERT(receive_ == nullptr || unexpected_ == nullptr);
    receive_ = nullptr;
    unexpected_ = nullptr;
    in_payload_ = false;
    carried_.clear();
}

// Payload bytes: those read ahead, then the stream's; reads the beginning of the next frame with the last of them.
std::size_t FrameReader::take(Stream& stream, std::span<std::byte> into) {
    TUTTI_ASSERT(in_payload_);
    TUTTI_ASSERT(into.size() <= header_.length - payload_done_);
    if (has_read_ahead()) {
        const std::size_t count = std::min(into.size(), bytes_ahead());
        std::memcpy(into.data(), stage_.data() + begin_, count);
        begin_ += count;
        return count;
    }
    if (drained_) return 0;
    const bool last = header_.length - payload_done_ == into.size();
    const std::span<std::byte> ahead = last ? std::span(stage_) : std::span<std::byte>();
    const std::size_t count = stream.read(into, ahead);
    drained_ = count < into.size() + ahead.size();
    begin_ = 0;
    end_ = count > into.size() ? count - into.size() : 0;
    return std::min(count, into.size());
}

std::size_t FrameReader::read_payload(Stream& stream, std::size_t most, Bounce& bounce) {
    TUTTI_ASSERT(in_payload_);
    TUTTI_ASSERT((receive_ == nullptr) != (unexpected_ == nullptr));
    TUTTI_ASSERT(payload_done_ <= header_.length);
    const std::size_t left = std::min<std::size_t>(most, header_.length - payload_done_);
    if (receive_ != nullptr && receive_->on_bytes) return combine(stream, left, bounce);
    std::byte* const base = receive_ != nullptr ? receive_->target : unexpected_->bytes.get();
    const std::size_t count = take(stream, std::span(base + payload_done_, left));
    TUTTI_ASSERT(count <= left);
    payload_done_ += count;
    if (receive_ != nullptr) receive_->bytes_done = payload_done_;
    return count;
}

// From a buffer that stays in the cache; an element cut in two waits for its rest.
std::size_t FrameReader::combine(Stream& stream, std::size_t most, Bounce& bounce) {
    TUTTI_ASSERT(receive_->element_bytes > 0 && receive_->element_bytes <= Bounce::usual_bytes);
    TUTTI_ASSERT(carried_.size() < receive_->element_bytes);
    TUTTI_ASSERT(carried_.size() <= payload_done_);
    const std::span<std::byte> buffer = bounce.of(Bounce::usual_bytes);
    std::ranges::copy(carried_, buffer.begin());
    const std::size_t before = carried_.size();
    const std::size_t count = take(stream, buffer.subspan(before, std::min(most, Bounce::usual_bytes - before)));
    if (count == 0) return 0;
    const std::size_t have = before + count;
    const std::size_t whole = have / receive_->element_bytes * receive_->element_bytes;
    TUTTI_ASSERT((payload_done_ - before) % receive_->element_bytes == 0);
    receive_->on_bytes(payload_done_ - before, buffer.first(whole));
    carried_.assign(buffer.begin() + static_cast<std::ptrdiff_t>(whole),
                    buffer.begin() + static_cast<std::ptrdiff_t>(have));
    payload_done_ += count;
    TUTTI_ASSERT(carried_.size() < receive_->element_bytes);
    receive_->bytes_done = payload_done_;
    return count;
}

}  // namespace tutti::transport
