#include "group/slot_collectives.hpp"

#include "core/assert.hpp"
#include "engine/slots-inl.hpp"

namespace tutti::detail {

using engine::CollectiveCall;
using engine::SlotState;

SlotCollectives::SlotCollectives(const Parts& parts)
    : ranks_(parts.ranks),
      memory_(parts.memory),
      recorder_(parts.recorder),
      inquiry_(parts.inquiry),
      flight_(parts.flight),
      agreement_(parts.agreement) {
    if (memory_.is_of_all()) slots_.emplace(*memory_.arena(), ranks_.rank(), ranks_.size(), &parts.copy);
}

SlotState SlotCollectives::begin(const CollectiveCall& call) {
    TUTTI_ASSERT(slots_.has_value());
    return slots_->begin(call, agreement_.digest());
}

bool SlotCollectives::advance(const CollectiveCall& call, SlotState& state, std::uint64_t sequence,
                              record::Ticket& ticket) {
    TUTTI_ASSERT(slots_.has_value() && sequence > 0);
    Events events{*this, call, sequence, ticket};
    return slots_->advance(call, state, events);
}

}  // namespace tutti::detail
