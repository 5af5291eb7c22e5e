// PeerMemory: reading and writing the memory of another rank of this host where it lies, with process_vm_readv(2) and
// process_vm_writev(2), or directly when the rank is a thread of this process. One copy instead of two through a ring.
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
    /// Whether a child of this process may read and write its memory; if so, ranks that are started alike may read and
    /// write each other's. Forks.
    static bool allowed();
    /// Where others may try whether they can read and write this process.
    static std::uint64_t place_to_try() noexcept;
    /// Whether this process may read and write that one, which has its place_to_try() there. User namespaces, processes
    /// that may not be dumped, sandboxes and Yama forbid it, for any two processes in one direction or both.
    static bool reaches(int process, std::uint64_t place_to_try) noexcept;
    /// Whether this process can tell that another has ended (pidfd_open).
    static bool can_watch() noexcept;

    PeerMemory() = default;
    /// `process`: the peer's, in our process namespace, alive now.
    explicit PeerMemory(int process);

    explicit operator bool() const noexcept { return process_ > 0; }
    /// False when it cannot be read, or the peer has died meanwhile.
    bool read(std::byte* to, std::uint64_t address, std::size_t bytes) const;
    /// The other way round.
    bool write(std::uint64_t address, const std::byte* from, std::size_t bytes) const;
    /// Whether the kernel would copy from and to this memory of our own: not all memory is of such pages (a device's).
    static bool reachable(const std::byte* at, std::size_t bytes);
    /// Whether the process is still the one that it was: bytes read before are the peer's. Asks the kernel at most once
    /// in `trusted`: process numbers wrap around, but none comes back within that time.
    bool same() const;
    static constexpr std::chrono::microseconds trusted{100};
    /// Whether it is there now, and still is after `patience`: a process that is ending loses its memory a moment
    /// before it is gone.
    bool alive(std::chrono::milliseconds patience = std::chrono::milliseconds(0)) const;
    /// Alive, and not stopped by a signal: all that the kernel copies for a process it copies before the process stops.
    bool running() const;

 private:
    int process_ = 0;
    bool own_ = false;  ///< a thread of this process
    UniqueFd handle_;   ///< a pidfd
    mutable std::chrono::steady_clock::time_point seen_alive_{};
};

}  // namespace tutti::transport
