#include "transport/tcp/lane_choice.hpp"

#include "core/assert.hpp"

#include <algorithm>

namespace tutti::transport {
namespace {

constexpr std::chrono::milliseconds longest_stretch{100};
constexpr double weight_of_rise = 0.5, weight_of_fall = 0.2;  // of the last stretch

}  // namespace

void LanePace::look(Instant now, std::uint64_t acknowledged, std::size_t under_way) noexcept {
    TUTTI_ASSERT(acknowledged >= acknowledged_);
    const auto stretch = now - before_;
    const bool busy = under_way > 0;
    if (busy && busy_ && stretch > Clock::duration::zero() && stretch < longest_stretch) {
        const double rate = static_cast<double>(acknowledged - acknowledged_) /
                            std::chrono::duration<double, std::micro>(stretch).count();
        const double weight = rate_ == 0 ? 1 : rate > rate_ ? weight_of_rise : weight_of_fall;
        rate_ += weight * (rate - rate_);
    }
    before_ = now;
    acknowledged_ = acknowledged;
    busy_ = busy;
    TUTTI_ASSERT(rate_ >= 0);
}

std::optional<std::size_t> choose_lane(std::span<const LaneLoad> lanes, std::size_t bytes) noexcept {
    TUTTI_ASSERT(bytes > 0);
    double quickest = 0;
    for (const LaneLoad& lane : lanes) quickest = std::max(quickest, lane.rate);
    std::optional<std::size_t> best;
    double first = 0;  // microseconds; while no rate is known, bytes
    for (std::size_t i = 0; i < lanes.size(); ++i) {
        if (!lanes[i].takes) continue;
        const double rate = quickest == 0 ? 1 : lanes[i].rate > 0 ? lanes[i].rate : quickest;
        const double arrives = static_cast<double>(lanes[i].under_way + bytes) / rate;
        if (best && arrives >= first) continue;
        best = i;
        first = arrives;
    }
    TUTTI_ASSERT(!best || lanes[*best].takes);
    return best;
}

}  // namespace tutti::transport
