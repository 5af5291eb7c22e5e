// BlockSizePredictor: predicts the slot size with which ranks try to relay the blocks of the next all_to_all
// (BruckExchange). No rank knows the others' block lengths in advance, but all must choose the same size: so the
// prediction uses only the lengths of earlier calls, which all ranks have learnt. A value; equal on all ranks of a
// group, which make the same calls of it in the same order.
#pragma once

#include "core/assert.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>

namespace tutti::detail {

class BlockSizePredictor {
 public:
    /// The sizes of slots: 16, 64, 256, 1024 bytes.
    static constexpr std::uint64_t least_room = 16, step = 4, most_room = 1024;

    /// `limit`: the largest slot size that is still quicker than a schedule; one of the sizes above.
    explicit BlockSizePredictor(std::uint64_t limit) : limit_(limit), room_(limit) {
        TUTTI_ASSERT(limit >= least_room && limit <= most_room && room_for(limit) == limit);
    }

    /// The slot size, in bytes, to try for the next call; empty: do not try, since the last blocks did not fit. The
    /// more calls in a row did not fit, the more calls are skipped.
    std::optional<std::uint64_t> next() noexcept {
        TUTTI_ASSERT(skipped_ <= misses_max && room_ >= least_room && room_ <= limit_);
        if (skipped_ == 0) return room_;
        --skipped_;
        return std::nullopt;
    }
    /// Call this after each call for which relaying was tried. `longest`: the length, in bytes, of the longest block of
    /// any rank.
    void learn(std::uint64_t longest) noexcept {
        TUTTI_ASSERT(skipped_ == 0 && shorter_ < patience);
        if (longest > limit_) {
            misses_ = std::min(2 * misses_ + 1, misses_max);
            skipped_ = misses_;
            return;
        }
        misses_ = 0;
        shorter_room_ = std::max(shorter_room_, room_for(longest));
        ++shorter_;
        if (shorter_room_ < room_ && shorter_ < patience) return;
        room_ = shorter_room_;
        TUTTI_ASSERT(room_ >= least_room && room_ <= limit_);
        shorter_room_ = shorter_ = 0;
    }

    static constexpr std::uint64_t room_for(std::uint64_t bytes) noexcept {
        std::uint64_t room = least_room;
        while (room < bytes) room *= step;
        TUTTI_ASSERT(room >= least_room);
        return room;
    }

 private:
    static constexpr std::uint64_t misses_max = 63;  // calls: one of 64 is tried although blocks are too long
    static constexpr std::uint64_t patience = 16;    // calls with shorter blocks until slots get smaller

    std::uint64_t limit_, room_;
    std::uint64_t misses_ = 0, skipped_ = 0;
    std::uint64_t shorter_ = 0, shorter_room_ = 0;  // since room_ changed: calls, and the size that held their blocks
};

}  // namespace tutti::detail
