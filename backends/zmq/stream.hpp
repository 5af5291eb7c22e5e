// ZmqStream: one rank's bytes to and from a peer, in chunks that the connector's thread carries as messages of ZeroMQ.
//
// Chunks are numbered, since ZeroMQ says nothing when it has lost messages with a connection that broke. An end is
// acknowledged by the peer's thread, whatever its rank is doing: all that came before it has arrived then.
//
// Threads: one at a time of the rank's, beside the connector's, which calls the functions that say so.
#pragma once

#include <tutti/transport.hpp>

#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <vector>
#include <zmq.hpp>

namespace tutti::backends::zeromq {

/// In front of every chunk. Both sides are the same kind of machine, so it travels as it lies in memory.
struct Header {
    enum class Kind : std::uint32_t {
        bytes = 1,
        end,           ///< nothing more comes
        acknowledged,  ///< the end has arrived, and all before it
    };
    Kind kind = Kind::bytes;
    std::uint32_t unused = 0;
    std::uint64_t number = 0;  ///< of the sender's chunks to this peer, from 0 on
};

/// A descriptor that one thread makes readable to wake another.
class Bell {
 public:
    Bell();
    ~Bell();
    Bell(const Bell&) = delete;
    Bell& operator=(const Bell&) = delete;
    int fd() const noexcept { return fd_; }
    void set(bool rings) noexcept;

 private:
    const int fd_;
    bool rings_ = false;
};

/// Shared by the streams of a rank and the connector's thread.
struct Desk {
    std::mutex mutex;  // guards all of the streams' state, and the members below
    bool has_work = false;
    bool stops = false;
    std::size_t unread = 0;  // bytes that have come, of all streams
    Bell bell;               // wakes the connector's thread

    /// There is something to do for the connector's thread. Under the mutex.
    void call() {
        has_work = true;
        bell.set(true);
    }
};

class ZmqStream final : public transport::Stream {
 public:
    explicit ZmqStream(Desk& desk) : desk_(desk) {}

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

    // For the connector's thread, under the desk's mutex.
    struct Chunk {
        Header header;
        std::vector<std::byte> bytes;
    };
    bool has_outgoing() const noexcept { return !outgoing_.empty(); }
    Chunk take_outgoing();
    void take_incoming(const Header& header, zmq::message_t bytes);
    bool is_closed() const noexcept { return closed_; }
    void fail(const std::string& why);

    static constexpr std::size_t chunk_bytes = std::size_t{256} << 10;   ///< of one message, at most
    static constexpr std::size_t outgoing_bytes = std::size_t{1} << 20;  ///< that wait for the thread, at most
    static constexpr std::size_t unread_bytes = std::size_t{16} << 20;   ///< of all streams: then no more are taken

 private:
    void append(std::span<const std::byte> bytes);
    void queue(Header::Kind kind);
    void ring() noexcept { bell_.set(!incoming_.empty() || peer_has_ended_ || !why_.empty() || has_room_news_); }

    Desk& desk_;
    std::deque<Chunk> outgoing_;
    std::size_t waiting_bytes_ = 0;          // of outgoing_
    std::uint64_t sent_ = 0, received_ = 0;  // chunks
    std::deque<zmq::message_t> incoming_;
    std::size_t read_ = 0;  // bytes of the first of them
    bool wants_room_ = false, has_room_news_ = false;
    bool ends_ = false, end_is_acknowledged_ = false;
    bool peer_has_ended_ = false, closed_ = false;
    std::string why_;  // it has broken
    Bell bell_;        // wakes the rank's thread
};

}  // namespace tutti::backends::zeromq
