#include "store/encryption.hpp"

#include "core/assert.hpp"
#include "core/settings.hpp"
#include "core/socket.hpp"
#include "store/local_door.hpp"

#include <fmt/format.h>

#include <utility>

namespace tutti::store {
namespace {

constexpr std::string_view to_work = "tutti 1 store";
constexpr std::string_view to_tell = "tutti 1 store, to tell of a failure";

thread_local bool only_tells = false;

}  // namespace

OnlyToTell::OnlyToTell() : before_(std::exchange(only_tells, true)) {}

OnlyToTell::~OnlyToTell() {
    TUTTI_ASSERT(only_tells);
    only_tells = before_;
}

std::optional<std::string> tls_identity_for(int fd) {
    TUTTI_ASSERT(fd >= 0);
    if (same_host(fd) || !(only_tells || settings::tls())) return std::nullopt;
    return std::string(only_tells ? to_tell : to_work);
}

bool is_for_store(std::string_view identity) {
    return identity == to_work || identity == to_tell;
}

bool takes_tls_alone(int fd) {
    TUTTI_ASSERT(fd >= 0);
    return settings::tls() && !same_host(fd);
}

std::string objection_to(int fd, std::string_view identity) {
    TUTTI_ASSERT(fd >= 0 && is_for_store(identity));
    if (settings::tls() || identity == to_tell) return {};
    return fmt::format(
        "TUTTI_TLS is off at the store ({}) and on at its client ({}): set it to the same on all hosts of the job",
        net::to_string(net::local_address(fd)), net::to_string(net::peer_address(fd)));
}

std::string needs_tls(std::string_view server, std::string_view client) {
    TUTTI_ASSERT(!server.empty() && !client.empty());
    return fmt::format(
        "TUTTI_TLS is on at the store ({}) and off at its client ({}): set it to the same on all hosts of "
        "the job. Where it is, the client takes that address for its own host's: give the address by "
        "which other hosts reach the store",
        server, client);
}

}  // namespace tutti::store
