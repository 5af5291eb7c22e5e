// Sockets: making, connecting and using TCP sockets, with one notion of waiting (which core/unix_socket.hpp shares).
//
// Threads: free functions; any thread, one reader and one writer per descriptor at a time. Every descriptor
// made here is non-blocking and closed on exec; nothing here raises SIGPIPE. Every wait takes a Deadline and
// looks at the abort flag (may be null) and the interrupt flag at least every wait_slice, and the log reports a long
// one (core/patience.hpp).
// Errors: DistNetworkError naming the address, the cause and the time spent; Timeout and Aborted from check_wait.
#pragma once

#include "core/deadline.hpp"
#include "core/interrupt.hpp"
#include "core/unique_fd.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace tutti::net {

struct Address {
    std::string host;
    std::uint16_t port = 0;
    bool operator==(const Address&) const = default;
};

/// "10.0.0.1:29500", "[::1]:29500".
std::string to_string(const Address& address);

/// The deadline for the look-up of a name that need not be known yet: the resolver is asked once.
inline Deadline one_question() {
    return Deadline::at(Instant::min());
}
/// A socket that listens on `host` (name or literal; empty: every address of IPv4 and IPv6) and `port` (0: any free
/// port). It waits until that name is known.
UniqueFd listen_tcp(const std::string& host, std::uint16_t port, const Deadline& until_known = one_question(),
                    int backlog = 512);
/// The meaning of a refused connection: nobody listens there yet, or no longer.
enum class Refusal { not_yet, no_longer };
/// A connected socket with TCP_NODELAY. It tries a peer again that is unreachable, or refuses and may listen yet, with
/// a growing pause, and asks again for a name that is not known yet (core/names.hpp), until the deadline. What is no
/// name of a host fails at once.
UniqueFd connect_tcp(const Address& address, const Deadline& deadline, const AbortFlag* abort,
                     Refusal refusal = Refusal::not_yet);
/// Begins to connect to a numeric address, and does not wait: `fd` is writable when it has succeeded or failed. Closing
/// it leaves nothing behind. 0, or the errno with which it has failed already.
int begin_connect(const Address& address, UniqueFd& fd);
/// The outcome of begin_connect(): 0, or an errno.
int connect_error(int fd);
/// Whether nobody listens there: the address answers, and says no. False where nothing is known in time.
bool refuses(const Address& address, const Deadline& deadline);
/// The next waiting connection (TCP with TCP_NODELAY, or Unix); nullopt when there is none, or the socket was shut
/// down. Servers go on when this process has no descriptor left: then nullopt after a pause of 5 ms, and clients go on
/// waiting.
std::optional<UniqueFd> try_accept(int listen_fd);
/// As try_accept, but waits for a connection, and throws where no descriptor is left.
UniqueFd accept_one(int listen_fd, const Deadline& deadline, const AbortFlag* abort, const char* operation);

/// Makes a TCP connection with little traffic end with ETIMEDOUT when the other end's host has not answered for that
/// long (give or take a thirteenth of it, at least 1 s). The hosts probe each other meanwhile, so a stopped process
/// does not matter. Does nothing to other sockets.
void end_when_silent(int fd, std::chrono::milliseconds limit);

/// The numeric addresses of the two ends of a TCP socket.
Address local_address(int fd);
Address peer_address(int fd);
/// 127.0.0.0/8, ::1 or a name all of whose addresses are such ("localhost").
bool is_loopback(const std::string& host);
/// Whether one of its addresses is this host's. DistNetworkError where the name is not known by then.
bool is_of_this_host(const std::string& host, const Deadline& until_known = one_question());
/// The address by which this host's traffic to that one leaves it; empty: there is no way, or the name is not known by
/// then. Sends nothing.
std::string address_towards(const std::string& host, const Deadline& until_known = one_question());
/// A literal in 224.0.0.0/4 or ff00::/8.
bool is_multicast(const std::string& host);

/// Moves all of `bytes`, or throws; `operation` names it in messages. The end of the peer's stream is
/// DistNetworkError "… closed by peer".
void send_all(int fd, std::span<const std::byte> bytes, const Deadline& deadline, const AbortFlag* abort,
              const char* operation);
void recv_all(int fd, std::span<std::byte> bytes, const Deadline& deadline, const AbortFlag* abort,
              const char* operation);
/// Waits for `events` (POLLIN, POLLOUT) and returns the events that poll(2) saw.
short wait_for(int fd, short events, const Deadline& deadline, const AbortFlag* abort, const char* operation);

/// Waits that long, but not beyond the deadline. Throws Aborted, of an operation "connect".
void pause(Clock::duration length, const Deadline& deadline, const AbortFlag* abort);
/// Returns early, and true, when there is something to read; -1: just sleeps.
bool sleep_unless_readable(int fd, Clock::duration duration);

/// A UDP socket at the address and port of a listening TCP socket; none where another program has that port.
UniqueFd bind_udp_beside(int tcp_fd);
/// One byte, which may get lost on the way, as when `to.host` is no literal.
void send_datagram(int udp_fd, const Address& to);

}  // namespace tutti::net
