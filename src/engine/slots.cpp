#include "engine/slots-inl.hpp"

#include "core/assert.hpp"

namespace tutti::engine {

using transport::RankControl;
using transport::SmallSlot;

// Two ranks that take turns have the lines that they write in their caches: there stores around the cache gain nothing.
void Slots::copy_payload(const CollectiveCall& call, std::byte* to, const std::byte* from, std::size_t bytes) const {
    TUTTI_ASSERT(bytes == 0 || (to != nullptr && from != nullptr));
    const bool in_turn = size_ == 2 && !slots::one_way(call.collective);
    transport::copy_staged(in_turn ? nullptr : copy_, to, from, bytes);
}

// Others' blocks, `bytes` in all, one after the other: two ranks, which take turns with the area, write the lines that
// they have read.
void Slots::publish_parts(const CollectiveCall& call, std::byte* to, std::size_t bytes) const {
    TUTTI_ASSERT(to != nullptr);
    TUTTI_ASSERT(static_cast<std::size_t>(rank_) * call.block_bytes <= bytes);
    const auto write = [&](std::byte* at, const std::byte* from, std::size_t count) {
        if (bytes <= SmallSlot::payload_bytes)
            slots::copy_few(at, from, count);
        else if (count > 0)
            copy_payload(call, at, from, count);
    };
    const std::size_t before = static_cast<std::size_t>(rank_) * call.block_bytes;
    write(to, call.input, before);
    write(to + before, call.input + before + call.block_bytes, bytes - before);
}

bool Slots::awaits(const CollectiveCall& call, const SlotState& state, int peer) const noexcept {
    TUTTI_ASSERT(peer >= 0 && peer < size_);
    return slots::needs(call.collective, call.root, peer, rank_) && !head(state, peer).holds(state.sequence);
}

void Slots::add_waits(const CollectiveCall& call, const SlotState& state, std::vector<int>& ranks) const {
    for (int peer = 0; peer < size_; ++peer) {
        if (peer == rank_) continue;
        const bool absent = state.published ? awaits(call, state, peer)
                                            : arena_->control(peer).small_begun.load() + ahead_ / 2 < state.sequence;
        if (absent) ranks.push_back(peer);
    }
}

}  // namespace tutti::engine
