#include "transport/tcp/congestion.hpp"

#include "core/assert.hpp"
#include "core/env.hpp"
#include "core/log.hpp"
#include "core/socket.hpp"
#include "core/suggestion.hpp"
#include "core/unique_fd.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <fstream>
#include <mutex>
#include <string_view>
#include <utility>

namespace tutti::transport {
namespace {

constexpr std::chrono::milliseconds near{1};  // a round trip within a data centre

bool choose(int fd, std::string_view name) noexcept {
    TUTTI_ASSERT(fd >= 0 && !name.empty());
    return ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), static_cast<socklen_t>(name.size())) == 0;
}

}  // namespace

std::string congestion_of(int fd) {
    TUTTI_ASSERT(fd >= 0);
    char name[16] = {};
    socklen_t size = sizeof name - 1;
    return ::getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &size) == 0 ? name : "";
}

Congestion Congestion::from_environment() {
    std::string name = env::get("TUTTI_TCP_CONGESTION").value_or("auto");
    if (name != "auto" && name != "system") {
        const UniqueFd probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        if (!choose(probe.get(), name)) {
            std::string allowed;
            std::ifstream file("/proc/sys/net/ipv4/tcp_allowed_congestion_control");
            std::getline(file, allowed);
            throw InvalidArgument(
                fmt::format("environment variable TUTTI_TCP_CONGESTION={}: expected auto, system or one that this "
                            "system allows ({}){}",
                            name, allowed, did_you_mean(name, std::array{"auto", "system"})));
        }
    }
    return Congestion(std::move(name));
}

// Where the system's congestion control is BBR, a timer paces each connection's packets: that suits long ways, but
// between near hosts the timers cost a quarter of the bandwidth. Reno, which every process may choose, does not pace.
void Congestion::apply(int fd) const noexcept {
    TUTTI_ASSERT(fd >= 0);
    TUTTI_ASSERT(!name_.empty());
    if (name_ == "system") return;
    if (name_ != "auto") return static_cast<void>(choose(fd, name_));
    const std::string systems = congestion_of(fd);
    if (!systems.starts_with("bbr") || net::round_trip(fd).value_or(near) >= near || !choose(fd, "reno")) return;
    static std::once_flag said;
    std::call_once(said, [&] {
        TUTTI_INFO(
            "connections between near hosts use the congestion control reno instead of {}, which paces; "
            "TUTTI_TCP_CONGESTION=system leaves the system's",
            systems);
    });
}

}  // namespace tutti::transport
