// Parts: collectives of some of a text's ranks, which a line "use" of each of them puts among their steps.
//
//     use reduce_scatter direct 0,1 output[0:2] input[0:4]
// The caller of parse() supplies the algorithms (PartMaker); this room has none. A part is expanded into ordinary steps
// of the rank, so the prover, the engine and to_text() do not know parts. Values; threads: any.
#pragma once

#include "schedule/builder.hpp"
#include "schedule/schedule.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::schedule {

/// One rank's part in a collective of ranks 0 … ranks-1. Counts are in elements.
struct Part {
    Collective collective = Collective::barrier;
    int ranks = 0;
    Rank me = 0, root = 0;
    /// Where buffers are whole, and of all_to_all, whose blocks are all alike; else `counts` has each rank's block.
    std::uint64_t count = 0;
    std::vector<std::uint64_t> counts{};
};

/// Makes schedules of parts. Pure functions: ranks with equal parts, but for `me`, get schedules that meet.
class PartMaker {
 public:
    PartMaker() = default;
    PartMaker(const PartMaker&) = delete;
    PartMaker& operator=(const PartMaker&) = delete;
    virtual ~PartMaker() = default;

    /// Names of the algorithms that serve it by local steps and messages alone.
    virtual std::vector<std::string> algorithms(const Part& part) const = 0;
    /// That of one of these algorithms.
    virtual Schedule schedule(const Part& part, std::string_view algorithm) const = 0;
};

/// Where a part is put: its ranks in the text, its output and its input. These may share elements.
struct Placing {
    std::span<const Rank> ranks;
    Chunk target, source;
    bool finishes = false;  ///< what its last combinations make is whole; else a later step's is
};

/// Writes the steps of a part into a builder, with its scratch elements behind those that are there.
void put(Builder& builder, const Schedule& part, const Placing& placing);

}  // namespace tutti::schedule
