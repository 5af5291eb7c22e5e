// Network: the hosts' cards, switches and links between them, with capacities; and the way of a message through them.
//
// A network is a tree of switches: hosts below the switches of level 0, these below those of level 1, and so on; the
// switch above the last level never blocks. Each switch of a level has one link up and one down, of the given capacity;
// or, in a dragonfly, one link to each other switch of its level. Values and pure functions.
#pragma once

#include "schedule/schedule.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::simulate {

struct Level {
    int hosts = 1;          ///< below one switch
    double gbps = 0;        ///< gigabytes a second of each link, one direction; 0: no limit
    double us = 0;          ///< latency in addition for a message that leaves the switch
    bool pairwise = false;  ///< a link to each other switch of the level, in place of one up and one down
    friend bool operator==(const Level&, const Level&) = default;
};

struct Network {
    std::string name = "unlimited";
    double us = -1;             ///< latency between two hosts, without the work of cores; below 0: as CostModel has it
    double nic_gbps = 0;        ///< gigabytes a second of one card, one direction; 0: no limit
    int nics = 1;               ///< cards of a host; the rank at position p of its host uses card p mod nics
    bool rails = false;         ///< each card has switches of its own: messages to other cards leave all levels
    std::vector<Level> levels;  ///< from the hosts up
    int hosts = 0;              ///< that a file names; 0: as many as are asked for
    std::string left_out{};     ///< what a file has and this has not
    friend bool operator==(const Network&, const Network&) = default;
};

/// The names of the presets.
std::vector<std::string> network_names();
/// A preset. Precondition: `name` is in network_names().
Network network_named(std::string_view name);

/// The links of a network, and the way of a message. Hosts, and the switches of each level, may stand for others that
/// are used alike: then links are those of the first `hosts_played`.
class Links {
 public:
    Links(const Network& network, int hosts, int hosts_played);

    static constexpr int way_max = 10;
    struct Way {
        int links[way_max];
        int count = 0;
        double us = 0;  ///< latency of the levels
    };
    Way way(int from_host, int from_position, int to_host, int to_position) const;
    int count() const noexcept { return static_cast<int>(gbps_.size()); }
    double gbps(int link) const { return gbps_[static_cast<std::size_t>(link)]; }
    /// "card 0 of host 3, out".
    std::string name_of(int link) const;

 private:
    struct Stage {
        Level level;
        int switches = 0, played = 0;  ///< of one rail
        int rails = 1;
        int first_up = 0, first_down = 0;
    };
    const Network network_;
    int hosts_played_;
    std::vector<Stage> stages_;
    std::vector<double> gbps_;
};

/// Hosts after which all levels repeat: those below one switch of the highest level; 1 without levels.
int repeats_after(const Network& network);

}  // namespace tutti::simulate
