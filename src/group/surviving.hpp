// What the survivors of a group need of it to agree (rendezvous/survivors.hpp).
//
// Threads: any; free functions.
#pragma once

#include "group/group.hpp"
#include "rendezvous/survivors.hpp"

#include <chrono>
#include <optional>

namespace tutti::detail {

/// The part of the world's store that belongs to the group.
Store store_of(const Group& group);
/// `attempt`: how many times the ranks have asked for their survivors, equal on all of them. The group must outlive the
/// result.
rendezvous::SurvivorsTerms survivors_terms(const Group& group, int attempt, std::chrono::milliseconds timeout,
                                           std::optional<std::chrono::milliseconds> patience);

}  // namespace tutti::detail
