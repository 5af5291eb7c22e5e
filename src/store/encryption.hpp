// Encryption: which connections between clients and a server go by TLS, and the error where they disagree.
//
// A client that leaves its host encrypts if TUTTI_TLS says so. Where it is on at the server alone, the server answers
// nothing but an alert of TLS, and the client reports the disagreement. Where it is on at the client alone, the server
// answers every request of the client, which has proved the secret by TLS, with an error that says so.
//
// Threads: any.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tutti::store {

/// While it lives, this thread's new connections only tell the others of a failure, which may be that disagreement:
/// they leave the host by TLS, and the server takes them under any setting.
class OnlyToTell {
 public:
    OnlyToTell();
    ~OnlyToTell();
    OnlyToTell(const OnlyToTell&) = delete;
    OnlyToTell& operator=(const OnlyToTell&) = delete;

 private:
    bool before_;
};

/// The identity that a client's connected socket states for TLS; none: it goes without TLS.
std::optional<std::string> tls_identity_for(int fd);
/// Whether a connection with this identity is meant for a store's server.
bool is_for_store(std::string_view identity);
/// Whether a server accepts only TLS on that connection.
bool takes_tls_alone(int fd);
/// The server's objection to a TLS connection with this identity that has proved the secret; empty: none.
std::string objection_to(int fd, std::string_view identity);
/// The message where the server accepts only TLS and the client came without. Both are addresses.
std::string needs_tls(std::string_view server, std::string_view client);

}  // namespace tutti::store
