#include "transport/tcp/socket_stream.hpp"

#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace tutti::transport {

void SocketStream::close(std::string reason) {
    if (closed_) return;
    closed_ = true;
    reason_ = std::move(reason);
}

std::size_t SocketStream::write(std::span<const std::byte> header, std::span<const std::byte> payload) {
    if (!out_ || closed_) return 0;
    iovec parts[2] = {{const_cast<std::byte*>(header.data()), header.size()},
                      {const_cast<std::byte*>(payload.data()), payload.size()}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    const ssize_t count = ::sendmsg(out_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count >= 0) return static_cast<std::size_t>(count);
    // What the peer sent before it closed can still be read.
    if (errno != EAGAIN && errno != EINTR) out_.reset();
    return 0;
}

std::size_t SocketStream::read(std::span<std::byte> into) {
    if (!in_ || closed_ || into.empty()) return 0;
    const ssize_t count = ::recv(in_.get(), into.data(), into.size(), MSG_DONTWAIT);
    if (count > 0) return static_cast<std::size_t>(count);
    if (count == 0)
        close("it closed the connection");
    else if (errno != EAGAIN && errno != EINTR)
        close(std::strerror(errno));
    return 0;
}

}  // namespace tutti::transport
