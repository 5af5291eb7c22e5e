#include "common/own_address.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

namespace tutti::backends {
namespace {

std::string text_of(const char* variable) {
    const char* text = std::getenv(variable);
    return text != nullptr ? text : "";
}

/// The IPv4 addresses of this host's interfaces that are up, in their order, without its loopback.
std::vector<std::string> outer_addresses() {
    std::vector<std::string> addresses;
    ifaddrs* all = nullptr;
    if (::getifaddrs(&all) != 0) return addresses;
    for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
        const bool counts = one->ifa_addr != nullptr && one->ifa_addr->sa_family == AF_INET &&
                            (one->ifa_flags & IFF_UP) != 0 && (one->ifa_flags & IFF_LOOPBACK) == 0;
        if (!counts) continue;
        char text[INET_ADDRSTRLEN] = {};
        const auto* address = reinterpret_cast<const sockaddr_in*>(one->ifa_addr);
        if (::inet_ntop(AF_INET, &address->sin_addr, text, sizeof text) != nullptr) addresses.emplace_back(text);
    }
    ::freeifaddrs(all);
    return addresses;
}

/// The numeric IPv4 addresses that a name stands for, none while it is not known. Nobody waits for it here: the ranks
/// have met already, and own_address() does without.
std::vector<std::string> resolved(const std::string& name) {
    std::vector<std::string> addresses;
    addrinfo hints{};
    hints.ai_family = AF_INET;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* all = nullptr;
    if (name.empty() || ::getaddrinfo(name.c_str(), nullptr, &hints, &all) != 0) return addresses;
    for (const addrinfo* one = all; one != nullptr; one = one->ai_next) {
        char text[INET_ADDRSTRLEN] = {};
        const auto* address = reinterpret_cast<const sockaddr_in*>(one->ai_addr);
        if (::inet_ntop(AF_INET, &address->sin_addr, text, sizeof text) != nullptr) addresses.emplace_back(text);
    }
    ::freeaddrinfo(all);
    return addresses;
}

}  // namespace

std::string own_address(const Store& store) {
    if (std::string host = text_of("TUTTI_HOST"); !host.empty()) return host;
    const std::string host = store.backend()->local_host();
    if (host.empty()) return "127.0.0.1";
    if (host != "0.0.0.0") return host;
    const std::vector<std::string> own = outer_addresses();
    for (const std::string& address : resolved(text_of("MASTER_ADDR"))) {
        if (std::ranges::find(own, address) != own.end()) return address;
    }
    return own.empty() ? "127.0.0.1" : own.front();
}

}  // namespace tutti::backends
