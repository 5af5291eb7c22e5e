// Pulse: a port that is open exactly as long as this process lives.
//
// A forked child may keep its parent's sockets open when the parent dies: then no connection closes, and to another
// host the parent seems to be stopped. The pulse's socket is in the private descriptor table of a thread, which no
// child inherits. If the port refuses a connection, the process has ended; a stopped process does not refuse.
//
// Threads: one at a time.
#pragma once

#include "core/deadline.hpp"
#include "core/socket.hpp"
#include "core/unique_fd.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <thread>

namespace tutti::rendezvous {

class Pulse {
 public:
    Pulse() = default;
    /// Opens a free port of this address; none if the system does not allow a thread its own descriptor table.
    explicit Pulse(const std::string& host);
    Pulse(const Pulse&) = delete;
    Pulse& operator=(const Pulse&) = delete;
    ~Pulse() { end(); }

    /// 0: there is none.
    std::uint16_t port() const noexcept { return port_; }
    void end();

 private:
    UniqueFd stop_;
    std::uint16_t port_ = 0;
    std::thread thread_;
};

/// Checks every second whether another process's pulse port is open.
class PulseWatch {
 public:
    explicit PulseWatch(net::Address address) : address_(std::move(address)) {}
    /// Writable when look() should be called; -1: call it from time to time.
    int fd() const noexcept { return attempt_.get(); }
    /// Never waits. True: the process has ended, and its own goodbye, if any, has had a second to arrive.
    bool look(Instant now);

 private:
    void learn(int error, Instant now);

    net::Address address_;
    UniqueFd attempt_;
    Instant next_{};
    bool answered_ = false;  // ever; before that a refusal may be a firewall's
    std::optional<Instant> refused_;
};

}  // namespace tutti::rendezvous
