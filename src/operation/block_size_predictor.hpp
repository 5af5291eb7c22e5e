// BlockSizePredictor: the length up to which ranks pass on the blocks of the next all_to_all for each other
// (group/bruck_exchange). No rank knows others' blocks beforehand, but all have to go the same way: so all start from
// the lengths that all have learnt from earlier calls. A value; equal on all ranks of a group, which make the same
// calls of it in the same order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

namespace tutti::detail {

class BlockSizePredictor {
 public:
    /// The sizes of slots: 16, 64, 256, 1024 bytes.
    static constexpr std::uint64_t least_room = 16, step = 4, most_room = 1024;

    /// `limit`: the largest slot that is worth while; one of these sizes.
    explicit BlockSizePredictor(std::uint64_t limit) : limit_(limit), room_(limit) {}

    /// Of the next call: bytes of the slots in which to try blocks; empty: none, as the last blocks did not fit. The
    /// more often they did not, the longer this lasts.
    std::optional<std::uint64_t> next() noexcept {
        if (skipped_ == 0) return room_;
        --skipped_;
        return std::nullopt;
    }
    /// Of a call that was tried: bytes of the longest block of any rank.
    void learn(std::uint64_t longest) noexcept {
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
        shorter_room_ = shorter_ = 0;
    }

    static constexpr std::uint64_t room_for(std::uint64_t bytes) noexcept {
        std::uint64_t room = least_room;
        while (room < bytes) room *= step;
        return room;
    }

 private:
    static constexpr std::uint64_t misses_max = 63;  // calls: one of 64 is tried in vain
    static constexpr std::uint64_t patience = 16;    // calls with shorter blocks until slots get smaller

    std::uint64_t limit_, room_;
    std::uint64_t misses_ = 0, skipped_ = 0;
    std::uint64_t shorter_ = 0, shorter_room_ = 0;  // since slots changed: calls, and the slots that did for them
};

}  // namespace tutti::detail
