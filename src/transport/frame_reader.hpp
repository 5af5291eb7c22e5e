// FrameReader: the frames that come from one peer over its stream, and where their payloads go. Short ones come in one
// read: the header together with the bytes that follow it.
//
// Threads: one at a time.
#pragma once

#include "core/assert.hpp"
#include "transport/frame.hpp"
#include "transport/matching.hpp"
#include "transport/transfer.hpp"

#include <tutti/transport.hpp>

#include <array>
#include <cstddef>
#include <span>
#include <vector>

namespace tutti::transport {

/// Memory that stays in the cache, for values that are combined as they come; one for all peers.
class Bounce {
 public:
    static constexpr std::size_t usual_bytes = std::size_t{64} << 10;
    std::span<std::byte> of(std::size_t bytes) {
        if (memory_.size() < bytes) memory_.resize(bytes);
        return memory_;
    }

 private:
    std::vector<std::byte> memory_;
};

class FrameReader {
 public:
    /// Some bytes of a frame have been read, and not all of it: a stream that ends now has broken off.
    bool is_within_frame() const noexcept { return in_payload_ || has_read_ahead(); }
    bool has_read_ahead() const noexcept { return begin_ != end_; }
    bool in_payload() const noexcept { return in_payload_; }

    /// A turn begins: there may be bytes again.
    void begin_turn() noexcept { drained_ = false; }
    /// Reads ahead as far as it reaches. True when a whole header is there, which header() gives.
    bool look_for_header(Stream& stream);
    std::size_t bytes_ahead() const noexcept {
        TUTTI_ASSERT(begin_ <= end_ && end_ <= stage_.size());
        return end_ - begin_;
    }
    const Frame& header() const noexcept { return header_; }
    /// The next bytes are behind it.
    void pass_header() noexcept {
        TUTTI_ASSERT(!in_payload_);
        TUTTI_ASSERT(bytes_ahead() >= sizeof(Frame));
        begin_ += sizeof(Frame);
    }
    /// A header that came by itself.
    void set_header(const Frame& frame) noexcept {
        TUTTI_ASSERT(!is_within_frame());
        header_ = frame;
    }

    /// Its payload goes to a receive, or to a message that waits for one.
    void begin_payload(Transfer& receive) noexcept { begin_payload(&receive, nullptr); }
    void begin_payload(Unexpected& message) noexcept { begin_payload(nullptr, &message); }
    bool has_whole_payload() const noexcept {
        TUTTI_ASSERT(in_payload_);
        TUTTI_ASSERT(payload_done_ <= header_.length);
        return payload_done_ == header_.length;
    }
    /// Of the payload, at most so many bytes; returns how many.
    std::size_t read_payload(Stream& stream, std::size_t most, Bounce& bounce);
    Transfer* receive() const noexcept { return receive_; }
    Unexpected* unexpected() const noexcept { return unexpected_; }
    void end_payload() noexcept;

 private:
    void begin_payload(Transfer* receive, Unexpected* unexpected) noexcept;
    std::size_t take(Stream& stream, std::span<std::byte> into);
    std::size_t combine(Stream& stream, std::size_t most, Bounce& bounce);

    Frame header_;
    std::array<std::byte, 1024> stage_;
    std::size_t begin_ = 0, end_ = 0;  // of the bytes in the stage that have been read ahead
    bool drained_ = false;             // the last read of this turn brought less than it could take
    bool in_payload_ = false;
    Transfer* receive_ = nullptr;
    Unexpected* unexpected_ = nullptr;
    std::size_t payload_done_ = 0;
    std::vector<std::byte> carried_;  // of an element that is not whole yet
};

}  // namespace tutti::transport
