// MpiStream: one rank's bytes to and from a peer, in chunks that are MPI messages; the tag is the kind of the chunk.
//
// Threads: as ChunkStream says. Every look at it lets MPI go on, in the thread that looks.
#pragma once

#include "common/chunk_stream.hpp"
#include "mpi/post.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace tutti::backends::mpi {

class MpiStream final : public ChunkStream {
 public:
    MpiStream(Post& post, int peer) : ChunkStream(post.desk()), post_(post), peer_(peer) {}

    std::size_t write(std::span<const std::byte> header, std::span<const std::byte> payload) override;
    std::size_t read(std::span<std::byte> into, std::span<std::byte> ahead) override;
    bool look_takes_call() const noexcept override { return true; }
    /// MPI delivers what it has sent, whether or not the peer looks.
    bool delivered() const noexcept override;
    void pollables(bool output, std::vector<transport::Pollable>& into) const override;

    // For the post, under the desk's mutex.
    /// A chunk has left.
    void left(std::size_t bytes);

 private:
    void send(std::size_t lane, Kind kind, std::span<const std::byte> header,
              std::span<const std::byte> payload) override;
    bool acknowledges_ends() const noexcept override { return false; }

    Post& post_;
    const int peer_;
    int under_way_ = 0;  // chunks
    bool has_end_ = false;
};

}  // namespace tutti::backends::mpi
