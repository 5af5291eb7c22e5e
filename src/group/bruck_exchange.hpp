// BruckExchange: the short blocks of an all_to_all over messages, which the ranks pass on for each other ("bruck"),
// many blocks in a message. The blocks differ, and no rank knows those of others; so each travels in a slot of one
// size, behind its length. Slots also say how long the longest block of their source is. In the end each rank has heard
// of all: if one did not fit, all know, and all go on with a schedule.
//
// It makes the call that passes the slots on, and reads what that has brought; it runs nothing. So a test needs no
// ranks.
//
// Threads: one at a time (the world's lock).
#pragma once

#include "algorithm/request.hpp"
#include "engine/call.hpp"
#include "engine/execution.hpp"
#include "operation/block_size_predictor.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace tutti::detail {

class BruckExchange {
 public:
    BruckExchange(int rank, int size) : rank_(rank), size_(size) {}

    /// Bytes of the slots in which to try the blocks of the next call of this type; nothing: blocks are not to be
    /// passed on. `largest`: the largest slots that are worth while, 0: none. Equal on all ranks. Blocks of one type
    /// are most likely as long as those before: often an all_to_all of counts comes before one of the counted values.
    std::optional<std::uint64_t> room_for(DType dtype, std::uint64_t largest);

    /// An all_to_all of slots: equal blocks, which lie in this object.
    struct Pass {
        algorithm::Request request;
        engine::Operands operands;
    };
    /// Fills the slots, of `room` bytes, with the blocks of a call. Then the pass is to be run, and end() follows.
    Pass begin(const engine::CollectiveCall& call, std::uint64_t channel, std::uint64_t room);

    struct Outcome {
        /// The first rank whose block for this one is not as long as this one expects.
        struct Difference {
            int peer = -1;
            std::uint64_t theirs = 0, mine = 0;  ///< bytes
        };
        std::optional<Difference> difference{};
        bool fitted = false;  ///< the output is there; else all ranks go on with a schedule
    };
    /// All slots have come.
    Outcome end(const engine::CollectiveCall& call);

 private:
    const int rank_, size_;
    std::map<DType, BlockSizePredictor> expected_;
    std::uint64_t room_ = 0;        // of the pass under way
    std::vector<std::byte> slots_;  // to all ranks, then from all ranks
};

}  // namespace tutti::detail
