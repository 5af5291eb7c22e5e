// Looking at what a program's groups do: dumps of the flight recorder, counters, and hooks around operations.
//
// The recorder is always on: the last 4,096 operations of each group of this process. TUTTI_TRACE_DIR makes every
// process of a job write them to a folder, when a group fails or ends and on SIGUSR2; `tutti trace FOLDER` reads them.
// TUTTI_TRACE_FORMAT=torch adds files that PyTorch's torchfrtrace reads.
// TUTTI_METRICS_FILE makes a process write its counters every second. The functions here do the same from a program.
//
// Threads: any.
#pragma once

#include <tutti/export.hpp>
#include <tutti/process_group.hpp>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

/// Writes one file for each group of this process into the folder, which is made if need be; returns their paths.
/// Throws InvalidArgument, naming the file, when that cannot be done.
TUTTI_API std::vector<std::string> dump_trace(const std::string& folder, const std::string& reason = "asked for");

/// Writes what the groups of this process did in the form of PyTorch's flight recorder, one file for each rank of this
/// process in each world, "flight_WORLD_rank_RANK"; returns their paths. PyTorch's torchfrtrace reads a folder with the
/// files of all ranks. What each rank sent in an all_to_all is in it where TUTTI_TRACE_DIR is set. Throws as
/// dump_trace.
TUTTI_API std::vector<std::string> dump_flight_recorder(const std::string& folder);

/// What this rank has done in one group since the group was made.
struct GroupCounters {
    std::uint64_t issued = 0, completed = 0, failed = 0;  ///< operations
    /// That this rank put into collectives, sent or received. Of a quantised all_reduce half of what both its legs
    /// hold.
    std::uint64_t bytes = 0;
    double seconds = 0;            ///< from call to completion, of all that were not over in a moment
    std::vector<double> waited_s;  ///< by rank: how long it was waited for, in waits of more than some 10 ms
};
/// Of the default group, if none is given; throws InvalidArgument when there is none.
TUTTI_API GroupCounters group_counters(const ProcessGroup& group = {});
/// The counters of all groups of this process in Prometheus' text format.
TUTTI_API std::string prometheus_text();

/// Called around every call of a collective, a send or a receive, by the thread that calls; no lock is held. An
/// asynchronous operation may still be on its way when its call is over. Hooks must not throw.
struct OperationHooks {
    std::function<void(std::string_view operation)> before{};
    std::function<void(std::string_view operation, bool failed)> after{};  ///< `failed`: the call throws
};

/// The hooks are called as long as it lives. There may be several: the first made is called first before, last after.
class TUTTI_API OperationHookScope {
 public:
    explicit OperationHookScope(OperationHooks hooks);
    /// Waits for hooks of other threads that are running; so it must not be destroyed by a hook.
    ~OperationHookScope();
    OperationHookScope(const OperationHookScope&) = delete;
    OperationHookScope& operator=(const OperationHookScope&) = delete;

 private:
    std::uint64_t id_;
};

/// For bindings to other languages, whose programs are not where a return address leads: as long as it lives, the
/// records, dumps and verdicts of what this thread calls say that it was called at `place`, as "train.py:12 in step".
/// The text must stay as long as the process: a record may be looked at later. Null changes nothing.
class TUTTI_API CallSiteScope {
 public:
    explicit CallSiteScope(const char* place) noexcept;
    ~CallSiteScope();
    CallSiteScope(const CallSiteScope&) = delete;
    CallSiteScope& operator=(const CallSiteScope&) = delete;

 private:
    const void* outer_;
};

}  // namespace tutti
