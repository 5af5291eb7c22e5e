#include "transport/tcp/lane_growth.hpp"

#include "core/env.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>

namespace tutti::transport {
namespace {

constexpr int most_needed = 8;
constexpr std::chrono::milliseconds between_looks{5};
constexpr double least_busy_us = 50'000;  // of each lane, to tell something
constexpr double share_of_network = 0.5;  // of that time: less, and it is the ranks that are slow
constexpr double least_gain = 1.15;       // by twice as many: less is noise, or a link that is full
constexpr int vain_max = 2;               // a lane may share its link with another by chance

}  // namespace

void LaneCounts::add(int fd) {
    tcp_info info{};
    socklen_t size = sizeof info;
    if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return;
    const std::uint64_t others = info.tcpi_rwnd_limited + info.tcpi_sndbuf_limited;
    busy_us += info.tcpi_busy_time;
    network_us += info.tcpi_busy_time - std::min<std::uint64_t>(others, info.tcpi_busy_time);
    bytes += info.tcpi_bytes_acked;
}

Lanes Lanes::from_environment() {
    const std::string text = env::get("TUTTI_TCP_CONNECTIONS").value_or("auto");
    if (text == "auto") return {.most = most_needed, .as_needed = true};
    int count = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
    if (error != std::errc() || end != text.data() + text.size() || count < 1 || count > LaneGrowth::lanes_max) {
        throw InvalidArgument(fmt::format("environment variable TUTTI_TCP_CONNECTIONS={}: expected auto or 1 to {}",
                                          text, LaneGrowth::lanes_max));
    }
    return {.most = count, .as_needed = false};
}

// Looks at stretches of traffic in which bytes waited again and again.
bool LaneGrowth::wants(int lanes, Instant now, const std::function<LaneCounts()>& counted) {
    if (!lanes_.as_needed) return lanes < lanes_.most;
    if (lanes < target_) return true;
    if (vain_ >= vain_max || lanes >= lanes_.most || now < next_look_) return false;
    next_look_ = now + between_looks;
    const LaneCounts counts = counted();
    if (std::exchange(lanes_before_, lanes) != lanes) {
        before_ = counts;
        fresh_ = true;
    }
    const double busy_us = static_cast<double>(counts.busy_us - before_.busy_us) / lanes;
    if (busy_us < least_busy_us) return false;
    const LaneCounts before = std::exchange(before_, counts);
    if (std::exchange(fresh_, false)) return false;
    if (static_cast<double>(counts.network_us - before.network_us) < share_of_network * busy_us * lanes) return false;
    const double rate = static_cast<double>(counts.bytes - before.bytes) / busy_us;
    vain_ = rate < least_gain * rate_before_ ? vain_ + 1 : 0;
    if (vain_ >= vain_max) return false;
    rate_before_ = rate;
    target_ = std::min(2 * lanes, lanes_.most);
    return true;
}

}  // namespace tutti::transport
