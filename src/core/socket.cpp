#include "core/socket.hpp"

#include "core/assert.hpp"
#include "core/log.hpp"
#include "core/names.hpp"
#include "core/patience.hpp"
#include "core/text.hpp"

#include <tutti/error.hpp>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <system_error>
#include <thread>
#include <vector>

namespace tutti::net {
namespace {

using namespace std::chrono_literals;

std::string reason(int error) {
    return std::system_category().message(error);
}

double seconds_since(Instant start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

void set_no_delay(int fd) {
    TUTTI_ASSERT(fd >= 0);
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

Address to_address(const sockaddr_storage& storage) {
    char text[INET6_ADDRSTRLEN] = "";
    if (storage.ss_family == AF_INET) {
        const auto& in = reinterpret_cast<const sockaddr_in&>(storage);
        ::inet_ntop(AF_INET, &in.sin_addr, text, sizeof text);
        return {text, ntohs(in.sin_port)};
    }
    if (storage.ss_family == AF_INET6) {
        const auto& in6 = reinterpret_cast<const sockaddr_in6&>(storage);
        if (IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr)) {
            ::inet_ntop(AF_INET, in6.sin6_addr.s6_addr + 12, text, sizeof text);
            return {text, ntohs(in6.sin6_port)};
        }
        ::inet_ntop(AF_INET6, &in6.sin6_addr, text, sizeof text);
        std::string host = text;
        // A link-local address means nothing without its interface.
        if (IN6_IS_ADDR_LINKLOCAL(&in6.sin6_addr)) host += fmt::format("%{}", in6.sin6_scope_id);
        return {host, ntohs(in6.sin6_port)};
    }
    return {};
}

template <class Function>
Address address_by(Function function, int fd, const char* which) {
    TUTTI_ASSERT(fd >= 0);
    sockaddr_storage storage{};
    socklen_t size = sizeof storage;
    if (function(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0) {
        throw DistNetworkError(fmt::format("cannot tell the {} address of a socket: {}", which, reason(errno)));
    }
    TUTTI_ASSERT(size <= sizeof storage);
    return to_address(storage);
}

/// A connect to a free port of this host may reach itself when the kernel picks that very port.
bool connected_to_itself(int fd) {
    return local_address(fd) == peer_address(fd);
}

/// One attempt; returns 0 or the errno.
int try_connect(const SocketAddress& target, const Deadline& attempt, const Deadline& whole, const AbortFlag* abort,
                UniqueFd& result) {
    TUTTI_ASSERT(target.size > 0 && !result);
    UniqueFd fd(::socket(target.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!fd) return errno;
    if (::connect(fd.get(), target.get(), target.size) != 0) {
        if (errno != EINPROGRESS && errno != EINTR) return errno;
        while (true) {
            pollfd item{fd.get(), POLLOUT, 0};
            const int ready = ::poll(&item, 1, attempt.poll_ms(wait_slice));
            if (ready > 0) break;
            if (attempt.expired()) return ETIMEDOUT;
            check_wait(Deadline::never(), abort, "connect");
            if (whole.expired()) return ETIMEDOUT;
        }
        if (const int error = connect_error(fd.get()); error != 0) return error;
    }
    set_no_delay(fd.get());
    try {
        if (connected_to_itself(fd.get())) return ECONNREFUSED;
    } catch (const DistNetworkError&) {
        return ECONNREFUSED;  // reset between connect and the question
    }
    result = std::move(fd);
    return 0;
}

/// One attempt; returns 0 or the errno.
int try_listen(const SocketAddress& target, int backlog, UniqueFd& result) {
    TUTTI_ASSERT(target.size > 0 && backlog > 0);
    UniqueFd fd(::socket(target.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!fd) return errno;
    const int on = 1;
    const int off = 0;
    if (target.family() == AF_INET6) ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        ::bind(fd.get(), target.get(), target.size) != 0 || ::listen(fd.get(), backlog) != 0) {
        return errno;
    }
    result = std::move(fd);
    return 0;
}

bool worth_another_try(int error) {
    switch (error) {
        case ECONNREFUSED:
        case ECONNRESET:
        case ECONNABORTED:
        case ETIMEDOUT:
        case EHOSTUNREACH:
        case ENETUNREACH:
        case ENETDOWN:
        case EHOSTDOWN:
        case EADDRNOTAVAIL:
        case EAGAIN:
        case EPIPE: return true;
        default: return false;
    }
}

[[noreturn]] void connect_failed(const Address& address, const std::string& cause, Instant start, std::string hint) {
    TUTTI_ASSERT(!cause.empty());
    ErrorContext context{.operation = "connect"};
    context.elapsed = Clock::now() - start;
    context.hint = std::move(hint);
    throw DistNetworkError(
        fmt::format("cannot connect to {} (tried for {:.1f} s): {}", to_string(address), seconds_since(start), cause),
        context);
}

/// " with 10.0.0.1:29500", " with process 4711", or nothing where there is no peer.
std::string peer_of(int fd) {
    sockaddr_storage storage{};
    socklen_t size = sizeof storage;
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return {};
    ucred who{};
    size = sizeof who;
    if (storage.ss_family != AF_UNIX) return " with " + to_string(to_address(storage));
    if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0) return {};
    return fmt::format(" with process {}", who.pid);
}

}  // namespace

std::string to_string(const Address& address) {
    const bool v6 = address.host.find(':') != std::string::npos;
    return v6 ? fmt::format("[{}]:{}", address.host, address.port) : fmt::format("{}:{}", address.host, address.port);
}

std::optional<Address> to_address(std::string_view text) {
    const std::size_t colon = std::min(text.rfind(':'), text.size());
    std::string_view host = text.substr(0, colon);
    const auto port = number_in<std::uint16_t>(text.substr(std::min(colon + 1, text.size())));
    if (host.size() > 2 && host.front() == '[' && host.back() == ']')
        host = host.substr(1, host.size() - 2);
    else if (host.empty() || host.find_first_of(":[]") != std::string_view::npos)
        return std::nullopt;
    if (!port || *port == 0) return std::nullopt;
    return Address{std::string(host), *port};
}

UniqueFd listen_tcp(const std::string& host, std::uint16_t port, const Deadline& until_known, int backlog) {
    const Instant start = Clock::now();
    const std::string place = host.empty() ? fmt::format("port {} of every address", port) : to_string({host, port});
    const Patience patience(
        [&] { return fmt::format("the address of {}, to listen there: {}", host, why_unknown(host)); });
    // One socket for both families, where the system has the newer one.
    const Answer answer = await_name(host.empty() ? "::" : host, until_known);
    std::vector<SocketAddress> list = answer.addresses;
    if (host.empty()) list.push_back(*numeric_address({"0.0.0.0", port}));
    if (list.empty()) {
        throw DistNetworkError(
            fmt::format("cannot listen on {} (tried for {:.1f} s): {}", place, seconds_since(start), answer.cause),
            {.operation = "listen", .hint = "give an address of this host"});
    }
    UniqueFd fd;
    int first_errno = 0;
    for (const SocketAddress& address : list) {
        const int failed = try_listen(address.with_port(port), backlog, fd);
        if (failed == 0) return fd;
        const bool no_such_family = host.empty() && address.family() == AF_INET6 && failed != EADDRINUSE;
        if (first_errno == 0 && !no_such_family) first_errno = failed;
        if (host.empty() && first_errno == EADDRINUSE) break;
    }
    TUTTI_ASSERT(first_errno != 0);
    std::string hint;
    if (first_errno == EADDRINUSE) hint = "another job may be using it; choose another port";
    if (first_errno == EADDRNOTAVAIL) hint = "it is not an address of this host";
    if (first_errno == EACCES) hint = "ports below 1024 need privileges; choose another port";
    throw DistNetworkError(
        fmt::format("cannot listen on {}: {}{}{}", place, reason(first_errno), hint.empty() ? "" : ": ", hint),
        {.operation = "listen", .hint = hint});
}

bool is_of_this_host(const std::string& host, const Deadline& until_known) {
    const Instant start = Clock::now();
    const Patience patience([&] { return fmt::format("the address of {}: {}", host, why_unknown(host)); });
    const Answer answer = await_name(host, until_known);
    if (!answer.is_known()) {
        throw DistNetworkError(fmt::format("the address of {} is not known here (tried for {:.1f} s): {}", host,
                                           seconds_since(start), answer.cause),
                               {.operation = "listen", .hint = "check the host's name"});
    }
    return std::ranges::any_of(answer.addresses, [](const SocketAddress& address) {
        const UniqueFd fd(::socket(address.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
        return fd && ::bind(fd.get(), address.get(), address.size) == 0;
    });
}

std::string address_towards(const std::string& host, const Deadline& until_known) {
    static constexpr std::uint16_t any_port = 9;
    for (const SocketAddress& address : await_name(host, until_known).addresses) {
        const UniqueFd fd(::socket(address.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
        const SocketAddress target = address.with_port(any_port);
        if (fd && ::connect(fd.get(), target.get(), target.size) == 0) return local_address(fd.get()).host;
    }
    return {};
}

UniqueFd connect_tcp(const Address& address, const Deadline& deadline, const AbortFlag* abort, Refusal refusal) {
    const Instant start = Clock::now();
    if (address.port == 0) throw InvalidArgument(fmt::format("connect to {}: port 0", to_string(address)));
    if (address.host.empty()) throw InvalidArgument(fmt::format("connect to {}: no host", to_string(address)));
    Clock::duration back_off = 1ms;
    std::string cause = "it does not answer";
    const Patience patience([&] {
        const std::string unknown = why_unknown(address.host);
        return fmt::format("a connection to {}: {}", to_string(address), unknown.empty() ? cause : unknown);
    });
    Deadline limit = deadline;
    for (bool first = true;; first = false) {
        const char* hint = "is the process that listens there running?";
        Clock::duration took{};
        const Answer answer = await_name(address.host, limit, abort, &took);
        if (first && !limit.is_never()) limit = Deadline::at(limit.when() + took);  // the peer's time begins now
        if (!answer.is_known()) connect_failed(address, answer.cause, start, "check the host's name");
        TUTTI_ASSERT(!answer.addresses.empty());
        for (const SocketAddress& one : answer.addresses) {
            // One silent address of several must not use up the time of the others, and a name may get another address.
            const bool last = &one == &answer.addresses.back();
            const Deadline attempt = Deadline::after(std::min<Clock::duration>(limit.remaining(), last ? 10s : 2s));
            UniqueFd fd;
            const int error = try_connect(one.with_port(address.port), attempt, limit, abort, fd);
            if (error == 0) return fd;
            cause = reason(error);
            const bool over = error == ECONNREFUSED && refusal == Refusal::no_longer;
            if (last && (over || !worth_another_try(error))) connect_failed(address, cause, start, "");
        }
        check_wait(Deadline::never(), abort, "connect");
        if (limit.expired()) connect_failed(address, cause, start, hint);
        pause(back_off, limit, abort);
        back_off = std::min<Clock::duration>(back_off * 2, 200ms);
    }
}

int begin_connect(const Address& address, UniqueFd& fd) {
    const auto numeric = numeric_address(address);
    if (!numeric) return EINVAL;
    fd = UniqueFd(::socket(numeric->family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!fd) return errno;
    TUTTI_ASSERT(fd.get() >= 0);
    const linger at_once{1, 0};
    ::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    if (::connect(fd.get(), numeric->get(), numeric->size) == 0 || errno == EINPROGRESS) return 0;
    const int error = errno;
    fd.reset();
    return error;
}

int connect_error(int fd) {
    TUTTI_ASSERT(fd >= 0);
    int error = 0;
    socklen_t size = sizeof error;
    return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

bool refuses(const Address& address, const Deadline& deadline) {
    bool refused = false;
    for (const SocketAddress& one : ask_for(address.host).addresses) {
        UniqueFd fd;
        if (try_connect(one.with_port(address.port), deadline, deadline, nullptr, fd) != ECONNREFUSED) return false;
        refused = true;
    }
    return refused;
}

namespace {

// The next waiting connection; 0, or the errno: EAGAIN where none waits.
int accept_next(int listen_fd, std::optional<UniqueFd>& connection) {
    TUTTI_ASSERT(listen_fd >= 0 && !connection);
    while (true) {
        sockaddr_storage from{};
        socklen_t size = sizeof from;
        const int fd = ::accept4(listen_fd, reinterpret_cast<sockaddr*>(&from), &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            if (from.ss_family != AF_UNIX) set_no_delay(fd);
            connection.emplace(fd);
            return 0;
        }
        // The connection died before it was accepted; accept(2) says to go on.
        if (errno == EINTR || errno == ECONNABORTED || errno == EPROTO) continue;
        const bool shut_down = errno == EINVAL;
        return shut_down || errno == EWOULDBLOCK ? EAGAIN : errno;
    }
}

}  // namespace

std::optional<UniqueFd> try_accept(int listen_fd) {
    std::optional<UniqueFd> connection;
    const int error = accept_next(listen_fd, connection);
    if (error != 0 && error != EAGAIN) {
        TUTTI_DEBUG("cannot accept a connection: {}", reason(error));
        std::this_thread::sleep_for(5ms);
    }
    return connection;
}

UniqueFd accept_one(int listen_fd, const Deadline& deadline, const AbortFlag* abort, const char* operation) {
    while (true) {
        std::optional<UniqueFd> connection;
        const int error = accept_next(listen_fd, connection);
        TUTTI_ASSERT((error == 0) == connection.has_value());
        if (error == 0) return std::move(*connection);
        if (error != EAGAIN) {
            throw DistNetworkError(fmt::format("cannot accept a connection: {}", reason(error)),
                                   {.operation = "accept"});
        }
        wait_for(listen_fd, POLLIN, deadline, abort, operation);
    }
}

// While nothing is under way the probes come at even intervals; the kernel repeats data under way ever more seldom.
void end_when_silent(int fd, std::chrono::milliseconds limit) {
    TUTTI_ASSERT(fd >= 0 && limit.count() > 0);
    const int on = 1, probes_max = 127;  // the limit is a time
    const int interval_s = static_cast<int>(std::clamp<std::int64_t>(limit.count() / 13'000, 1, 32'767));
    const auto limit_ms = static_cast<unsigned>(limit.count());
    ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &interval_s, sizeof interval_s);
    ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
    ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes_max, sizeof probes_max);
    ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit_ms, sizeof limit_ms);
}

void end_by_reset(int fd) noexcept {
    TUTTI_ASSERT(fd >= 0);
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

Address local_address(int fd) {
    return address_by(::getsockname, fd, "local");
}
Address peer_address(int fd) {
    return address_by(::getpeername, fd, "peer's");
}

std::optional<std::chrono::microseconds> round_trip(int fd) noexcept {
    TUTTI_ASSERT(fd >= 0);
    tcp_info info{};
    socklen_t size = sizeof info;
    if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return std::nullopt;
    return std::chrono::microseconds(info.tcpi_min_rtt);
}

bool is_loopback(const std::string& host) {
    if (host == "localhost") return true;
    const std::vector<SocketAddress> list = ask_for(host).addresses;
    return !list.empty() && std::ranges::all_of(list, [](const SocketAddress& address) {
        if (address.family() == AF_INET) {
            const auto* in = reinterpret_cast<const sockaddr_in*>(address.get());
            return (ntohl(in->sin_addr.s_addr) >> 24U) == 127;
        }
        if (address.family() != AF_INET6) return false;
        const auto* in6 = reinterpret_cast<const sockaddr_in6*>(address.get());
        const bool mapped = IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr) && in6->sin6_addr.s6_addr[12] == 127;
        return IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr) || mapped;
    });
}

bool is_multicast(const std::string& host) {
    in_addr v4{};
    if (::inet_pton(AF_INET, host.c_str(), &v4) == 1) return IN_MULTICAST(ntohl(v4.s_addr));
    in6_addr v6{};
    return ::inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IN6_IS_ADDR_MULTICAST(&v6);
}

short wait_for(int fd, short events, const Deadline& deadline, const AbortFlag* abort, const char* operation) {
    TUTTI_ASSERT(fd >= 0 && events != 0 && operation != nullptr);
    const Patience patience([&] { return operation + peer_of(fd); });
    while (true) {
        pollfd item{fd, events, 0};
        if (::poll(&item, 1, deadline.poll_ms(wait_slice)) > 0) return item.revents;
        check_wait(deadline, abort, operation);
    }
}

void pause(Clock::duration length, const Deadline& deadline, const AbortFlag* abort) {
    TUTTI_ASSERT(length.count() >= 0);
    const Deadline end = Deadline::after(std::min(length, deadline.remaining()));
    while (!end.expired()) {
        check_wait(Deadline::never(), abort, "connect");
        ::poll(nullptr, 0, end.poll_ms(wait_slice));
    }
}

bool sleep_unless_readable(int fd, Clock::duration duration) {
    TUTTI_ASSERT(fd >= -1 && duration.count() >= 0);
    const auto seconds = std::chrono::floor<std::chrono::seconds>(duration);
    const timespec length{seconds.count(), std::chrono::nanoseconds(duration - seconds).count()};
    pollfd item{fd, POLLIN, 0};
    return ::ppoll(&item, 1, &length, nullptr) > 0;
}

UniqueFd bind_udp_beside(int tcp_fd) {
    TUTTI_ASSERT(tcp_fd >= 0);
    sockaddr_storage own{};
    socklen_t length = sizeof own;
    if (::getsockname(tcp_fd, reinterpret_cast<sockaddr*>(&own), &length) != 0) return {};
    UniqueFd fd(::socket(own.ss_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!fd || ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&own), length) != 0) return {};
    return fd;
}

void send_datagram(int udp_fd, const Address& to) {
    TUTTI_ASSERT(udp_fd >= 0);
    if (const auto at = numeric_address(to)) (void)!::sendto(udp_fd, "", 1, MSG_NOSIGNAL, at->get(), at->size);
}

void send_all(int fd, std::span<const std::byte> bytes, const Deadline& deadline, const AbortFlag* abort,
              const char* operation) {
    TUTTI_ASSERT(fd >= 0 && operation != nullptr);
    while (!bytes.empty()) {
        const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent >= 0) {
            TUTTI_ASSERT(static_cast<std::size_t>(sent) <= bytes.size());
            bytes = bytes.subspan(static_cast<std::size_t>(sent));
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            wait_for(fd, POLLOUT, deadline, abort, operation);
        } else if (errno == EPIPE || errno == ECONNRESET) {
            throw DistNetworkError(fmt::format("{}: connection closed by peer", operation), {.operation = operation});
        } else if (errno != EINTR) {
            throw DistNetworkError(fmt::format("{}: cannot send: {}", operation, reason(errno)),
                                   {.operation = operation});
        }
    }
}

void recv_all(int fd, std::span<std::byte> bytes, const Deadline& deadline, const AbortFlag* abort,
              const char* operation) {
    TUTTI_ASSERT(fd >= 0 && operation != nullptr);
    while (!bytes.empty()) {
        const ssize_t got = ::recv(fd, bytes.data(), bytes.size(), MSG_DONTWAIT);
        if (got > 0) {
            TUTTI_ASSERT(static_cast<std::size_t>(got) <= bytes.size());
            bytes = bytes.subspan(static_cast<std::size_t>(got));
        } else if (got == 0 || errno == ECONNRESET) {
            throw DistNetworkError(fmt::format("{}: connection closed by peer", operation), {.operation = operation});
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            wait_for(fd, POLLIN, deadline, abort, operation);
        } else if (errno != EINTR) {
            throw DistNetworkError(fmt::format("{}: cannot receive: {}", operation, reason(errno)),
                                   {.operation = operation});
        }
    }
}

}  // namespace tutti::net
