// Hosts: a hostfile, and which of its hosts a job takes. Free functions; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tutti::launch {

struct Host {
    std::string name;        ///< as ssh takes it; may be user@host
    std::vector<int> slots;  ///< by number; a rank runs in each
    bool chosen = false;     ///< whether the slots were named one by one (--include, --exclude)
};

/// Lines "host slots=N"; empty lines and text after "#" do not count; without slots=: one. Throws InvalidArgument that
/// names the file and the line for one that is wrong or a host that comes twice.
std::vector<Host> read_hostfile(const std::string& path);

struct HostSelection {
    std::string include, exclude;  ///< HOST[:SLOT,SLOT...][@HOST...]; at most one of them
    int hosts = 0;                 ///< the first so many; 0: all
    int ranks = 0;                 ///< the first so many slots of each; 0: all
};
/// The hosts that remain, none of them without slots. Throws InvalidArgument that names the option. Follows DeepSpeed's
/// launcher.
std::vector<Host> select_hosts(std::vector<Host> hosts, const HostSelection& selection);

}  // namespace tutti::launch
