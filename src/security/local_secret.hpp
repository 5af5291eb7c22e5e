// A job on one host needs no secret from its user: the process that listens on a loopback port makes one and serves it
// to processes of the same user (checked by SO_PEERCRED) over an abstract Unix socket named after the port. Nothing
// appears in the file system.
//
// Threads: LocalSecretServer belongs to the loop that polls it; the functions may be called from any thread.
#pragma once

#include "core/deadline.hpp"
#include "core/interrupt.hpp"
#include "core/rate_limit.hpp"
#include "core/unique_fd.hpp"
#include "security/secret.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace tutti::security {

class LocalSecretServer {
 public:
    /// DistNetworkError when another process already serves a secret for this port.
    LocalSecretServer(std::uint16_t port, Secret secret);
    /// Readable when a process asks for the secret.
    int fd() const noexcept { return listener_.get(); }
    /// Answers every waiting process; never blocks.
    void serve();

 private:
    Secret secret_;
    UniqueFd listener_;
    std::unique_ptr<RateLimit> refused_ = std::make_unique<RateLimit>();
};

/// The secret that a process serves for this port; waits for this process until the deadline. nullopt if there is none,
/// or if it belongs to another user.
std::optional<Secret> fetch_local_secret(std::uint16_t port, const Deadline& deadline,
                                         const AbortFlag* abort = nullptr);

struct SecretRequest {
    std::string host;        ///< where the master listens
    std::uint16_t port = 0;  ///< needed by all but the master
    bool is_master = false;
    std::optional<std::string> explicit_secret{};  ///< the caller's option; takes precedence
};

struct JobSecret {
    Secret secret;
    bool serve_locally = false;  ///< the master should keep a LocalSecretServer
    bool is_given = false;       ///< by the caller or the environment: processes of other hosts may know it
};

/// Finds the secret: the caller's option, else the environment's secret, else on a loopback host the local secret, else
/// with TUTTI_INSECURE=1 a well-known one. Throws DistNetworkError (code security) that names the variables to set if
/// there is none.
JobSecret resolve_secret(const SecretRequest& request, const Deadline& deadline, const AbortFlag* abort = nullptr);

}  // namespace tutti::security
