// Sockets: making, connecting and using TCP sockets, and the waits that core/unix_socket.hpp shares.
//
// Threads: free functions; any thread, one reader and one writer per descriptor at a time. Every descriptor made here
// is non-blocking and closed on exec; nothing here raises SIGPIPE. Every wait takes a Deadline, checks the abort flag
// (may be null) and the interrupt flag at least every wait_slice, and is logged if it is long (core/patience.hpp).
// Errors: DistNetworkError naming the address, the cause and the time spent; Timeout and Aborted from check_wait.
#pragma once

#include "core/deadline.hpp"
#include "core/interrupt.hpp"
#include "core/unique_fd.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tutti::net {

struct Address {
    std::string host;
    std::uint16_t port = 0;
    bool operator==(const Address&) const = default;
};

/// "10.0.0.1:29500", "[::1]:29500".
std::string to_string(const Address& address);
/// The reverse; nothing if `text` is not of this form.
std::optional<Address> to_address(std::string_view text);

/// For listen_tcp(): a deadline in the past, so the resolver is asked once, and an unknown name is an error at once.
inline Deadline one_question() {
    return Deadline::at(Instant::min());
}
/// A socket that listens on `host` (name or literal; empty: every address of IPv4 and IPv6) and `port` (0: any free
/// port). Retries the look-up of an unknown name until `until_known`.
UniqueFd listen_tcp(const std::string& host, std::uint16_t port, const Deadline& until_known = one_question(),
                    int backlog = 512);
/// The meaning of a refused connection: nobody listens there yet (try again), or no longer (fail).
enum class Refusal { not_yet, no_longer };
/// A connected socket with TCP_NODELAY. Until the deadline it tries again, after growing pauses, if the peer is
/// unreachable or refuses (with not_yet) or if its name is not known yet (core/names.hpp). A text that cannot be a
/// host's name fails at once.
UniqueFd connect_tcp(const Address& address, const Deadline& deadline, const AbortFlag* abort,
                     Refusal refusal = Refusal::not_yet);
/// Begins to connect to a numeric address without waiting: `fd` is writable when the attempt has succeeded or failed.
/// Closing `fd` leaves no lingering connection. Returns 0, or the errno if the attempt has failed already.
int begin_connect(const Address& address, UniqueFd& fd);
/// The outcome of begin_connect(): 0, or an errno.
int connect_error(int fd);
/// Whether nobody listens there: each address of the host refuses the connection. False if one does not answer in time.
bool refuses(const Address& address, const Deadline& deadline);
/// The next pending connection (TCP with TCP_NODELAY, or Unix); nullopt if there is none, or the socket was shut down.
/// Where accept(2) fails, as when no descriptor is left, it pauses for 5 ms and returns nullopt: servers keep running,
/// and clients keep waiting.
std::optional<UniqueFd> try_accept(int listen_fd);
/// As try_accept(), but waits for a connection, and throws where accept(2) fails.
UniqueFd accept_one(int listen_fd, const Deadline& deadline, const AbortFlag* abort, const char* operation);

/// Makes a TCP connection with little traffic fail with ETIMEDOUT when the peer's host has not answered for `limit`
/// (give or take limit / 13, at least 1 s). The kernels exchange the probes, so a stopped process does not count as
/// silent. Does nothing to other sockets.
void end_when_silent(int fd, std::chrono::milliseconds limit);

/// The connection's end, also that by the process's death, is a reset: the kernel drops what it has not sent by then.
void end_by_reset(int fd) noexcept;

/// The numeric addresses of the two ends of a TCP socket.
Address local_address(int fd);
Address peer_address(int fd);
/// The shortest round trip that a connected socket has seen; nullopt if it is not a TCP socket.
std::optional<std::chrono::microseconds> round_trip(int fd) noexcept;
/// A peer whose round trip takes that long is far: the way counts, not only what the two kernels do.
inline constexpr std::chrono::microseconds far_round_trip{100};
/// Whether the host is in 127.0.0.0/8, is ::1, or is a name with only such addresses ("localhost").
bool is_loopback(const std::string& host);
/// Whether an address of `host` belongs to this host. DistNetworkError if the name is still unknown at `until_known`.
bool is_of_this_host(const std::string& host, const Deadline& until_known = one_question());
/// The source address of this host's traffic to `host`; empty: there is no route, or the name is still unknown at
/// `until_known`. Sends nothing.
std::string address_towards(const std::string& host, const Deadline& until_known = one_question());
/// A literal in 224.0.0.0/4 or ff00::/8.
bool is_multicast(const std::string& host);

/// Sends or receives all of `bytes`, or throws; errors name `operation`. If the peer has closed the connection:
/// DistNetworkError "… closed by peer".
void send_all(int fd, std::span<const std::byte> bytes, const Deadline& deadline, const AbortFlag* abort,
              const char* operation);
void recv_all(int fd, std::span<std::byte> bytes, const Deadline& deadline, const AbortFlag* abort,
              const char* operation);
/// Waits for `events` (POLLIN, POLLOUT) and returns the events that poll(2) saw.
short wait_for(int fd, short events, const Deadline& deadline, const AbortFlag* abort, const char* operation);

/// Waits for `length`, but not beyond the deadline. Throws Aborted, naming the operation "connect".
void pause(Clock::duration length, const Deadline& deadline, const AbortFlag* abort);
/// Sleeps, but returns true as soon as `fd` is readable. `fd` -1: only sleeps.
bool sleep_unless_readable(int fd, Clock::duration duration);

/// A UDP socket at the address and port of a listening TCP socket; empty if another program has this UDP port.
UniqueFd bind_udp_beside(int tcp_fd);
/// Sends one byte, which may get lost on the way. Sends nothing if `to.host` is not a literal address.
void send_datagram(int udp_fd, const Address& to);

}  // namespace tutti::net
