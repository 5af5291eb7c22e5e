// Wire: how bytes go over a connected socket that somebody else owns: as they are, or by TLS. Its calls are recv(2) and
// send(2) that never wait, so that it takes their place.
//
// By TLS a message becomes records first, of which the kernel may take a part: send() counts bytes whose records have
// gone as a whole; the caller passes the uncounted ones again.
//
// Threads: any; one that reads and one that writes at a time. With TLS they take turns.
#pragma once

#include "core/deadline.hpp"
#include "core/interrupt.hpp"
#include "core/unique_fd.hpp"
#include "security/tls.hpp"

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string>

namespace tutti::security {

class Wire {
 public:
    Wire();
    /// After the handshake; none: bytes go as they are.
    explicit Wire(std::unique_ptr<Tls> tls);
    Wire(Wire&&) noexcept;
    Wire& operator=(Wire&&) noexcept;
    ~Wire();

    bool is_encrypted() const noexcept { return secured_ != nullptr; }
    /// The bytes that have come, as many as there is room for; 0 at the end (where that was a cut error() says so); -1
    /// and errno, as recvmsg(2): EBADMSG where error() gives TLS's objection.
    ssize_t receive(int fd, std::span<const iovec> into);
    ssize_t receive(int fd, std::span<std::byte> into);
    /// How many the kernel has taken; -1 and errno, as sendmsg(2).
    ssize_t send(int fd, std::span<const iovec> parts);
    /// send() has begun with bytes that it has not counted: the caller must pass them again, first of all.
    bool has_begun() const noexcept;
    /// These few bytes, or none where the kernel has no room (false, and errno; EMSGSIZE: without TLS a part of them).
    /// By TLS bytes that the kernel does not take go with the next call. Not between a send() and the one that repeats
    /// its bytes.
    bool post(int fd, std::span<const std::byte> bytes);
    void send_all(int fd, std::span<const std::byte> bytes, const Deadline& deadline, const AbortFlag* abort,
                  const char* operation);
    void receive_all(int fd, std::span<std::byte> into, const Deadline& deadline, const AbortFlag* abort,
                     const char* operation);
    /// Says that nothing more will come, as far as the kernel takes that now.
    void end(int fd);

    /// The descriptor to poll for input: `fd`, or, where bytes are here already, one that can always be read.
    int to_poll(int fd) const noexcept;
    /// The fault that TLS has found.
    std::string error() const;
    /// For faults on request: changes the next bytes sent, on the way. False: nobody would notice.
    bool spoil() noexcept;

 private:
    struct Secured;
    std::unique_ptr<Secured> secured_;
};

/// A connection whose two ends have proved the secret.
struct Connection {
    UniqueFd fd;
    Wire wire;
};

/// The connecting end's handshake, by TLS, on a connected socket. DistNetworkError, code security, that names the
/// fault; code network when the peer goes away.
Wire secure(int fd, const Secret& secret, std::string identity, const Deadline& deadline, const AbortFlag* abort);

}  // namespace tutti::security
