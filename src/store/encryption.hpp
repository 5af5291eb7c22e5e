// Encryption: which connections between clients and a server use TLS, and the error if the two disagree.
//
// A connection to another host is encrypted if the client's TUTTI_TLS is on. If it is on at the server only, the server
// sends just a TLS alert, and the client reports the disagreement. If it is on at the client only, the client proves
// the secret over TLS, and the server answers each of its requests with an error that reports the disagreement.
//
// Threads: any.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tutti::store {

/// While it lives, this thread's new connections only report a failure, possibly this very disagreement: they use TLS
/// when they leave the host, and the server accepts them under any setting.
class OnlyToTell {
 public:
    OnlyToTell();
    ~OnlyToTell();
    OnlyToTell(const OnlyToTell&) = delete;
    OnlyToTell& operator=(const OnlyToTell&) = delete;

 private:
    bool before_;
};

/// The identity that a client states for TLS on its connected socket; none: the connection uses no TLS.
std::optional<std::string> tls_identity_for(int fd);
/// Whether a connection with this identity is meant for a store's server.
bool is_for_store(std::string_view identity);
/// Whether a server accepts only TLS on this connection.
bool takes_tls_alone(int fd);
/// The server's objection to a TLS client with this identity that has proved the secret; empty: none.
std::string objection_to(int fd, std::string_view identity);
/// The error message if the server accepts only TLS and the client came without. Both arguments are addresses.
std::string needs_tls(std::string_view server, std::string_view client);

}  // namespace tutti::store
