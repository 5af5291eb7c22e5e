#include "simulate/network.hpp"

#include "core/assert.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tutti::simulate {
namespace {

// Latencies: of one switch 0.3 to 0.6 us, the rest is the kernel's and the cards' part of a TCP message. Capacities: of
// the links' rates, without protocols' headers.
const Network presets[] = {
    {.name = "ethernet-10", .us = 12, .nic_gbps = 1.25},
    {.name = "ethernet-25", .us = 10, .nic_gbps = 3.125},
    {.name = "ethernet-100", .us = 8, .nic_gbps = 12.5},
    {.name = "fat-tree", .us = 8, .nic_gbps = 12.5, .levels = {{.hosts = 32, .gbps = 200, .us = 1}}},
    {.name = "dragonfly", .us = 8, .nic_gbps = 12.5, .levels = {{.hosts = 64, .gbps = 25, .us = 2, .pairwise = true}}},
    {.name = "rail-optimised",
     .us = 8,
     .nic_gbps = 50,
     .nics = 8,
     .rails = true,
     .levels = {{.hosts = 32, .gbps = 1600, .us = 1}}},
};

}  // namespace

std::vector<std::string> network_names() {
    std::vector<std::string> names;
    for (const Network& network : presets) names.push_back(network.name);
    return names;
}

Network network_named(std::string_view name) {
    const auto* found = std::ranges::find(presets, name, &Network::name);
    TUTTI_ASSERT(found != std::end(presets));
    return *found;
}

int repeats_after(const Network& network) {
    return network.levels.empty() ? 1 : network.levels.back().hosts;
}

Links::Links(const Network& network, int hosts, int hosts_played) : network_(network), hosts_played_(hosts_played) {
    TUTTI_ASSERT(hosts_played >= 1 && hosts_played <= hosts && network.nics >= 1);
    TUTTI_ASSERT(2 + 2 * network.levels.size() <= way_max);
    gbps_.assign(2 * static_cast<std::size_t>(hosts_played) * static_cast<std::size_t>(network.nics), network.nic_gbps);
    for (const Level& level : network.levels) {
        Stage stage{.level = level, .rails = network.rails ? network.nics : 1};
        stage.switches = (hosts + level.hosts - 1) / level.hosts;
        stage.played = (hosts_played + level.hosts - 1) / level.hosts;
        stage.first_up = static_cast<int>(gbps_.size());
        const int ends = stage.played * stage.rails * (level.pairwise ? stage.switches : 1);
        stage.first_down = stage.first_up + (level.pairwise ? 0 : ends);
        gbps_.insert(gbps_.end(), static_cast<std::size_t>(level.pairwise ? ends : 2 * ends), level.gbps);
        stages_.push_back(stage);
    }
}

Links::Way Links::way(int from_host, int from_position, int to_host, int to_position) const {
    TUTTI_ASSERT(from_host != to_host);
    Way way;
    const auto add = [&](int link) { way.links[way.count++] = link; };
    const int nics = network_.nics, from_nic = from_position % nics, to_nic = to_position % nics;
    const bool other_rail = network_.rails && from_nic != to_nic;
    if (network_.nic_gbps > 0) {
        add(from_host % hosts_played_ * nics + from_nic);
        add((hosts_played_ + to_host % hosts_played_) * nics + to_nic);
    }
    for (const Stage& stage : stages_) {
        const int from = from_host / stage.level.hosts, to = to_host / stage.level.hosts;
        if (from == to && !other_rail) break;
        way.us += stage.level.us;
        if (stage.level.gbps <= 0) continue;
        const int from_rail = stage.rails > 1 ? from_nic : 0, to_rail = stage.rails > 1 ? to_nic : 0;
        if (stage.level.pairwise) {
            const int distance = (to - from + stage.switches) % stage.switches;
            add(stage.first_up + (from % stage.played * stage.rails + from_rail) * stage.switches + distance);
        } else {
            add(stage.first_up + from % stage.played * stage.rails + from_rail);
            add(stage.first_down + to % stage.played * stage.rails + to_rail);
        }
    }
    return way;
}

std::string Links::name_of(int link) const {
    TUTTI_ASSERT(link >= 0 && link < count());
    const int cards = hosts_played_ * network_.nics;
    if (link < 2 * cards) {
        const int card = link % cards;
        return fmt::format("card {} of host {}, {}", card % network_.nics, card / network_.nics,
                           link < cards ? "out" : "in");
    }
    for (std::size_t i = stages_.size(); i-- > 0;) {
        const Stage& stage = stages_[i];
        if (link < stage.first_up) continue;
        const int at = link - (link >= stage.first_down ? stage.first_down : stage.first_up);
        const auto of = [&](int end) {
            return fmt::format("switch {} of level {}{}", end / stage.rails, i,
                               stage.rails > 1 ? fmt::format(", rail {}", end % stage.rails) : "");
        };
        if (stage.level.pairwise)
            return fmt::format("{}, to the one {} behind it", of(at / stage.switches), at % stage.switches);
        return fmt::format("{}, {}", of(at), link >= stage.first_down ? "down" : "up");
    }
    return {};
}

}  // namespace tutti::simulate
