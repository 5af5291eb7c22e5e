// Wire: sends and receives over a connected socket that somebody else owns, in plain text or by TLS. receive() and
// send() replace recv(2) and send(2), and never wait.
//
// With TLS a message becomes records, of which the kernel may take only a part: send() counts the bytes whose records
// the kernel has taken completely; the caller passes the uncounted bytes again.
//
// Threads: any; one reader and one writer at a time, which exclude each other with TLS.
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
    /// Takes the Tls of a finished handshake; null: bytes are sent in plain text.
    explicit Wire(std::unique_ptr<Tls> tls);
    Wire(Wire&&) noexcept;
    Wire& operator=(Wire&&) noexcept;
    ~Wire();

    bool is_encrypted() const noexcept { return secured_ != nullptr; }
    /// Receives the available bytes, as many as fit into `into`. Returns their number; 0 at the end of the connection
    /// (error() tells if it was cut); -1 with errno as recvmsg(2), or EBADMSG for a fault of TLS that error()
    /// describes.
    ssize_t receive(int fd, std::span<const iovec> into);
    ssize_t receive(int fd, std::span<std::byte> into);
    /// Returns how many bytes the kernel has taken; -1 with errno as sendmsg(2).
    ssize_t send(int fd, std::span<const iovec> parts);
    /// Whether send() has begun with bytes that it has not counted: the caller must pass them again before any others.
    bool has_begun() const noexcept;
    /// Sends these few bytes, or none if the kernel has no room (false, with errno; EMSGSIZE: without TLS, a part was
    /// sent). With TLS, the next call sends bytes that the kernel does not take. Not to be called between a send() and
    /// the one that repeats its bytes.
    bool post(int fd, std::span<const std::byte> bytes);
    void send_all(int fd, std::span<const std::byte> bytes, const Deadline& deadline, const AbortFlag* abort,
                  const char* operation);
    void receive_all(int fd, std::span<std::byte> into, const Deadline& deadline, const AbortFlag* abort,
                     const char* operation);
    /// With TLS, sends close_notify as far as the kernel takes it now: nothing more will be sent.
    void end(int fd);

    /// The descriptor to poll for input: `fd`, or, if received bytes are waiting already, one that is always readable.
    int to_poll(int fd) const noexcept;
    /// The fault that TLS has found, or an empty text.
    std::string error() const;
    /// For fault injection: corrupts the next bytes sent, after encryption. False without TLS, as nobody would notice.
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

/// Runs the connecting end's TLS handshake on a connected socket. Throws DistNetworkError with code security, naming
/// the fault, or with code network if the peer disconnects.
Wire secure(int fd, const Secret& secret, std::string identity, const Deadline& deadline, const AbortFlag* abort);

}  // namespace tutti::security
