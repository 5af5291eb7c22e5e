// ZmqStream: one rank's bytes to and from a peer, in chunks that the connector's thread carries as messages of ZeroMQ.
//
// Chunks are numbered, since ZeroMQ says nothing when it has lost messages with a connection that broke.
//
// Threads: as ChunkStream says.
#pragma once

#include "common/chunk_stream.hpp"

#include <cstdint>
#include <deque>
#include <span>
#include <vector>
#include <zmq.hpp>

namespace tutti::backends::zeromq {

/// In front of every chunk. Both sides are the same kind of machine, so it travels as it lies in memory.
struct Header {
    using Kind = ChunkStream::Kind;
    Kind kind = Kind::bytes;
    std::uint32_t unused = 0;
    std::uint64_t number = 0;  ///< of the sender's chunks to this peer, from 0 on
};

/// Shared by the streams of a rank and the connector's thread.
struct ZmqDesk final : Desk {
    bool has_work = false;
    bool stops = false;
    Bell bell;  // wakes the connector's thread

    /// There is something to do for the connector's thread. Under the mutex.
    void call() {
        has_work = true;
        bell.set(true);
    }
    void no_longer_full() override { call(); }
};

class ZmqStream final : public ChunkStream {
 public:
    explicit ZmqStream(ZmqDesk& desk) : ChunkStream(desk), desk_(desk) {}

    // For the connector's thread, under the desk's mutex.
    struct Chunk {
        Header header;
        std::vector<std::byte> bytes;
    };
    bool has_outgoing() const noexcept { return !outgoing_.empty(); }
    Chunk take_outgoing();
    void take_incoming(const Header& header, zmq::message_t bytes);

 private:
    void send(std::size_t lane, Kind kind, std::span<const std::byte> header,
              std::span<const std::byte> payload) override;
    void drop() noexcept override { outgoing_.clear(); }

    ZmqDesk& desk_;
    std::deque<Chunk> outgoing_;
    std::uint64_t sent_ = 0, received_ = 0;  // chunks
};

}  // namespace tutti::backends::zeromq
