#include "launch/held_port.hpp"

#include "core/assert.hpp"
#include "core/socket.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include <cerrno>

namespace tutti::launch {
namespace {

// On all addresses, of both families where there are both: PyTorch's store listens there.
UniqueFd bound_socket(int family, std::uint16_t port) {
    TUTTI_ASSERT(family == AF_INET || family == AF_INET6);
    UniqueFd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1, off = 0;
    if (!fd || ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0) return {};
    sockaddr_in6 six{};
    six.sin6_family = AF_INET6;
    six.sin6_port = htons(port);
    sockaddr_in four{};
    four.sin_family = AF_INET;
    four.sin_port = htons(port);
    const bool is_six = family == AF_INET6;
    if (is_six) ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    const auto* address = is_six ? reinterpret_cast<const sockaddr*>(&six) : reinterpret_cast<const sockaddr*>(&four);
    if (::bind(fd.get(), address, is_six ? sizeof six : sizeof four) != 0) return {};
    return fd;
}

}  // namespace

HeldPort::HeldPort(std::uint16_t wanted) : socket_(bound_socket(AF_INET6, wanted)) {
    if (!socket_ && errno != EADDRINUSE) socket_ = bound_socket(AF_INET, wanted);
    if (!socket_) {
        throw DistNetworkError(
            fmt::format("tutti run: --master-port {}: a server of the ranks could not listen there: {}{}", wanted,
                        ::strerror(errno), errno == EADDRINUSE ? "; another job may be using it, choose another" : ""));
    }
    number_ = net::local_address(socket_.get()).port;
    TUTTI_ASSERT(number_ != 0 && (wanted == 0 || number_ == wanted));
}

}  // namespace tutti::launch
