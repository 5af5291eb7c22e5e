// Handshake: both ends of a new connection prove that they know the job's secret.
//
//   client → server   magic, client nonce (32 bytes)
//   server → client   magic, server nonce (32), HMAC(secret, "server", purpose, both nonces)
//   client → server   HMAC(secret, "client", purpose, both nonces)
//   server → client   one byte: welcome
// Different labels for the two ends keep a reflected message worthless. Nothing else of a connection is read before, and
// no peer-given length exists, so no memory depends on a stranger. The machine does no input or output itself.
#pragma once

#include "core/interrupt.hpp"
#include "security/secret.hpp"

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::security {

class Handshake {
   public:
    enum class Role { client, server };
    enum class State { running, done, failed };

    Handshake(Secret secret, Role role, std::string_view purpose);
    State state() const noexcept { return state_; }
    /// How many more bytes consume() can take now; never reads into what follows the handshake.
    std::size_t wanted() const noexcept { return wanted_ - received_.size(); }
    /// At most wanted() bytes of the peer's.
    void consume(std::span<const std::byte> bytes);
    /// What has to be sent now; the caller takes it all.
    std::vector<std::byte> take_output();

    static constexpr std::string_view magic = "tutti/1\n";

   private:
    void advance();
    Digest proof(std::string_view label) const;

    Secret secret_;
    Role role_;
    std::string purpose_;
    State state_ = State::running;
    int stage_ = 0;
    std::size_t wanted_ = 0;
    std::vector<std::byte> received_, output_, client_nonce_, server_nonce_;
};

/// Runs a handshake on a connected socket. Throws DistNetworkError (security) with a hint if the peer fails.
void authenticate(int fd, const Secret& secret, Handshake::Role role, std::string_view purpose, const Deadline& deadline,
                  const AbortFlag* abort);

/// How long a peer may take: 5 s, or TUTTI_HANDSHAKE_TIMEOUT_MS.
std::chrono::milliseconds handshake_timeout();

}  // namespace tutti::security
