// Congestion: the congestion control of TCP connections between ranks, as TUTTI_TCP_CONGESTION requests it.
//
// Threads: a value; any.
#pragma once

#include <string>

namespace tutti::transport {

class Congestion {
 public:
    /// Reads TUTTI_TCP_CONGESTION: auto (the default: the system's algorithm, except BBR between nearby hosts), system,
    /// or an algorithm that the kernel lets this process choose. Throws InvalidArgument, which lists these, for any
    /// other value.
    static Congestion from_environment();

    /// Sets the algorithm of a connected socket. Never fails: in the worst case the system's choice stays.
    void apply(int fd) const noexcept;

 private:
    explicit Congestion(std::string name) : name_(std::move(name)) {}
    std::string name_;  ///< of an algorithm, or "auto", "system"
};

/// The congestion control algorithm that a socket uses; empty if it is not a TCP socket.
std::string congestion_of(int fd);

}  // namespace tutti::transport
