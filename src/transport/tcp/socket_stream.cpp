#include "transport/tcp/socket_stream.hpp"

#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace tutti::transport {

void SocketStream::connected(UniqueFd fd) {
    congestion_.apply(fd.get());
    made_ = std::move(fd);
    settled_ = true;
    out_ = made_.get();
    if (in_ < 0) in_ = out_;
}

void SocketStream::accepted(UniqueFd fd) {
    if (accepted_) return;  // a peer connects once
    congestion_.apply(fd.get());
    accepted_ = std::move(fd);
    in_ = accepted_.get();
    if (settled_) return;
    settled_ = true;
    out_ = in_;
}

void SocketStream::close(std::string reason) {
    if (closed_) return;
    closed_ = true;
    reason_ = std::move(reason);
}

std::size_t SocketStream::write(std::span<const std::byte> header, std::span<const std::byte> payload) {
    if (out_ < 0 || closed_) return 0;
    iovec parts[2] = {{const_cast<std::byte*>(header.data()), header.size()},
                      {const_cast<std::byte*>(payload.data()), payload.size()}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    const ssize_t count = ::sendmsg(out_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count >= 0) return static_cast<std::size_t>(count);
    // What the peer sent before it closed can still be read.
    if (errno != EAGAIN && errno != EINTR) out_ = -1;
    return 0;
}

std::size_t SocketStream::read(std::span<std::byte> into, std::span<std::byte> ahead) {
    if (in_ < 0 || closed_ || into.empty()) return 0;
    iovec parts[2] = {{into.data(), into.size()}, {ahead.data(), ahead.size()}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    const ssize_t count =
        ahead.empty() ? ::recv(in_, into.data(), into.size(), MSG_DONTWAIT) : ::recvmsg(in_, &message, MSG_DONTWAIT);
    if (count > 0) return static_cast<std::size_t>(count);
    if (count == 0)
        close("it closed the connection");
    else if (errno != EAGAIN && errno != EINTR)
        close(std::strerror(errno));
    return 0;
}

}  // namespace tutti::transport
