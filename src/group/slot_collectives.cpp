#include "group/slot_collectives.hpp"

#include "algorithm/select.hpp"
#include "engine/slots-inl.hpp"

#include <algorithm>

namespace tutti::detail {

using engine::CollectiveCall;
using engine::SlotState;

SlotCollectives::SlotCollectives(const Parts& parts)
    : ranks_(parts.ranks),
      planner_(parts.planner),
      memory_(parts.memory),
      recorder_(parts.recorder),
      inquest_(parts.inquest),
      flight_(parts.flight),
      agreement_(parts.agreement) {
    if (memory_.is_of_all()) slots_.emplace(*memory_.arena(), ranks_.rank(), ranks_.size(), &parts.copy);
    for (int c = 1; c <= collective_count; ++c) choose_sizes(static_cast<Collective>(c));
}

void SlotCollectives::choose_sizes(Collective collective) {
    short_sizes_[static_cast<std::size_t>(collective)] =
        slots_ ? algorithm::slot_sizes(planner_.layout(), collective, planner_.named(collective))
               : std::vector<algorithm::SlotSizes>();
}

bool SlotCollectives::is_short(Collective collective, std::uint64_t block_bytes) const noexcept {
    for (const auto& [from, to] : short_sizes_[static_cast<std::size_t>(collective)]) {
        if (block_bytes >= from && block_bytes <= to) return true;
    }
    return false;
}

// Rules are for blocks of one length. For blocks of different lengths the longest decides, up to the longest block with
// which an even call can be short.
bool SlotCollectives::blocks_fit(const CollectiveCall& call) const noexcept {
    if (call.send_counts.empty()) return is_short(call.collective, call.block_bytes) && slots_->blocks_fit(call);
    if (!slots_ || !slots_->blocks_fit(call)) return false;
    std::uint64_t longest = 0;
    for (int peer = 0; peer < ranks_.size(); ++peer) longest = std::max(longest, call.sent_to(peer));
    return is_short(call.collective, std::min(longest, schedule::longest_in_slot(call.collective, ranks_.size())));
}

// Ranks decide alike, but for an all_to_all's blocks: a rank whose own do not fit says so in its slot.
bool SlotCollectives::take(Operation& operation) const {
    if (!slots_ || operation.quantized) return false;
    CollectiveCall& call = operation.call;
    if (call.collective != Collective::all_to_all) return is_short(call.collective, call.block_bytes);
    call.large = !blocks_fit(call);
    return true;
}

SlotState SlotCollectives::begin(const CollectiveCall& call) {
    return slots_->begin(call, agreement_.digest());
}

bool SlotCollectives::advance(const CollectiveCall& call, SlotState& state, std::uint64_t sequence,
                              record::Ticket& ticket) {
    Events events{*this, call, sequence, ticket};
    return slots_->advance(call, state, events);
}

}  // namespace tutti::detail
