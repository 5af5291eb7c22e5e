// LocalDoor: an abstract Unix socket through which clients on the server's host connect, at half the cost of TCP over
// loopback. A client that has proved the secret over TCP gets the socket's name, connects to it and first sends a proof
// computed from the name and the secret. No other process can listen there: the name is random, and this server holds
// it. The socket exists as long as the server; no file appears.
//
// Threads: values and free functions.
#pragma once

#include "core/unique_fd.hpp"
#include "security/secret.hpp"

#include <string>
#include <string_view>

namespace tutti::store {

class LocalDoor {
 public:
    explicit LocalDoor(const security::Secret& secret);
    const std::string& name() const noexcept { return name_; }
    const security::Mac& proof() const noexcept { return proof_; }
    /// Gives the listening socket to the caller.
    int release() noexcept { return listener_.release(); }
    int fd() const noexcept { return listener_.get(); }

 private:
    std::string name_;
    security::Mac proof_;
    UniqueFd listener_;
};

/// The proof with which a client's connection to the local door begins.
security::Mac door_proof(const security::Secret& secret, std::string_view name);
/// TUTTI_STORE_LOCAL: whether clients and servers of this process use local doors.
bool local_doors_wanted();
/// Whether the two ends of a TCP connection have the same address, and are thus on one host.
bool same_host(int tcp_fd);

}  // namespace tutti::store
