// Contract: what the schedules of all ranks promise together. A text says it in its first lines, and the prover holds
// the schedules to it. A value.
#pragma once

#include "schedule/schedule.hpp"

#include <tutti/collectives.hpp>
#include <tutti/dtype.hpp>
#include <tutti/reduce_op.hpp>

#include <cstdint>
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
    bool in_place = false;  ///< output holds the input, where it may (CollectiveTraits::may_be_in_place)
    /// Types to which values may be rounded on their way; then all ranks have equal results all the same.
    std::vector<DType> rounds_to{};
    /// Functions that may change values on their way; then all ranks have equal results all the same.
    std::vector<std::string> calls{};
    /// Codes that stand for values on their way, and how often each contribution may become one: once for each leg.
    /// Then all ranks have equal results all the same.
    std::optional<CodeForm> codes{};
    std::uint64_t encodings = 0;
    /// What "combine" means in calls that a user's function combines; none: any.
    std::optional<ReduceOp::Kind> op{};
    bool single_rounding = false;  ///< every result comes out of one combining step
    bool rank_order = false;       ///< combined in the order 0, 1, …
    std::vector<int> host_of;      ///< the ranks of one host share a staging area
    std::uint32_t slots = 8;
    std::uint64_t slot_elements = 1;
};

}  // namespace tutti::schedule
