// The contents of a slot of a short collective. Each rank of a host writes the bytes that the others need from it into
// its own slot, and reads the others' slots (engine/slots). Planner and engine both use these sizes. Pure functions;
// equal on all ranks for equal calls.
#pragma once

#include "core/assert.hpp"
#include "schedule/schedule.hpp"

#include <cstddef>
#include <cstdint>

namespace tutti::schedule {

/// Whether each rank gets a different block of one rank's values. The contributor's own block stays in its buffer.
constexpr bool splits(Collective collective) {
    return traits_of(collective).input == CollectiveTraits::Extent::all_blocks;
}

/// How many blocks one rank writes into its slot.
constexpr std::size_t blocks_in_slot(Collective collective, int ranks) {
    TUTTI_ASSERT(ranks > 0);
    if (splits(collective)) return static_cast<std::size_t>(ranks) - 1;
    if (traits_of(collective).exchanges() && collective != Collective::gather_v) return static_cast<std::size_t>(ranks);
    return collective == Collective::barrier ? 0 : 1;
}

/// Bytes of a slot. A schedule for an all_to_all of three ranks or more synchronises every pair of ranks: as long as
/// the blocks stay in the cache, slots are faster (eight ranks on two cores, 32 KB per rank: 50 us instead of 115).
constexpr std::size_t slot_bytes(Collective collective, int ranks) {
    return collective == Collective::all_to_all && ranks > 2 ? 131072 : 32768;
}

/// The length in bytes of the longest block (or buffer) of a call that fits into slots.
constexpr std::uint64_t longest_in_slot(Collective collective, int ranks) {
    TUTTI_ASSERT(ranks > 0);
    // A longer scatter is cut into tiles; the others read one while the root writes the next.
    const std::size_t blocks =
        collective == Collective::scatter ? static_cast<std::size_t>(ranks) : blocks_in_slot(collective, ranks);
    return slot_bytes(collective, ranks) / (blocks == 0 ? 1 : blocks);
}

}  // namespace tutti::schedule
