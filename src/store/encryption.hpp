// Encryption: which connections between clients and a server go by TLS, and the error where they disagree.
//
// A client that leaves its host encrypts if TUTTI_TLS says so. The server accepts both kinds; it then answers every
// request of a client that came the wrong way with an error that says so. So both ends have proved the secret before
// they report the disagreement, and nobody else can cause one.
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
/// Whether a server takes a connection that says so.
bool is_for_store(std::string_view identity);
/// The server's objection to a connection that has proved the secret; empty: none. `identity`: by TLS.
std::string objection_to(int fd, const std::optional<std::string>& identity);

}  // namespace tutti::store
