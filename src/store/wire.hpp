// The bytes between a TCPStore's client and server; see PROTOCOL.md.
//
// Threads: values; a FrameReader belongs to the thread that reads the connection. It checks each announced length
// against a limit, and its memory grows only with the bytes that arrive.
#pragma once

#include "core/assert.hpp"
#include "store/messages.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::store {

/// The purpose that both ends give in the handshake.
inline constexpr std::string_view store_purpose = "store";

/// The fields of each request; after ";" those of the answer. Numbers never change their meaning.
enum class Op : std::uint8_t {
    set = 1,          ///< key, value
    get = 2,          ///< keys: waits; the values
    add = 3,          ///< key, amount; the sum
    append = 4,       ///< key, value
    check = 5,        ///< keys; 0 or 1
    compare_set = 6,  ///< key, expected, desired; the value
    delete_key = 7,   ///< key; 0 or 1
    num_keys = 8,     ///< the number
    wait = 9,         ///< keys: waits
    multi_set = 10,   ///< key, value, key, value, …
    join = 11,  ///< this client is a worker; the number of workers so far, server's address, local door or nothing
    await_workers = 12,  ///< number of workers: waits for them
    count_workers = 14,  ///< the number of workers so far
    cancel = 13,         ///< the client no longer expects an answer to the request with this id; not answered
    post = 15,           ///< as multi_set, but not answered
    post_pipe = 16,      ///< at the local door: asks for a pipe for posts; answered by one byte and its descriptor
    set_will = 17,       ///< key, value: set when this connection ends, unless the key exists
    // Of a server that may have a standby (standby.hpp):
    witness =
        18,  ///< client, term of its vote or 0, version seen; version, standing, term asked for or 0, address, term
    resume = 19,    ///< client: this connection is that client's from now on
    stand_by = 20,  ///< port: a standby, which listens there, hears the primary on this connection; its number
    follow = 21,    ///< to the standby: client, operation and number of a change, in one field; the body of the request
    term = 22,      ///< to the standby, as a change: term; it has everything, and may take over
    pulse = 23,     ///< to the standby: time
    have = 24,      ///< from the standby: changes so far, time of the last pulse, whether it has asked for votes
    goes_on = 25,   ///< between the two: the sender goes on without the other
    leave = 26,     ///< as a change: the client has gone
    last_answer = 27,  ///< as a change: the number of the client's last change; its answer
    workers = 28,      ///< as a change: the number of workers so far
    report = 29,       ///< number: the standby that hears the primary there speaks on this connection
    // Answers:
    ok = 64,
    error = 65,   ///< one field: the message
    refused = 66  ///< one field: why the server refuses all requests of this client
};

struct FrameHeader {
    Op op{};
    std::uint64_t request = 0;
    std::uint64_t body_bytes = 0;
    std::uint32_t posts = 0;  ///< how many the client has written to its pipe before, modulo 2^32
};

inline constexpr std::size_t header_bytes = 24;
inline constexpr std::size_t field_header_bytes = 8;
/// Room for a value and a key of the largest size, or many smaller ones.
inline constexpr std::uint64_t max_body_bytes = max_value_bytes + 4 * max_key_bytes;

std::array<char, header_bytes> encode(const FrameHeader& header);
/// nullopt: not a frame header of this protocol, or a body over the limit.
std::optional<FrameHeader> decode(std::span<const char, header_bytes> bytes);

std::array<char, 8> encode_number(std::uint64_t number);
std::optional<std::uint64_t> decode_number(std::string_view field);

/// A body is a sequence of fields, each a length and its bytes. nullopt if a length exceeds the body.
std::optional<std::vector<std::string_view>> split_fields(std::string_view body);
/// As above, into a vector whose memory is reused; false if a length exceeds the body.
bool split_fields(std::string_view body, std::vector<std::string_view>& fields);

/// The body of a frame: in the bytes just received or, if it arrived in several pieces, in memory of its own.
class FrameBody {
 public:
    explicit FrameBody(std::string_view bytes) : bytes_(bytes) {}
    explicit FrameBody(std::string& own) : bytes_(own), own_(&own) {}
    std::string_view view() const noexcept { return bytes_; }
    /// Moves the body out; a body in its own memory is not copied.
    std::string take() { return own_ != nullptr ? std::move(*own_) : std::string(bytes_); }

 private:
    std::string_view bytes_;
    std::string* own_ = nullptr;
};

/// Cuts a stream of bytes into frames. A frame that arrives whole is not copied.
class FrameReader {
 public:
    /// Calls on_frame(header, body) for each complete frame; on_frame returns whether to continue. False: the stream
    /// violates the protocol, or on_frame stopped.
    template <class OnFrame>
    bool feed(std::string_view bytes, OnFrame&& on_frame) {
        while (true) {
            if (!take_header(bytes)) return good_;
            const auto missing = header_.body_bytes - body_.size();
            TUTTI_ASSERT(body_.size() <= header_.body_bytes && header_.body_bytes <= max_body_bytes);
            const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(bytes.size(), missing));
            const std::string_view piece = bytes.substr(0, count);
            bytes.remove_prefix(count);
            const bool whole = count == missing;
            if (whole && body_.empty()) {
                header_size_ = 0;
                if (!on_frame(header_, FrameBody(piece))) return false;
                continue;
            }
            body_.append(piece);
            if (!whole) return true;
            header_size_ = 0;
            const bool more = on_frame(header_, FrameBody(body_));
            body_ = {};
            if (!more) return false;
        }
    }

 private:
    /// True when a header is complete.
    bool take_header(std::string_view& bytes);

    std::array<char, header_bytes> raw_{};
    std::size_t header_size_ = 0;
    FrameHeader header_;
    std::string body_;
    bool good_ = true;
};

}  // namespace tutti::store
