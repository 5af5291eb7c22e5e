// PeerMemory: reads and writes the memory of another rank of this host in place, with process_vm_readv(2) and
// process_vm_writev(2), or directly if the rank is a thread of this process. One copy instead of two through a ring.
//
// Threads: one at a time.
#pragma once

#include "core/unique_fd.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace tutti::transport {

class PeerMemory {
 public:
    /// Whether a child of this process may read and write this process's memory (forks a child to test it); if so,
    /// ranks that are started alike may access each other's memory.
    static bool allowed();
    /// The address of a word in this process on which others may test whether they can read and write its memory.
    static std::uint64_t place_to_try() noexcept;
    /// Whether this process can read and write the memory of `process`, tested on its place_to_try(). User namespaces,
    /// non-dumpable processes, sandboxes and Yama can forbid it, for two processes in one direction or both.
    static bool reaches(int process, std::uint64_t place_to_try) noexcept;
    /// Whether this process can tell that another has ended (pidfd_open).
    static bool can_watch() noexcept;

    PeerMemory() = default;
    /// `process`: the peer's id in this process's PID namespace; it must be alive.
    explicit PeerMemory(int process);

    explicit operator bool() const noexcept { return process_ > 0; }
    /// False if the memory cannot be read, or the peer has died.
    bool read(std::byte* to, std::uint64_t address, std::size_t bytes) const;
    /// As read(), in the other direction.
    bool write(std::uint64_t address, const std::byte* from, std::size_t bytes) const;
    /// Whether the kernel can copy from and to this range of this process's memory; it cannot for some, such as a
    /// device's.
    static bool reachable(const std::byte* at, std::size_t bytes);
    /// Whether the peer's process still lives, so that bytes read before are the peer's and not those of a new process
    /// with its id. Asks the kernel at most once in `trusted`: ids wrap around, but none is reused within that time.
    bool same() const;
    static constexpr std::chrono::microseconds trusted{100};
    /// Whether the process is alive, and still is after `patience`: a process that is ending loses its memory a moment
    /// before it is gone.
    bool alive(std::chrono::milliseconds patience = std::chrono::milliseconds(0)) const;
    /// Whether the process is alive and not stopped by a signal. The kernel completes its copies for a process before
    /// it stops the process.
    bool running() const;

 private:
    int process_ = 0;
    bool own_ = false;  ///< the peer is a thread of this process
    UniqueFd handle_;   ///< a pidfd
    mutable std::chrono::steady_clock::time_point seen_alive_{};
};

}  // namespace tutti::transport
