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
#include "schedule/schedule.hpp"

#include <tutti/reduce_op.hpp>

#include <optional>
#include <string>
#include <vector>

namespace tutti::schedule {

/// The contract of a collective, in elements.
struct Contract {
    Collective collective = Collective::barrier;
    Rank root = 0;
    std::optional<DType> dtype{};       ///< of the calls; none: any, and no schedule has buffers of a type of its own
    std::uint64_t count = 0;            ///< where buffers are whole
    std::vector<std::uint64_t> counts;  ///< of each rank's block, where there are blocks
    std::vector<std::vector<std::uint64_t>> matrix;  ///< all_to_all: matrix[from][to]
    /// all_to_all: where blocks begin, [rank][peer]. Empty: one block after the other, in the order of ranks.
    std::vector<std::vector<std::uint64_t>> send_offsets, receive_offsets;
    bool in_place = false;  ///< all_reduce: output holds the input
    /// Types to which values may be rounded on their way; then all ranks have equal results all the same.
    std::vector<DType> rounds_to{};
    /// Functions that may change values on their way; then all ranks have equal results all the same.
    std::vector<std::string> calls{};
    /// What "combine" means in calls that a user's function combines; none: any.
    std::optional<ReduceOp::Kind> op{};
    bool single_rounding = false;  ///< every result comes out of one combining step
    bool rank_order = false;       ///< combined in the order 0, 1, …
    std::vector<int> host_of;      ///< the ranks of one host share a staging area
    std::uint32_t slots = 8;
    std::uint64_t slot_elements = 1;
};

/// The faults of these schedules (one per rank), in words; empty: proved. ProofTooLarge where the budget is spent.
std::vector<std::string> prove(const std::vector<Schedule>& schedules, const Contract& contract,
                               Budget budget = Budget::unlimited());

}  // namespace tutti::schedule
