// Congestion: the congestion control of the connections between ranks, as TUTTI_TCP_CONGESTION says.
//
// Threads: a value; any.
#pragma once

#include <string>

namespace tutti::transport {

class Congestion {
 public:
    /// TUTTI_TCP_CONGESTION: auto (the default: the system's, but not BBR between near hosts), system, or the name of
    /// one that this kernel lets the process choose. Throws InvalidArgument for any other, with the names that it
    /// lists.
    static Congestion from_environment();

    /// Sets it on a connected socket. Never fails: at worst the system's choice stays.
    void apply(int fd) const noexcept;

 private:
    explicit Congestion(std::string name) : name_(std::move(name)) {}
    std::string name_;  ///< or "auto", "system"
};

/// The congestion control that a socket uses; empty if it is none of TCP's.
std::string congestion_of(int fd);

}  // namespace tutti::transport
