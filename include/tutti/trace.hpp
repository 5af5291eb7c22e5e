// Observing the groups of a program: dumps of the flight recorder, counters, and hooks around operations.
//
// The recorder is always on and keeps the last 4,096 operations of each group of this process. TUTTI_TRACE_DIR makes
// every process of a job write them to a folder, when a group fails or ends and on SIGUSR2; `tutti trace FOLDER` reads
// them. TUTTI_TRACE_FORMAT=torch adds files that PyTorch's torchfrtrace reads.
// TUTTI_METRICS_FILE makes a process write its counters every second. The functions here do the same from a program.
//
// Threads: any.
#pragma once

#include <tutti/export.hpp>
#include <tutti/process_group.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

/// Writes one file for each group of this process into the folder, creating it if necessary; returns their paths.
/// Throws InvalidArgument that names the file when that fails.
TUTTI_API std::vector<std::string> dump_trace(const std::string& folder, const std::string& reason = "asked for");

/// Writes the record of this process's groups in the form of PyTorch's flight recorder, one file for each rank of this
/// process in each world, "flight_WORLD_rank_RANK"; returns their paths. PyTorch's torchfrtrace reads a folder with the
/// files of all ranks. The files contain the sizes that each rank sent in an all_to_all if TUTTI_TRACE_DIR is set.
/// Throws as dump_trace.
TUTTI_API std::vector<std::string> dump_flight_recorder(const std::string& folder);

/// Totals of this rank in one group since the group was made.
struct GroupCounters {
    std::uint64_t issued = 0, completed = 0, failed = 0;  ///< operations
    /// Bytes that this rank put into collectives, sent or received. A quantised all_reduce counts half of the bytes of
    /// both its legs.
    std::uint64_t bytes = 0;
    double seconds = 0;            ///< sum over operations, from call to completion; may omit very short ones
    std::vector<double> waited_s;  ///< by peer: how long this rank waited for it, in waits over 10 ms
};
/// The counters of `group`, or of the default group; throws InvalidArgument when there is none.
TUTTI_API GroupCounters group_counters(const ProcessGroup& group = {});
/// The counters of all groups of this process in Prometheus' text format.
TUTTI_API std::string prometheus_text();

/// tutti calls these around every collective, send and receive, on the calling thread, with no lock held. An
/// asynchronous operation may still be in flight when its call returns. Hooks must not throw.
struct OperationHooks {
    std::function<void(std::string_view operation)> before{};
    std::function<void(std::string_view operation, bool failed)> after{};  ///< `failed`: the call throws
};

/// While this object lives, tutti calls its hooks. With several scopes the `before` hooks run in the order in which the
/// scopes were made, the `after` hooks in the reverse order.
class TUTTI_API OperationHookScope {
 public:
    explicit OperationHookScope(OperationHooks hooks);
    /// Waits for running hooks of other threads, so a hook must not destroy it.
    ~OperationHookScope();
    OperationHookScope(const OperationHookScope&) = delete;
    OperationHookScope& operator=(const OperationHookScope&) = delete;

 private:
    std::uint64_t id_;
};

/// For bindings to other languages, where a return address does not identify the caller: a scope in which the records,
/// dumps and error messages of this thread's calls name `place` as the call site, such as "train.py:12 in step". The
/// text must live as long as the process, since records are read later. Null: no change.
class TUTTI_API CallSiteScope {
 public:
    explicit CallSiteScope(const char* place) noexcept;
    ~CallSiteScope();
    CallSiteScope(const CallSiteScope&) = delete;
    CallSiteScope& operator=(const CallSiteScope&) = delete;

 private:
    const void* outer_;
};

/// For bindings to other languages: the status pages of a process (TUTTI_STATUS_PORT) show the stacks of its threads,
/// and above them the text that `source` returns: the stacks in the other language, as lines. A thread of the library
/// calls `source`; it must return within `limit`, whatever the program does meanwhile, and must not throw.
TUTTI_API void set_stack_source(std::function<std::string(std::chrono::milliseconds limit)> source);

}  // namespace tutti
