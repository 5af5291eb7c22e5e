#include "store/local_door.hpp"

#include "core/assert.hpp"
#include "core/env.hpp"
#include "core/socket.hpp"
#include "core/unix_socket.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <unistd.h>

#include <cstdint>
#include <span>

namespace tutti::store {
namespace {

std::string new_name() {
    std::uint64_t random[2];
    security::random_bytes(std::as_writable_bytes(std::span(random)));
    return fmt::format("tutti/store/{}/{:016x}{:016x}", ::getpid(), random[0], random[1]);
}

}  // namespace

LocalDoor::LocalDoor(const security::Secret& secret)
    : name_(new_name()), proof_(door_proof(secret, name_)), listener_(net::listen_unix(name_)) {
    TUTTI_ASSERT(!name_.empty() && listener_);
}

security::Mac door_proof(const security::Secret& secret, std::string_view name) {
    TUTTI_ASSERT(!name.empty());
    static constexpr std::string_view label = "tutti store door 1:";
    return secret.mac({std::as_bytes(std::span(label)), std::as_bytes(std::span(name))});
}

bool local_doors_wanted() {
    return env::get_bool("TUTTI_STORE_LOCAL", true);
}

bool same_host(int tcp_fd) {
    TUTTI_ASSERT(tcp_fd >= 0);
    try {
        return net::local_address(tcp_fd).host == net::peer_address(tcp_fd).host;
    } catch (const DistNetworkError&) {
        return false;  // it is gone already
    }
}

}  // namespace tutti::store
