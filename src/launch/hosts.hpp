// Hosts: reads a hostfile, and selects the hosts of a job from it. Free functions; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tutti::launch {

struct Host {
    std::string name;        ///< as ssh takes it; may be user@host
    std::vector<int> slots;  ///< their numbers; one rank runs in each
    bool chosen = false;     ///< --include or --exclude has removed some of its slots
};

/// Reads lines "host slots=N" (without slots=: one slot); ignores empty lines and text after "#". Throws
/// InvalidArgument that names the file and the line, for a wrong line or a repeated host.
std::vector<Host> read_hostfile(const std::string& path);

struct HostSelection {
    std::string include, exclude;  ///< HOST[:SLOT,SLOT...][@HOST...]; at most one of the two is set
    int hosts = 0;                 ///< how many hosts, the first ones; 0: all
    int ranks = 0;                 ///< how many slots of each host, the first ones; 0: all
};
/// The selected hosts, each with at least one slot. Throws InvalidArgument that names the option. Same rules as
/// DeepSpeed's launcher.
std::vector<Host> select_hosts(std::vector<Host> hosts, const HostSelection& selection);

}  // namespace tutti::launch
