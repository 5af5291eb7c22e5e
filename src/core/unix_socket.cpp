#include "core/unix_socket.hpp"

#include "core/assert.hpp"
#include "core/patience.hpp"
#include "core/socket.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace tutti::net {
namespace {

using namespace std::chrono_literals;

std::string error_text(int error) {
    return std::system_category().message(error);
}

/// Length of the address: abstract names count their bytes, not up to a zero.
socklen_t unix_address(std::string_view name, sockaddr_un& address) {
    address = {};
    address.sun_family = AF_UNIX;
    if (name.empty() || name.size() + 1 > sizeof address.sun_path) {
        throw InvalidArgument(fmt::format("abstract socket name of {} bytes: expected 1 to {}", name.size(),
                                          sizeof address.sun_path - 1));
    }
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    TUTTI_ASSERT(address.sun_path[0] == '\0');
    return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

ucred peer_credentials(int unix_fd) {
    TUTTI_ASSERT(unix_fd >= 0);
    ucred who{};
    socklen_t size = sizeof who;
    if (::getsockopt(unix_fd, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0) {
        throw DistNetworkError(fmt::format("cannot tell the peer of a Unix socket: {}", error_text(errno)));
    }
    return who;
}

}  // namespace

UniqueFd listen_unix(std::string_view abstract_name, int backlog) {
    TUTTI_ASSERT(backlog > 0);
    sockaddr_un address{};
    const socklen_t size = unix_address(abstract_name, address);
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!fd || ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
        ::listen(fd.get(), backlog) != 0) {
        throw DistNetworkError(
            fmt::format("cannot listen on abstract Unix socket @{}: {}", abstract_name, error_text(errno)),
            {.operation = "listen"});
    }
    return fd;
}

UniqueFd connect_unix(std::string_view abstract_name, const Deadline& deadline, const AbortFlag* abort) {
    const Instant start = Clock::now();
    Clock::duration back_off = 1ms;
    const Patience patience([&] { return fmt::format("a listener at the abstract Unix socket @{}", abstract_name); });
    for (;;) {
        int error = 0;
        if (UniqueFd fd = try_connect_unix(abstract_name, error)) return fd;
        TUTTI_ASSERT(error != 0);
        check_wait(Deadline::never(), abort, "connect");
        // EAGAIN: the listener's queue is full. Refused: nobody listens yet.
        if ((error != ECONNREFUSED && error != EAGAIN) || deadline.expired()) {
            throw DistNetworkError(
                fmt::format("cannot connect to abstract Unix socket @{} (tried for {:.1f} s): {}", abstract_name,
                            std::chrono::duration<double>(Clock::now() - start).count(), error_text(error)),
                {.operation = "connect"});
        }
        pause(back_off, deadline, abort);
        back_off = std::min<Clock::duration>(back_off * 2, 50ms);
    }
}

UniqueFd try_connect_unix(std::string_view abstract_name, int& error) {
    sockaddr_un address{};
    const socklen_t size = unix_address(abstract_name, address);
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    do {
        error = !fd || ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ? errno : 0;
    } while (error == EINTR);
    return error == 0 ? std::move(fd) : UniqueFd();
}

void send_fd(int socket, int fd, const Deadline& deadline, const AbortFlag* abort) {
    TUTTI_ASSERT(socket >= 0 && fd >= 0);
    char byte = 'f';
    iovec data{&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    TUTTI_ASSERT(header != nullptr);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
    while (::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) != 1) {
        if (errno == EAGAIN || errno == EWOULDBLOCK) {
            wait_for(socket, POLLOUT, deadline, abort, "send of a descriptor");
        } else if (errno != EINTR) {
            throw DistNetworkError(fmt::format("cannot hand over a descriptor: {}", error_text(errno)));
        }
    }
}

UniqueFd recv_fd(int socket, const Deadline& deadline, const AbortFlag* abort) {
    TUTTI_ASSERT(socket >= 0);
    char byte = 0;
    iovec data{&byte, 1};
    // Room for several, so that an unexpected second one is seen and closed.
    alignas(cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))];
    while (true) {
        msghdr message{};
        message.msg_iov = &data;
        message.msg_iovlen = 1;
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        const ssize_t got = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            wait_for(socket, POLLIN, deadline, abort, "receipt of a descriptor");
            continue;
        }
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) {
            throw DistNetworkError(
                fmt::format("cannot receive a descriptor: {}",
                            got == 0 ? std::string("connection closed by peer") : error_text(errno)));
        }
        std::vector<UniqueFd> received;
        for (cmsghdr* at = CMSG_FIRSTHDR(&message); at != nullptr; at = CMSG_NXTHDR(&message, at)) {
            if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_RIGHTS) continue;
            const std::size_t count = (at->cmsg_len - CMSG_LEN(0)) / sizeof(int);
            for (std::size_t i = 0; i < count; ++i) {
                int fd = -1;
                std::memcpy(&fd, CMSG_DATA(at) + i * sizeof(int), sizeof fd);
                received.emplace_back(fd);
            }
        }
        if (received.size() != 1) {
            throw DistNetworkError(
                fmt::format("cannot receive a descriptor: the peer sent {} instead of one", received.size()));
        }
        TUTTI_ASSERT(received.front().get() >= 0);
        return std::move(received.front());
    }
}

uid_t peer_uid(int unix_fd) {
    return peer_credentials(unix_fd).uid;
}
pid_t peer_pid(int unix_fd) {
    return peer_credentials(unix_fd).pid;
}

UniqueFd bind_unix_datagrams(std::string_view abstract_name) {
    sockaddr_un address{};
    const socklen_t size = unix_address(abstract_name, address);
    UniqueFd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const int on = 1;
    if (!fd || ::setsockopt(fd.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0 ||
        ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0) {
        throw DistNetworkError(
            fmt::format("cannot receive datagrams as abstract Unix socket @{}: {}", abstract_name, error_text(errno)),
            {.operation = "bind"});
    }
    return fd;
}

bool send_unix_datagram(std::string_view abstract_name, std::string_view bytes) noexcept {
    try {
        sockaddr_un address{};
        const socklen_t size = unix_address(abstract_name, address);
        const UniqueFd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
        for (int turn = 0; fd && turn < 5; ++turn) {
            if (::sendto(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL,
                         reinterpret_cast<const sockaddr*>(&address), size) >= 0)
                return true;
            if (errno != EAGAIN && errno != EINTR) return false;
            std::this_thread::sleep_for(1ms);
        }
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): it was not sent
    }
    return false;
}

std::optional<std::string> take_unix_datagram(int fd) {
    TUTTI_ASSERT(fd >= 0);
    std::string bytes(std::size_t{1} << 16, '\0');
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(ucred))> control;
    for (;;) {
        iovec part{bytes.data(), bytes.size()};
        msghdr message{};
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        message.msg_control = control.data();
        message.msg_controllen = control.size();
        const ssize_t got = ::recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return std::nullopt;
        ucred sender{};
        sender.uid = static_cast<uid_t>(-1);
        for (cmsghdr* item = CMSG_FIRSTHDR(&message); item != nullptr; item = CMSG_NXTHDR(&message, item)) {
            if (item->cmsg_level == SOL_SOCKET && item->cmsg_type == SCM_CREDENTIALS)
                std::memcpy(&sender, CMSG_DATA(item), sizeof sender);
        }
        if (sender.uid != ::geteuid() && sender.uid != 0) continue;
        TUTTI_ASSERT(static_cast<std::size_t>(got) <= bytes.size());
        bytes.resize(static_cast<std::size_t>(got));
        return bytes;
    }
}

}  // namespace tutti::net
