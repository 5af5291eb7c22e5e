// The prover: runs the schedules of all ranks together on symbols instead of numbers, and lists the faults.
//
// A symbol says which ranks' contributions one element holds and in which order they were combined. Checked: every
// result element is exactly as the collective promises; no step reads an element before it is written; every send meets
// a receive of the same count; no deadlock even if no message is buffered; no rank reads or overwrites a staging slot
// too early; in place, no two ranks touch the same elements without order, one of them writing (races.hpp); steps that
// touch the same elements are ordered by `after`; avg is finished exactly once. A pure function; meant for small
// element counts.
#pragma once

#include "schedule/budget.hpp"
#include "schedule/contract.hpp"
#include "schedule/schedule.hpp"

#include <string>
#include <vector>

namespace tutti::schedule {

/// The faults of these schedules (one per rank), in words; empty: proved. ProofTooLarge where the budget is spent.
std::vector<std::string> prove(const std::vector<Schedule>& schedules, const Contract& contract,
                               Budget budget = Budget::unlimited());

}  // namespace tutti::schedule
