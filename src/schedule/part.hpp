// Parts: collectives among some of a text's ranks. Each of these ranks has a line "use", which stands for the steps of
// its part.
//     use reduce_scatter direct 0,1 output[0:2] input[0:4]
// The caller of parse() supplies the algorithms (PartMaker); schedule/ has none. parse() expands a part into ordinary
// steps of the rank, so the prover, the engine and to_text() do not know parts. Values; threads: any.
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
    /// The elements of a whole buffer, or of each block of an all_to_all (all equal); else `counts` has each rank's
    /// block.
    std::uint64_t count = 0;
    std::vector<std::uint64_t> counts{};
};

/// Makes schedules of parts. Pure functions: schedules of parts that differ only in `me` match each other.
class PartMaker {
 public:
    PartMaker() = default;
    PartMaker(const PartMaker&) = delete;
    PartMaker& operator=(const PartMaker&) = delete;
    virtual ~PartMaker() = default;

    /// The names of the algorithms that can run the part with local steps and messages only.
    virtual std::vector<std::string> algorithms(const Part& part) const = 0;
    /// The schedule of the part by one of these algorithms.
    virtual Schedule schedule(const Part& part, std::string_view algorithm) const = 0;
};

/// Where a part goes in the text: its ranks, its output and its input. Output and input may share elements.
struct Placing {
    std::span<const Rank> ranks;
    Chunk target, source;
    bool finishes = false;  ///< its last combinations are the final ones of their elements (avg divides there)
};

/// Appends the steps of a part to a builder; its scratch elements follow the existing ones.
void put(Builder& builder, const Schedule& part, const Placing& placing);

}  // namespace tutti::schedule
