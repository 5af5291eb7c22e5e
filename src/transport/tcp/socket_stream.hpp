// SocketStream: a stream over two TCP connections, one for each direction.
//
// A rank writes on the connection that it made and reads from the one that its peer made: both can begin at any time
// without agreeing on who connects to whom.
#pragma once

#include "core/unique_fd.hpp"
#include "transport/stream.hpp"

namespace tutti::transport {

class SocketStream final : public Stream {
 public:
    std::size_t write(std::span<const std::byte> header, std::span<const std::byte> payload) override;
    std::size_t read(std::span<std::byte> into, std::span<std::byte> ahead) override;
    StreamState state() const noexcept override { return closed_ ? StreamState::closed : StreamState::open; }
    std::string reason() const override { return reason_; }
    int poll_fd() const noexcept override { return in_.get(); }
    int poll_output_fd() const noexcept override { return closed_ ? -1 : out_.get(); }

    bool can_write() const noexcept { return static_cast<bool>(out_); }
    void set_output(UniqueFd fd);
    void set_input(UniqueFd fd) noexcept { in_ = std::move(fd); }

 private:
    void close(std::string reason);
    UniqueFd in_, out_;
    bool closed_ = false;
    std::string reason_;
};

}  // namespace tutti::transport
