// The prover: runs the schedules of all ranks together on symbols instead of numbers, and lists their faults.
//
// A symbol says which ranks' contributions an element holds and in which order they were combined. The prover checks
// that every result element is exactly what the collective promises; no step reads an element before it is written;
// every send matches a receive of the same count; no deadlock occurs even if no message is buffered; no rank reads or
// overwrites a staging slot too early; schedules in place have no races (races.hpp); `after` orders steps that touch
// the same elements; an average divides each result exactly once. A pure function; meant for small element counts.
#pragma once

#include "schedule/budget.hpp"
#include "schedule/contract.hpp"
#include "schedule/schedule.hpp"

#include <string>
#include <vector>

namespace tutti::schedule {

/// The faults of these schedules (one per rank), in words; empty: proved. Throws ProofTooLarge if the budget is
/// exceeded.
std::vector<std::string> prove(const std::vector<Schedule>& schedules, const Contract& contract,
                               Budget budget = Budget::unlimited());

}  // namespace tutti::schedule
