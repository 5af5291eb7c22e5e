// GrowthPlan: the group that the ranks of an old one and newcomers form, as its leader has written it; and the keys of
// the place in which newcomers wait.
//
// Threads: any; values.
#pragma once

#include <tutti/object_types.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::rendezvous {

struct GrowthPlan {
    std::string number;   ///< of the plans in this place; empty: the group stays as it is
    std::string problem;  ///< not empty: there will be no group
    std::string name, description, backend;
    std::int64_t leader = 0;              ///< the old rank that has made the plan
    std::vector<std::int64_t> old_ranks;  ///< for each rank: its number in the old group; of a newcomer -1 - its ticket
    std::int64_t timeout_ms = 0, joining_ms = 0, transport = 0, determinism = 0;

    int size() const { return static_cast<int>(old_ranks.size()); }
    /// Of a rank of the old group, or of a newcomer by its ticket.
    int rank_of(std::int64_t old_rank) const;
    int rank_of_ticket(std::int64_t ticket) const { return rank_of(ticket_as_rank(ticket)); }
    /// The lowest rank that is no newcomer.
    int senior() const;

    static std::int64_t ticket_as_rank(std::int64_t ticket) { return -1 - ticket; }
    /// The reverse; zero: a rank of the old group.
    static std::int64_t ticket_of(std::int64_t old_rank) { return old_rank < 0 ? -1 - old_rank : 0; }
};
TUTTI_OBJECT(GrowthPlan, number, problem, name, description, backend, leader, old_ranks, timeout_ms, joining_ms,
             transport, determinism);

/// The keys in the newcomers' place.
namespace growth_key {

inline constexpr const char* asked = "asked";  ///< the last ticket
inline constexpr const char* first = "first";  ///< before it all tickets have answers
inline constexpr const char* plans = "plans";  ///< the last plan
inline std::string who(std::int64_t ticket) {
    return "who/" + std::to_string(ticket);
}
inline std::string answer(std::int64_t ticket) {
    return "answer/" + std::to_string(ticket);
}
/// Written by the will of a newcomer, or by one that gives up: how it left.
inline std::string gone(std::int64_t ticket) {
    return "gone/" + std::to_string(ticket);
}
inline std::string plan(const std::string& number) {
    return "plan/" + number;
}
/// Written by the will of the rank that makes the plan.
inline std::string leader_gone(const std::string& number) {
    return "leader_gone/" + number;
}
/// What all keys of the new group's world begin with.
inline std::string world(const std::string& number) {
    return "world/" + number;
}
inline std::string outcome(const std::string& number) {
    return world(number) + "/outcome";
}

}  // namespace growth_key
}  // namespace tutti::rendezvous
