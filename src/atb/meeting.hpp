// Meeting: how the ranks of a domain come together, by its parameters.
//
// Threads: any.
#pragma once

#include <tutti/atb.hpp>

#include <chrono>
#include <exception>
#include <string>

namespace tutti::atb {

/// Joins all ranks of a domain. `param` has been checked, and has no hcclComm. Throws Error, and the errors of
/// ProcessGroup's constructor; it tells the ranks that wait for this one.
ProcessGroup meet(const AllToAllVV2Param& param);

/// For parameters of which no domain can be made: tells the ranks that wait for this one, if it can find them. Best
/// effort, within a second.
void tell_others(const AllToAllVV2Param& param, const std::exception& error) noexcept;

/// The domain's name as a group and in messages.
std::string name_of_domain(const AllToAllVV2Param& param);

/// The time that a domain's ranks have to come together, and that each operation has.
std::chrono::milliseconds time_limit();

/// COMM_MULTI_THREAD: the meeting of this process's threads.
ProcessGroup meet_among_threads(const AllToAllVV2Param& param);
void tell_threads(const AllToAllVV2Param& param, const std::exception& error);

/// A group of its ranks, which meet in `place`. `serves`: for other processes.
ProcessGroup join(const AllToAllVV2Param& param, const Store& place, bool serves = false,
                  const std::string& listen_host = {});
/// Tells the ranks that meet in `place` that this one cannot join.
void say_failed(const Store& place, const AllToAllVV2Param& param, const std::exception& error) noexcept;

}  // namespace tutti::atb
