// For tests: an in-memory stream that accepts and delivers bytes in pieces of the test's choice.
#pragma once

#include "transport/frame.hpp"

#include <tutti/transport.hpp>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <span>
#include <string>
#include <vector>

namespace tutti::test {

using transport::Frame;

class PieceStream : public transport::Stream {
 public:
    /// The pieces that reads return, in order; one read returns bytes of one piece only.
    std::deque<std::vector<std::byte>> pieces;
    /// How many bytes each write takes.
    std::size_t room = SIZE_MAX;
    std::vector<std::byte> written;
    int reads = 0;

    std::size_t write(std::span<const std::byte> header, std::span<const std::byte> payload) override {
        std::size_t left = room;
        for (const auto part : {header, payload}) {
            const auto taken = part.first(std::min(left, part.size()));
            written.insert(written.end(), taken.begin(), taken.end());
            left -= taken.size();
        }
        return room == SIZE_MAX ? header.size() + payload.size() : room - left;
    }
    std::size_t read(std::span<std::byte> into, std::span<std::byte> ahead) override {
        ++reads;
        if (pieces.empty()) return 0;
        std::vector<std::byte>& piece = pieces.front();
        const std::size_t first = std::min(into.size(), piece.size());
        const std::size_t second = std::min(ahead.size(), piece.size() - first);
        std::copy_n(piece.begin(), first, into.begin());
        std::copy_n(piece.begin() + static_cast<std::ptrdiff_t>(first), second, ahead.begin());
        piece.erase(piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(first + second));
        if (piece.empty()) pieces.pop_front();
        return first + second;
    }
    transport::StreamState state() const noexcept override { return transport::StreamState::open; }
    std::string reason() const override { return ""; }
    void close() noexcept override {}
};

/// Bytes that differ from their neighbours; the first is number `from` of the sequence.
inline std::vector<std::byte> numbered(std::size_t count, std::size_t from = 0) {
    std::vector<std::byte> bytes(count);
    for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>((from + i) * 7 + (from + i) / 251);
    return bytes;
}

inline Frame frame_of(std::uint64_t channel, std::size_t length) {
    Frame frame;
    frame.channel = channel;
    frame.length = length;
    return frame;
}

/// A frame followed by its message, as they appear in a stream.
inline std::vector<std::byte> bytes_of(const Frame& frame, std::span<const std::byte> message = {}) {
    const auto header = frame.bytes();
    std::vector<std::byte> bytes(header.begin(), header.end());
    bytes.insert(bytes.end(), message.begin(), message.end());
    return bytes;
}

}  // namespace tutti::test
