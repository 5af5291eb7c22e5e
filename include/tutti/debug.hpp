// Debugging: how much is logged and checked, and a breakpoint for one rank of many.
//
// Threads: any.
#pragma once

#include <tutti/export.hpp>
#include <tutti/process_group.hpp>

namespace tutti {

/// How much tutti checks. If TUTTI_LOG_LEVEL (or TORCH_CPP_LOG_LEVEL) is INFO, debug level `info` also changes the log
/// level to DEBUG, and `detail` to TRACE; other log levels do not change.
enum class DebugLevel {
    off,
    info,
    detail,  ///< before each collective on tensors, all ranks compare the calls that they are about to make; see below
};

/// The level of this process. Until it is set, it comes from the environment: TUTTI_DISTRIBUTED_DEBUG, else
/// TORCH_DISTRIBUTED_DEBUG, one of OFF, INFO and DETAIL; off if neither is set, or has another value.
///
/// At `detail` a collective, also an asynchronous one, first waits for all ranks of its group, at most its timeout, and
/// names the ranks that do not arrive, as monitored_barrier does. Then all ranks compare the function that they call
/// and every argument that must agree, whatever backend runs it: element counts, types, operators, roots, kinds of
/// device, the lengths of all blocks, and of an all_to_all the counts of each pair. If they differ, every rank throws
/// CollectiveMismatch with the calls of all ranks, and the group stays usable. With TORCH_SHOW_CPP_STACKTRACES=1 each
/// rank logs its call site. The level must be the same on all ranks; `detail` slows every collective down.
TUTTI_API DebugLevel get_debug_level() noexcept;
TUTTI_API void set_debug_level(DebugLevel level) noexcept;
/// Sets the level from the environment again. Throws InvalidArgument for a value that is no level. init_process_group
/// calls it, unless the level has been set before.
TUTTI_API void set_debug_level_from_env();

/// Stops the process of one rank for a debugger, while the others wait. All ranks of the group call it, with the same
/// `rank`; the first `skip` calls of a process do nothing.
///
/// If a debugger is attached to that rank's process, the process stops there. Otherwise stderr says how to attach one,
/// and the rank waits for that without a time limit. Meanwhile its standard input is the terminal, if it has one. The
/// other ranks continue when the debugger lets the rank continue.
TUTTI_API void breakpoint(int rank = 0, int skip = 0, ProcessGroup group = {});

}  // namespace tutti
