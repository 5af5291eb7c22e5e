// Contract: what the schedules of all ranks together promise. A text declares it in its first lines, and the prover
// checks the schedules against it. A value.
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
    std::optional<DType> dtype{};       ///< of the calls; none: any type, and no schedule has a buffer with a type of
                                        ///< its own
    std::uint64_t count = 0;            ///< if buffers are not divided into blocks
    std::vector<std::uint64_t> counts;  ///< of each rank's block, if there are blocks
    std::vector<std::vector<std::uint64_t>> matrix;  ///< all_to_all: matrix[from][to]
    /// all_to_all: where blocks begin, [rank][peer]. Empty: blocks adjoin, in the order of ranks.
    std::vector<std::vector<std::uint64_t>> send_offsets, receive_offsets;
    bool in_place = false;  ///< the output buffer holds the input, if CollectiveTraits::may_be_in_place
    /// Types to which steps may round values in transit; all ranks must still get equal results.
    std::vector<DType> rounds_to{};
    /// Functions that may change values in transit; all ranks must still get equal results.
    std::vector<std::string> calls{};
    /// Codes that may represent values in transit, and how many times one contribution may be encoded at most (2: on
    /// the way to the rank that combines it, and again in the result). All ranks must still get equal results.
    std::optional<CodeForm> codes{};
    std::uint64_t encodings = 0;
    /// What "combine" means if a user's function combines; nullopt: any operation.
    std::optional<ReduceOp::Kind> op{};
    bool single_rounding = false;  ///< one combining step makes each result
    bool rank_order = false;       ///< combining steps take ranks in the order 0, 1, …
    std::vector<int> host_of;      ///< by rank; the ranks of one host share a staging area
    std::uint32_t slots = 8;
    std::uint64_t slot_elements = 1;
};

}  // namespace tutti::schedule
