// Names: all look-ups of a host's addresses by the system's resolver (getaddrinfo) happen here.
//
// A name may become known late: a pod's name is unknown until the cluster's DNS has it. All threads of a process share
// each question and its answer, so a name server gets few questions however many threads and attempts wait: an answer
// with addresses is valid for 2 s; an unknown name is asked for again after 50 ms, then after twice as long each time,
// up to 2 s. The system's resolver has no timeout, so a background thread calls it. Callers wait for the answer for at
// least 10 s, even beyond their deadlines: if they gave up and asked again, the answer of a slow name server would
// never arrive.
//
// Threads: any. Waits check the abort flag and the interrupt flag (core/interrupt.hpp); the caller's Patience logs a
// long wait.
#pragma once

#include "core/deadline.hpp"
#include "core/socket.hpp"

#include <sys/socket.h>

#include <optional>
#include <string>
#include <vector>

namespace tutti::net {

struct SocketAddress {
    sockaddr_storage storage{};
    socklen_t size = 0;

    int family() const noexcept { return storage.ss_family; }
    const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&storage); }
    SocketAddress with_port(std::uint16_t port) const;
};

/// Converts an address whose host is an IP address in digits; nullopt if the host is a name.
std::optional<SocketAddress> numeric_address(const Address& address);

struct Answer {
    std::vector<SocketAddress> addresses;  ///< with port 0; empty: the name is not known
    std::string full_name;                 ///< with its domain, if the resolver gives it
    std::string cause;                     ///< why the name is not known, in the resolver's words
    bool is_final = false;                 ///< the text can be neither an address nor a name

    bool is_known() const noexcept { return !addresses.empty(); }
};

/// False for a text that no name server can know, such as "host:29500", "10.0.0.300", "two words".
bool can_be_host(const std::string& host);
/// Asks the resolver, unless it has answered within the last 2 s. A literal address is returned without asking.
Answer ask_for(const std::string& host, const AbortFlag* abort = nullptr);
/// As ask_for(), repeated until the name is known or `deadline` has expired. `took`, if not null, receives how long the
/// last question took.
Answer await_name(const std::string& host, const Deadline& deadline, const AbortFlag* abort = nullptr,
                  Clock::duration* took = nullptr);
/// Why the name is not known, as far as this process has asked; empty: it is known, or nobody has asked. Does not wait.
std::string why_unknown(const std::string& host);
/// Waits as await_name() does, and returns `deadline` plus the time that the last question took: a connection's time
/// limit is for the peer, not for the name server. The answer stays valid for at least half a second.
Deadline after_name(const std::string& host, const Deadline& deadline, const AbortFlag* abort = nullptr);

}  // namespace tutti::net
