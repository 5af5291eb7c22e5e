#include "transport/tcp/lane_growth.hpp"

#include "core/assert.hpp"
#include "core/env.hpp"
#include "core/suggestion.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string>
#include <utility>

namespace tutti::transport {
namespace {

constexpr int most_needed = 8;
constexpr std::chrono::milliseconds between_looks{2};
constexpr double settle_us = 10'000;      // of being busy: before the measurement counts
constexpr double least_busy_us = 30'000;  // to tell something
constexpr double share_of_network = 0.5;  // less, and it is the ranks that are slow
constexpr double share_of_moving = 0.5;   // more, and this rank could hardly move twice as much
constexpr double least_gain = 1.15;       // by twice as many: less is noise, or a link that is full
constexpr int vain_max = 2;               // a lane may share its link with another by chance

}  // namespace

LaneCounts LaneCounts::of(int fd) {
    TUTTI_ASSERT(fd >= 0);
    tcp_info info{};
    socklen_t size = sizeof info;
    if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return {};
    const std::uint64_t others = info.tcpi_rwnd_limited + info.tcpi_sndbuf_limited;
    return {.busy_us = info.tcpi_busy_time,
            .network_us = info.tcpi_busy_time - std::min<std::uint64_t>(others, info.tcpi_busy_time),
            .bytes = info.tcpi_bytes_acked};
}

Lanes Lanes::from_environment() {
    const std::string text = env::get("TUTTI_TCP_CONNECTIONS").value_or("auto");
    if (text == "auto") return {.most = most_needed, .as_needed = true};
    int count = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
    if (error != std::errc() || end != text.data() + text.size() || count < 1 || count > LaneGrowth::lanes_max) {
        throw InvalidArgument(fmt::format("environment variable TUTTI_TCP_CONNECTIONS={}: expected auto or 1 to {}{}",
                                          text, LaneGrowth::lanes_max, did_you_mean(text, std::array{"auto"})));
    }
    return {.most = count, .as_needed = false};
}

int LaneGrowth::in_use(int lanes, int peer_wants) const noexcept {
    TUTTI_ASSERT(lanes >= 1);
    TUTTI_ASSERT(target_ >= 1 && target_ <= lanes_.most);
    return lanes_.as_needed ? std::min(lanes, std::max(target_, peer_wants)) : lanes;
}

bool LaneGrowth::wants(int lanes, int peer_wants, Instant now, const std::function<void(StreamCounts&)>& counted) {
    TUTTI_ASSERT(lanes >= 1);
    TUTTI_ASSERT(static_cast<bool>(counted));
    if (!lanes_.as_needed) return lanes < lanes_.most;
    if (lanes < target_) return true;
    if (ended_ || now < next_look_) return false;
    if (in_use(lanes, peer_wants) != target_) {
        measured_ = 0;  // the peer tries more
        return false;
    }
    next_look_ = now + between_looks;
    counts_.lanes.clear();
    counted(counts_);
    if (std::exchange(measured_, target_) != target_ || counts_.lanes.size() != before_.lanes.size()) {
        fresh_ = true;
        start();
    } else {
        look();
    }
    before_ = counts_;
    if (busy_us_ < (fresh_ ? settle_us : least_busy_us)) return false;
    const double rate = static_cast<double>(bytes_) / busy_us_;
    const bool network_bound =
        lanes_network_us_ >= share_of_network * lanes_busy_us_ && moving_us_ < share_of_moving * busy_us_;
    start();
    if (!std::exchange(fresh_, false)) next(rate, network_bound);
    return lanes < target_;
}

// The kernel counts by its ticks, which are few between two looks: the lane that was busy for the most ticks tells for
// how many any lane was.
void LaneGrowth::look() {
    TUTTI_ASSERT(counts_.lanes.size() == before_.lanes.size());
    std::uint64_t most = 0;
    for (std::size_t i = 0; i < counts_.lanes.size(); ++i) {
        const LaneCounts &now = counts_.lanes[i], &before = before_.lanes[i];
        const std::uint64_t busy = now.busy_us - before.busy_us;
        most = std::max(most, busy);
        lanes_busy_us_ += static_cast<double>(busy);
        lanes_network_us_ += static_cast<double>(now.network_us - before.network_us);
        bytes_ += now.bytes - before.bytes;
    }
    busy_us_ += static_cast<double>(most);
    moving_us_ += static_cast<double>(counts_.moving_us - before_.moving_us);
}

void LaneGrowth::start() {
    busy_us_ = lanes_busy_us_ = lanes_network_us_ = moving_us_ = 0;
    bytes_ = 0;
}

// A stretch has been measured: decides on the next measurement.
void LaneGrowth::next(double rate, bool network_bound) {
    TUTTI_ASSERT(rate >= 0);
    TUTTI_ASSERT(best_ <= tried_ && tried_ <= lanes_.most);
    switch (turn_) {
        case Turn::usual:
            best_rate_ = rate;
            if (!network_bound) return;
            break;
        case Turn::trial:
            if (rate >= least_gain * best_rate_) {
                tried_rate_ = rate;
                return go_to(best_, Turn::back);
            }
            ++vain_;
            break;
        case Turn::back:
            if (tried_rate_ >= least_gain * rate) {
                best_ = tried_;
                vain_ = 0;
                ended_ = best_ >= lanes_.most;
                return go_to(best_, Turn::usual);
            }
            best_rate_ = rate;
            ++vain_;
            break;
    }
    ended_ = vain_ >= vain_max || tried_ >= lanes_.most;
    if (ended_) return go_to(best_, Turn::usual);
    tried_ = std::min(2 * tried_, lanes_.most);
    go_to(tried_, Turn::trial);
}

void LaneGrowth::go_to(int lanes, Turn turn) {
    TUTTI_ASSERT(lanes >= 1 && lanes <= lanes_.most);
    target_ = lanes;
    turn_ = turn;
}

}  // namespace tutti::transport
