// ChunkStream: a stream over a library that carries messages. Bytes go in chunks, each a message of the library; this
// class cuts them, keeps those that have come until the rank reads them, and bounds both. What the library does is in
// the classes that derive from it.
//
// A library with several ways between two ranks (lanes) gets the chunks in turn, and they are put in order again here.
// The peer's transport acknowledges an end, whatever its rank is doing: all that came before it has arrived then. (A
// library that delivers what it has sent needs none of that.)
//
// Cost: each byte is copied once on either side.
// Threads: one at a time of the rank's, beside those of the transport, which call the functions that say so.
#pragma once

#include "common/bell.hpp"

#include <tutti/transport.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace tutti::backends {

/// Shared by the streams of a rank and the transport's threads.
struct Desk {
    std::mutex mutex;        // guards all of the streams' state, and `unread`
    std::size_t unread = 0;  // bytes that have come, of all streams

    static constexpr std::size_t unread_max = std::size_t{16} << 20;  ///< then no more are taken from the library
    Desk() = default;
    virtual ~Desk() = default;
    Desk(const Desk&) = delete;
    Desk& operator=(const Desk&) = delete;
    bool is_full() const noexcept { return unread >= unread_max; }
    /// The rank has read; under the mutex.
    virtual void no_longer_full() {}
};

class ChunkStream : public transport::Stream {
 public:
    enum class Kind : std::uint32_t {
        bytes = 1,
        end,           ///< nothing more comes
        acknowledged,  ///< the end has arrived, and all before it
    };
    /// Of one chunk, at most: what a rank writes in one turn, with its header.
    static constexpr std::size_t chunk_bytes = std::size_t{257} << 10;
    static constexpr std::size_t outgoing_bytes = 4 * chunk_bytes;  ///< that the library has not sent, at most

    /// `lanes`: equally many on all ranks.
    explicit ChunkStream(Desk& desk, std::size_t lanes = 1) : desk_(desk), arrived_(lanes) {}

    std::size_t write(std::span<const std::byte> header, std::span<const std::byte> payload) override;
    std::size_t read(std::span<std::byte> into, std::span<std::byte> ahead) override;
    transport::StreamState state() const noexcept override;
    bool end() override;
    void close() noexcept override;
    bool delivered() const noexcept override;
    std::string reason() const override;
    void pollables(bool output, std::vector<transport::Pollable>& into) const override;
    /// Whether anything has gone over it.
    bool is_used() const;

    // For the transport, under the desk's mutex.
    /// A chunk has come by a lane, after those that came by it before. `owner` keeps the bytes.
    void arrived(std::size_t lane, Kind kind, std::shared_ptr<const void> owner, std::span<const std::byte> bytes);
    /// It has broken. Only the first reason counts.
    void fail(const std::string& why);
    bool is_closed() const noexcept { return closed_ || !why_.empty(); }
    /// Whether the peer needs nothing more: it has all bytes and the end behind them. What may be under way is the
    /// answer to its own end, and this rank's end tells it enough.
    bool has_arrived() const noexcept { return end_is_acknowledged_; }

 protected:
    /// Gives the library a chunk of both parts; under the mutex. Never waits; calls fail() where that cannot be done.
    virtual void send(std::size_t lane, Kind kind, std::span<const std::byte> header,
                      std::span<const std::byte> payload) = 0;
    /// Nothing more need be sent; under the mutex.
    virtual void drop() noexcept {}
    /// Whether the end of a peer is answered.
    virtual bool acknowledges_ends() const noexcept { return true; }
    /// So many bytes of chunks have left: there is room for others; under the mutex.
    void sent(std::size_t bytes);
    Desk& desk() const noexcept { return desk_; }

 private:
    struct Chunk {
        Kind kind;
        std::shared_ptr<const void> owner;
        std::span<const std::byte> bytes;  // that have not been read
    };

    void send_next(Kind kind, std::span<const std::byte> header = {}, std::span<const std::byte> payload = {});
    void take(Chunk chunk);
    void unread_less(std::size_t bytes);
    void ring() noexcept { bell_.set(!incoming_.empty() || peer_has_ended_ || !why_.empty() || has_room_news_); }

    Desk& desk_;
    std::size_t waiting_bytes_ = 0;
    std::size_t sent_ = 0, received_ = 0;     // chunks
    std::vector<std::deque<Chunk>> arrived_;  // by lane: before others that come first
    std::deque<Chunk> incoming_;
    bool has_come_ = false;  // a chunk
    bool wants_room_ = false, has_room_news_ = false;
    bool ends_ = false, end_is_acknowledged_ = false;
    bool peer_has_ended_ = false, closed_ = false;
    std::string why_;  // it has broken
    Bell bell_;        // wakes the rank's thread
};

}  // namespace tutti::backends
