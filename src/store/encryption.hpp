// Encryption: which connections between clients and a server go by TLS, and what is said where they disagree.
//
// A client that leaves its host encrypts if TUTTI_TLS says so. The server takes either; then it answers every request
// of one that should have come the other way with an error that says so. So both ends have proved the secret before
// they speak of it, and nobody else can make them disagree.
//
// Threads: any.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tutti::store {

/// While it lives, this thread's new connections only tell the others of a failure, which may be that disagreement:
/// they leave the host by TLS, and the server takes them whatever it is told.
class OnlyToTell {
 public:
    OnlyToTell();
    ~OnlyToTell();
    OnlyToTell(const OnlyToTell&) = delete;
    OnlyToTell& operator=(const OnlyToTell&) = delete;

 private:
    bool before_;
};

/// What a client's connection, once connected, says that it is for; none: it goes without TLS.
std::optional<std::string> tls_identity_for(int fd);
/// Whether a server takes a connection that says so.
bool is_for_store(std::string_view identity);
/// What a server has against a connection that has proved the secret; empty: nothing. `identity`: by TLS.
std::string objection_to(int fd, const std::optional<std::string>& identity);

}  // namespace tutti::store
