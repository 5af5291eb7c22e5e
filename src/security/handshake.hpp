// Handshake: two ends of a fresh connection prove to each other that they know the job's secret.
//
//   connecting end                               accepting end
//   magic, nonce C                        ──►
//                                         ◄──    magic, nonce S
//   HMAC("connect", purpose, C, S)        ──►
//                                         ◄──    HMAC("accept", purpose, C, S), or a refusal
//
// The connecting end proves first: otherwise any process that connects to the port would get a MAC with which it could
// guess secrets offline. An accepting end computes nothing from the secret for a peer that has not proved it.
//
// The two ends prove under different labels, so that an attacker cannot reflect an end's own proof; both proofs cover
// both nonces, so that an old conversation cannot be replayed; and both cover the purpose, so that a connection made
// for one service cannot be redirected to another. A failure tells an end nothing but that it failed.
// The handshake authenticates the connection and does not encrypt it.
//
// Threads: one Handshake belongs to one thread at a time. A peer's input causes no allocation.
#pragma once

#include "core/assert.hpp"
#include "core/deadline.hpp"
#include "core/interrupt.hpp"
#include "security/secret.hpp"

#include <tutti/error.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace tutti::security {

enum class Role {
    connecting,  ///< speaks first
    accepting
};

class Handshake {
 public:
    enum class State {
        needs_more,  ///< call consume(); there may also be output() to send
        done,        ///< the peer is authentic; send the rest of output()
        failed       ///< close the connection; error() says why
    };

    Handshake(const Secret& secret, Role role, std::string_view purpose);

    State state() const noexcept { return state_; }
    std::string_view error() const noexcept { return error_; }
    /// At the connecting end: whether it failed because the peer accepts only TLS.
    bool wants_tls() const noexcept { return wants_tls_; }

    /// Bytes to send now; call sent() with the number of those that went.
    std::span<const std::byte> output() const noexcept { return {output_.data() + sent_, output_size_ - sent_}; }
    void sent(std::size_t count) noexcept {
        TUTTI_ASSERT(count <= output_size_ - sent_);
        sent_ += count;
    }

    /// The number of bytes still missing from the peer's current message.
    std::size_t wanted() const noexcept;
    /// Takes at most wanted() bytes and returns how many; bytes behind the handshake stay with the caller.
    std::size_t consume(std::span<const std::byte> bytes);

 private:
    static constexpr std::size_t magic_bytes = 8;
    static constexpr std::size_t nonce_bytes = 32;
    static constexpr std::size_t mac_bytes = 32;
    static constexpr std::size_t hello_bytes = magic_bytes + nonce_bytes;

    void put(std::span<const std::byte> bytes);
    void refuse_stranger();
    bool is_hello_due() const noexcept { return input_wanted_ == hello_bytes; }
    void take_hello();
    void take_proof();
    Mac proof(Role prover) const;
    std::span<const std::byte> nonce_of(Role role) const;
    void fail(std::string_view why);

    Secret secret_;
    Role role_;
    std::string purpose_;
    State state_ = State::needs_more;
    std::string_view error_;
    std::array<std::byte, nonce_bytes> own_nonce_{};
    std::array<std::byte, nonce_bytes> peer_nonce_{};
    std::array<std::byte, hello_bytes> input_{};
    std::size_t input_size_ = 0;
    std::size_t input_wanted_ = 0;
    std::array<std::byte, hello_bytes> output_{};
    std::size_t output_size_ = 0;
    std::size_t sent_ = 0;
    bool wants_tls_ = false;
};

/// Thrown if the peer accepts only TLS; code security.
class TlsWanted : public DistNetworkError {
    using DistNetworkError::DistNetworkError;
};

/// How long an accepting end waits for a peer to prove itself: TUTTI_HANDSHAKE_TIMEOUT_MS, default 5 s.
std::chrono::milliseconds handshake_timeout();

/// Runs the whole handshake on a connected socket; reads no bytes beyond it. The accepting end gives up after
/// handshake_timeout(), the connecting end at its deadline. Throws DistNetworkError with code security if the peer does
/// not prove the secret, with code network if it disconnects; TlsWanted if the peer accepts only TLS.
void authenticate(int fd, const Secret& secret, Role role, std::string_view purpose, const Deadline& deadline,
                  const AbortFlag* abort);

}  // namespace tutti::security
