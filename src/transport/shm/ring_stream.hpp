// RingStream: a stream over two byte rings of an arena.
#pragma once

#include "transport/shm/arena.hpp"
#include "transport/stream.hpp"

namespace tutti::transport {

class RingStream final : public Stream {
 public:
    RingStream(std::shared_ptr<Arena> arena, int local_rank, int local_peer);

    std::size_t write(std::span<const std::byte> header, std::span<const std::byte> payload) override;
    std::size_t read(std::span<std::byte> into, std::span<std::byte> ahead) override;
    StreamState state() const noexcept override { return StreamState::open; }
    std::string reason() const override { return {}; }
    int poll_fd() const noexcept override { return -1; }

 private:
    std::size_t get(std::span<std::byte> into, std::uint64_t at) const;
    std::size_t put(std::span<const std::byte> bytes, std::uint64_t at);

    std::shared_ptr<Arena> arena_;
    int peer_;
    RingControl& out_;
    RingControl& in_;
    std::byte* out_data_;
    std::byte* in_data_;
    std::size_t capacity_;
};

}  // namespace tutti::transport
