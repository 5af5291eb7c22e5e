// Newcomers: processes that join a group which exists.
//
//     // a process that comes later                        // the ranks of the group, at the end of a step
//     tutti::ProcessGroup g = tutti::join({.place = store}); if (all_agree(tutti::newcomers_waiting({.place = store}) >
//     0)) g.adopt(weights);                                        g = g.grow({.place = store});
//                                                          g.adopt(weights);
//
// A newcomer waits in a place, which is a part of a store. The group's ranks work on until they call
// ProcessGroup::grow, all together; then all form a new group, with a world of its own: connections, memory, number.
// Until it exists, the old group is as it was; afterwards both work, and the old one is destroyed when it is not
// needed.
#pragma once

#include <tutti/export.hpp>
#include <tutti/process_group.hpp>
#include <tutti/store.hpp>

#include <any>
#include <chrono>
#include <optional>
#include <string>

namespace tutti {

/// Where newcomers wait; equal for them and for the group's ranks.
struct NewcomersPlace {
    Store place;  ///< reachable from all ranks and newcomers; it has to outlive the ranks, as the store of `tutti run`
                  ///< does
    std::string name = "newcomers";  ///< tells the waiting rooms of several groups in one store apart
};

struct JoinOptions {
    Store place{};  ///< as NewcomersPlace
    std::string name = "newcomers";
    /// How long to wait for a group to take this process in, and how long making the group may take then.
    std::chrono::milliseconds timeout = default_timeout;
    std::string label{};    ///< this process, in the log of the rank that takes it in; default: "process PID of HOST"
    std::any pg_options{};  ///< for the constructor of the group's backend
    std::string listen_host{};  ///< as ProcessGroupOptions::listen_host
};

/// Waits until a group takes this process in, and returns the new group. Its name, timeout, transport, determinism and
/// backend are those of the group that grows.
///
/// errors   Timeout: no group took this process in; it waits no longer. The error of grow(), with the same message as
///          on the group's ranks, where the new group could not be made. Aborted after SIGINT. InvalidArgument, the
///          store's.
/// cost     seven store requests, and those of joining a world. Threads: any.
TUTTI_API ProcessGroup join(const JoinOptions& options);

/// How many processes wait there now. Any process may ask; ranks that decide by it have to share one answer.
TUTTI_API int newcomers_waiting(const NewcomersPlace& place);

}  // namespace tutti
