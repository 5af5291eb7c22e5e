// SocketStream: a stream over TCP.
//
// One connection serves both directions, so that acknowledgements travel with the data of the other side. Either rank
// may make it. When both do so at the same time there are two: each rank then writes on the one that it made. What a
// rank writes on never changes, so that bytes keep their order.
#pragma once

#include "core/unique_fd.hpp"
#include "transport/stream.hpp"
#include "transport/tcp/congestion.hpp"

#include <utility>

namespace tutti::transport {

class SocketStream final : public Stream {
 public:
    explicit SocketStream(Congestion congestion) : congestion_(std::move(congestion)) {}
    std::size_t write(std::span<const std::byte> header, std::span<const std::byte> payload) override;
    std::size_t read(std::span<std::byte> into, std::span<std::byte> ahead) override;
    StreamState state() const noexcept override { return closed_ ? StreamState::closed : StreamState::open; }
    std::string reason() const override { return reason_; }
    int poll_fd() const noexcept override { return in_; }
    int poll_output_fd() const noexcept override { return closed_ ? -1 : out_; }

    /// Nothing to write on has been tried yet.
    bool needs_connection() const noexcept { return !settled_; }
    /// A connection that this rank made.
    void connected(UniqueFd fd);
    /// One that the peer made.
    void accepted(UniqueFd fd);
    /// There will be nothing to write on.
    void give_up() noexcept { settled_ = true; }

 private:
    void close(std::string reason);

    Congestion congestion_;
    UniqueFd made_, accepted_;
    int in_ = -1, out_ = -1;  // one of the two
    bool settled_ = false;    // which one is written on, if any
    bool closed_ = false;
    std::string reason_;
};

}  // namespace tutti::transport
