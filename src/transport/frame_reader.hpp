// FrameReader: reads the frames that a peer sends over its stream, and puts their payloads where they belong. It gets a
// short frame in one read: the header together with the bytes that follow it.
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

/// A buffer that stays in the cache, for values that are combined on arrival; all peers share one.
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
    /// Some but not all bytes of a frame have been read: if the stream ends now, it has broken off.
    bool is_within_frame() const noexcept { return in_payload_ || has_read_ahead(); }
    bool has_read_ahead() const noexcept { return begin_ != end_; }
    bool in_payload() const noexcept { return in_payload_; }

    /// Begins a turn: the stream may have new bytes.
    void begin_turn() noexcept { drained_ = false; }
    /// Reads ahead until a whole header has arrived, which header() then returns. False: the stream has no more bytes
    /// now.
    bool look_for_header(Stream& stream);
    std::size_t bytes_ahead() const noexcept {
        TUTTI_ASSERT(begin_ <= end_ && end_ <= stage_.size());
        return end_ - begin_;
    }
    const Frame& header() const noexcept { return header_; }
    /// Consumes the header, so that the next bytes read are those behind it.
    void pass_header() noexcept {
        TUTTI_ASSERT(!in_payload_);
        TUTTI_ASSERT(bytes_ahead() >= sizeof(Frame));
        begin_ += sizeof(Frame);
    }
    /// Sets a header that arrived without the stream's bytes (as a short message).
    void set_header(const Frame& frame) noexcept {
        TUTTI_ASSERT(!is_within_frame());
        header_ = frame;
    }

    /// The header's payload goes to a receive, or to an unexpected message.
    void begin_payload(Transfer& receive) noexcept { begin_payload(&receive, nullptr); }
    void begin_payload(Unexpected& message) noexcept { begin_payload(nullptr, &message); }
    bool has_whole_payload() const noexcept {
        TUTTI_ASSERT(in_payload_);
        TUTTI_ASSERT(payload_done_ <= header_.length);
        return payload_done_ == header_.length;
    }
    /// Reads at most `most` bytes of the payload; returns how many.
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
    std::size_t begin_ = 0, end_ = 0;  // the bytes in the stage that have been read ahead
    bool drained_ = false;             // the last read of this turn brought less than it could take
    bool in_payload_ = false;
    Transfer* receive_ = nullptr;
    Unexpected* unexpected_ = nullptr;
    std::size_t payload_done_ = 0;
    std::vector<std::byte> carried_;  // the bytes of an element that has not arrived completely
};

}  // namespace tutti::transport
