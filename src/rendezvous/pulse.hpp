// Pulse: a port that is open exactly as long as this process lives.
//
// A child may keep its parent's sockets open when the parent dies: then nothing closes, and to another host the parent
// looks as if it were stopped. The socket of a pulse is in the descriptor table of a thread of its own, which no child
// gets. A refused connection there means that the process has ended; a stopped process does not refuse.
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
    /// At a free port of this address; none where the system does not let a thread have descriptors of its own.
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

/// Looks every second whether another process's pulse is there.
class PulseWatch {
 public:
    explicit PulseWatch(net::Address address) : address_(std::move(address)) {}
    /// Writable when look() should be called; -1: it may be called now and then.
    int fd() const noexcept { return attempt_.get(); }
    /// Takes no time. True: the process has ended, and has been given a moment to say so by itself.
    bool look(Instant now);

 private:
    void learn(int error, Instant now);

    net::Address address_;
    UniqueFd attempt_;
    Instant next_{};
    bool answered_ = false;  // once; else a refusal may be a firewall's
    std::optional<Instant> refused_;
};

}  // namespace tutti::rendezvous
