// BruckExchange: relays the short blocks of an all_to_all over messages ("bruck"), many blocks per message. Blocks have
// different lengths, and no rank knows those of others; so each block travels in a slot of fixed size, after its
// length. Slots also carry the length of the longest block of their source. So at the end each rank knows whether any
// block did not fit; then all continue with a schedule.
//
// The class makes the call that relays the slots, and reads the received slots; it does not run the call, so it can be
// tested without other ranks.
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

    /// The slot size, in bytes, to try for the next call of this type; nullopt: do not relay. `largest`: the largest
    /// slot size with which relaying is faster, 0: none. Equal on all ranks. Each type has its own prediction: often an
    /// all_to_all of counts precedes one of the counted values.
    std::optional<std::uint64_t> room_for(DType dtype, std::uint64_t largest);

    /// The call that relays the slots: an all_to_all of equal blocks, which lie in the BruckExchange.
    struct Pass {
        algorithm::Request request;
        engine::Operands operands;
    };
    /// Fills the slots, of `room` bytes, with the blocks of a call. The caller runs the pass, then calls end().
    Pass begin(const engine::CollectiveCall& call, std::uint64_t channel, std::uint64_t room);

    struct Outcome {
        /// The first rank whose block for this rank has not the length that this rank expects.
        struct Difference {
            int peer = -1;
            std::uint64_t theirs = 0, mine = 0;  ///< bytes
        };
        std::optional<Difference> difference{};
        bool fitted = false;  ///< the output is complete; otherwise all ranks continue with a schedule
    };
    /// Call it when all slots have arrived.
    Outcome end(const engine::CollectiveCall& call);

 private:
    const int rank_, size_;
    std::map<DType, BlockSizePredictor> expected_;
    std::uint64_t room_ = 0;        // of the pass under way
    std::vector<std::byte> slots_;  // to all ranks, then from all ranks
};

}  // namespace tutti::detail
