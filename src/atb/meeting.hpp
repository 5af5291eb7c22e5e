// Meeting: how the ranks of a domain find each other, according to its parameters.
//
// Threads: any.
#pragma once

#include <tutti/atb.hpp>

#include <chrono>
#include <exception>
#include <string>

namespace tutti::atb {

/// Joins all ranks of a domain; blocks until all have called it. `param` has been checked, and has no hcclComm. On
/// failure it notifies the ranks that wait for this one, and throws Error, or the errors of ProcessGroup's constructor.
ProcessGroup meet(const AllToAllVV2Param& param);

/// Call this for parameters that allow no domain: notifies the ranks that wait for this one, if this rank can find
/// them. Best effort, within a second.
void tell_others(const AllToAllVV2Param& param, const std::exception& error) noexcept;

/// The domain's name, for its group and for messages.
std::string name_of_domain(const AllToAllVV2Param& param);

/// The timeout for the ranks of a domain to meet, and for each operation.
std::chrono::milliseconds time_limit();

/// COMM_MULTI_THREAD: meet() and tell_others() among this process's threads.
ProcessGroup meet_among_threads(const AllToAllVV2Param& param);
void tell_threads(const AllToAllVV2Param& param, const std::exception& error);

/// Makes the group of a domain's ranks, which meet in `place`. `serves`: this process's store serves other processes.
ProcessGroup join(const AllToAllVV2Param& param, const Store& place, bool serves = false,
                  const std::string& listen_host = {});
/// Tells the ranks that meet in `place` that this one cannot join.
void say_failed(const Store& place, const AllToAllVV2Param& param, const std::exception& error) noexcept;

}  // namespace tutti::atb
