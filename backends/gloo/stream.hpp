// GlooStream: one rank's bytes to and from a peer, in chunks that are messages of Gloo's unbound buffers, by all lanes
// in turn. A chunk begins with its header and has the slot of its stream.
//
// Gloo tells only a thread that waits for it that a chunk has left: so a stream has a thread, from its first chunk on.
//
// Threads: as ChunkStream says.
#pragma once

#include "common/chunk_stream.hpp"
#include "gloo/library.hpp"

#include <condition_variable>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

namespace tutti::backends::gloo {

using Lanes = std::vector<std::shared_ptr<::gloo::Context>>;
using Buffer = std::unique_ptr<::gloo::transport::UnboundBuffer>;

/// A slot that Gloo's own collectives do not use: theirs have 48 bits.
inline constexpr std::uint64_t chunk_slot = std::uint64_t{1} << 62;
/// Gloo's wait for something that the connector ends.
inline constexpr std::chrono::milliseconds forever = std::chrono::hours(100);

/// In front of every chunk. Both sides are the same kind of machine, so it travels as it lies in memory.
struct ChunkHeader {
    ChunkStream::Kind kind = ChunkStream::Kind::bytes;
    std::uint32_t bytes = 0;  ///< behind it
};

class GlooStream final : public ChunkStream {
 public:
    GlooStream(Desk& desk, const Lanes& lanes, int peer)
        : ChunkStream(desk, lanes.size()), lanes_(lanes), peer_(peer) {}
    /// After stop().
    ~GlooStream() override;

    // For the connector.
    int peer() const noexcept { return peer_; }
    /// Waits until all chunks have left, or it is closed.
    void drain(std::chrono::steady_clock::time_point limit);
    /// Gloo's connections are closed: ends the thread, also where Gloo has forgotten to.
    void stop();

 private:
    struct Outgoing {
        std::unique_ptr<std::byte[]> memory;
        std::size_t bytes;  // without the header
        Buffer buffer;
    };

    void send(std::size_t lane, Kind kind, std::span<const std::byte> header,
              std::span<const std::byte> payload) override;
    void work();

    const Lanes& lanes_;
    const int peer_;
    std::condition_variable changed_;
    std::deque<Outgoing> outgoing_;
    bool stops_ = false;
    std::thread thread_;  // waits until chunks have left
};

}  // namespace tutti::backends::gloo
