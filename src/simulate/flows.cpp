#include "simulate/flows.hpp"

#include "core/assert.hpp"

#include <algorithm>

namespace tutti::simulate {

Flows::Flows(const Links& links, double stream_gbps) : stream_(stream_gbps * 1e3) {
    TUTTI_ASSERT(stream_gbps > 0);
    for (int link = 0; link < links.count(); ++link) add_link(links.gbps(link));
}

int Flows::add_link(double gbps) {
    capacity_.push_back(gbps * 1e3);
    on_.emplace_back();
    busy_since_.push_back(0);
    uses_.emplace_back();
    is_touched_.push_back(false);
    return static_cast<int>(capacity_.size()) - 1;
}

// Where so many messages get less from the link than one stream can carry, their shares change.
void Flows::touch(int link, std::size_t flows) {
    const auto index = static_cast<std::size_t>(link);
    if (is_touched_[index] || static_cast<double>(flows) * stream_ <= capacity_[index]) return;
    is_touched_[index] = true;
    touched_.push_back(link);
}

void Flows::pace(std::uint32_t index, double now, std::vector<Change>& changes) {
    Flow& flow = flows_[index];
    double pace = stream_;
    for (int i = 0; i < flow.way.count; ++i) {
        const auto link = static_cast<std::size_t>(flow.way.links[i]);
        pace = std::min(pace, capacity_[link] / static_cast<double>(on_[link].size()));
    }
    if (pace == flow.pace) return;
    flow.left = std::max(0.0, flow.left - flow.pace * (now - flow.since));
    flow.since = now;
    flow.pace = pace;
    changes.push_back({index, ++flow.version, now + flow.left / pace});
}

void Flows::settle(double now, std::vector<Change>& changes) {
    for (const int link : touched_) {
        is_touched_[static_cast<std::size_t>(link)] = false;
        for (const std::uint32_t flow : on_[static_cast<std::size_t>(link)]) pace(flow, now, changes);
    }
    touched_.clear();
    for (const std::uint32_t flow : begun_) {
        if (flows_[flow].active) pace(flow, now, changes);
    }
    begun_.clear();
}

std::uint32_t Flows::begin(const Links::Way& way, double bytes, double now) {
    TUTTI_ASSERT(bytes >= 0 && way.count <= Links::way_max);
    std::uint32_t index = static_cast<std::uint32_t>(flows_.size());
    if (free_.empty()) {
        flows_.emplace_back();
    } else {
        index = free_.back();
        free_.pop_back();
    }
    Flow& flow = flows_[index];
    flow.way = way;
    flow.left = bytes;
    flow.pace = 0;
    flow.since = now;
    flow.active = true;
    for (int i = 0; i < way.count; ++i) {
        const auto link = static_cast<std::size_t>(way.links[i]);
        if (on_[link].empty()) busy_since_[link] = now;
        on_[link].push_back(index);
        uses_[link].bytes += bytes;
        touch(way.links[i], on_[link].size());
    }
    begun_.push_back(index);
    return index;
}

void Flows::end(std::uint32_t index, double now) {
    TUTTI_ASSERT(flows_[index].active);
    Flow& flow = flows_[index];
    flow.active = false;
    ++flow.version;
    free_.push_back(index);
    for (int i = 0; i < flow.way.count; ++i) {
        const auto link = static_cast<std::size_t>(flow.way.links[i]);
        touch(flow.way.links[i], on_[link].size());
        auto& on = on_[link];
        *std::ranges::find(on, index) = on.back();
        on.pop_back();
        if (on.empty()) uses_[link].busy_us += now - busy_since_[link];
    }
}

}  // namespace tutti::simulate
