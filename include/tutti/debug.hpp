// Debugging: how much is logged and checked, and a breakpoint for one rank of many.
//
// Threads: any.
#pragma once

#include <tutti/export.hpp>
#include <tutti/process_group.hpp>

namespace tutti {

/// How much tutti checks. The log's level follows: where TUTTI_LOG_LEVEL (or TORCH_CPP_LOG_LEVEL) is INFO, `info` makes
/// it DEBUG and `detail` TRACE; other levels stay as they are.
enum class DebugLevel {
    off,
    info,
    detail,  ///< before each collective on tensors, all ranks compare the calls that they are about to make; see below
};

/// The level of this process. Until it is set, it comes from the environment: TUTTI_DISTRIBUTED_DEBUG, else
/// TORCH_DISTRIBUTED_DEBUG, OFF, INFO or DETAIL; without either, or with another value there, off.
///
/// At `detail` a collective, also an asynchronous one, first waits for all ranks of its group, at most its timeout, and
/// names the ranks that do not arrive, as monitored_barrier does. Then all compare the function that they call and
/// everything on which ranks must agree, whatever backend runs it: element counts, types, operators, roots, kinds of
/// device, the lengths of all blocks, and of an all_to_all what each pair exchanges. If they differ, every rank throws
/// CollectiveMismatch with the calls of all ranks, and the group stays usable. With TORCH_SHOW_CPP_STACKTRACES=1 each
/// logs its call site. The level must be the same on all ranks; `detail` slows every collective down.
TUTTI_API DebugLevel get_debug_level() noexcept;
TUTTI_API void set_debug_level(DebugLevel level) noexcept;
/// Reads the environment again. Throws InvalidArgument for a value that is no level. init_process_group does it, unless
/// the level has been set before.
TUTTI_API void set_debug_level_from_env();

/// Stops the process of one rank for a debugger, while the others wait. All ranks of the group call it, with the same
/// `rank`; the first `skip` calls of a process do nothing.
///
/// Where a debugger is attached to that process, it stops there. Otherwise stderr says how to attach one, and the rank
/// waits until that has happened, for as long as it takes. Meanwhile its standard input is the terminal, if it has one.
/// The other ranks go on when the debugger lets it continue.
/// Throws InvalidArgument for a rank that is not in the group, or a negative `skip`; otherwise the errors of a barrier.
TUTTI_API void breakpoint(int rank = 0, int skip = 0, ProcessGroup group = {});

}  // namespace tutti
