#include "rendezvous/attempt.hpp"

#include "core/assert.hpp"
#include "core/log.hpp"
#include "rendezvous/world_meeting.hpp"

#include <fmt/format.h>

#include <utility>

namespace tutti::rendezvous {

Attempt::Attempt(Store store, std::string name, Worlds worlds)
    : whole_(std::move(store)), name_(std::move(name)), worlds_(worlds) {}

MeetingTerms Attempt::terms(int rank, int world_size) const {
    const bool makes_sense = rank >= 0 && rank < world_size;
    return {.place = whole_,
            .name = (worlds_ == Worlds::one ? "group/" : "world/") + name_,
            .rank = rank,
            .size = world_size,
            .operation = "init",
            .about = makes_sense ? fmt::format("of {} ranks", world_size) : "",
            .once = worlds_ == Worlds::one};
}

MeetingTerms Attempt::begin(int rank, int world_size) {
    TUTTI_ASSERT(whole_ && rank >= 0 && rank < world_size && !has_begun_);
    has_begun_ = true;
    return terms(rank, world_size);
}

void Attempt::end(const Met& met) {
    TUTTI_ASSERT(has_begun_ && (met.attempt == 0) == (worlds_ == Worlds::one));
    number_ = met.attempt;
}

Store Attempt::store() const {
    if (worlds_ == Worlds::one) return whole_;
    TUTTI_ASSERT(number_ != 0);
    return PrefixStore(fmt::format("world/{}/{}", name_, number_), whole_);
}

void Attempt::say_failed(int rank, int world_size, const std::exception& error) noexcept {
    if (!whole_ || has_begun_) return;
    try {
        Meeting meeting = world_meeting(terms(rank, world_size), {});
        (void)carry_out(whole_, meeting, meeting.say_failed(error.what(), Meeting::may_leave_busy(error)));
    } catch (const std::exception& silent) {
        TUTTI_DEBUG("rank {} cannot tell the others that it does not join: {}", rank, silent.what());
    }
}

}  // namespace tutti::rendezvous
