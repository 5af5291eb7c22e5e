// GlooStream: one rank's bytes to and from a peer, in chunks that are messages of Gloo's unbound buffers, by all lanes
// in turn. A chunk begins with its header and has the slot of its stream.
//
// Long messages go beside the chunks, from one rank's memory to the other's, each by a slot of its own.
//
// Threads: as ChunkStream says.
#pragma once

#include "common/chunk_stream.hpp"
#include "gloo/waits.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace tutti::backends::gloo {

using Lanes = std::vector<std::shared_ptr<::gloo::Context>>;

/// A slot that Gloo's own collectives do not use: theirs have 48 bits.
inline constexpr std::uint64_t chunk_slot = std::uint64_t{1} << 62;

/// In front of every chunk. Both sides are the same kind of machine, so it travels as it lies in memory.
struct ChunkHeader {
    ChunkStream::Kind kind = ChunkStream::Kind::bytes;
    std::uint32_t bytes = 0;  ///< behind it
};

class GlooStream final : public ChunkStream {
 public:
    GlooStream(Desk& desk, const Lanes& lanes, int peer)
        : ChunkStream(desk, lanes.size()), lanes_(lanes), peer_(peer) {}

    // For the connector.
    int peer() const noexcept { return peer_; }
    /// transport::Streams::receive() and send(). Null where several lanes share the chunks.
    std::unique_ptr<transport::LibraryCall> receive_long(std::uint64_t number, std::span<std::byte> into);
    std::unique_ptr<transport::LibraryCall> send_long(std::uint64_t number, std::span<const std::byte> bytes);
    /// Waits until all chunks have left, or it is closed.
    void drain(std::chrono::steady_clock::time_point limit);
    /// Gloo's connections are closed: ends the threads, before the destructor.
    void stop();

 private:
    void send(std::size_t lane, Kind kind, std::span<const std::byte> header,
              std::span<const std::byte> payload) override;
    std::unique_ptr<transport::LibraryCall> begin(Waits& waits, Buffer buffer,
                                                  const std::function<void(Buffer&)>& start);
    void break_off() noexcept;

    const Lanes& lanes_;
    const int peer_;
    Waits sends_{desk().mutex, Waits::Until::sent}, receives_{desk().mutex, Waits::Until::received};
};

}  // namespace tutti::backends::gloo
