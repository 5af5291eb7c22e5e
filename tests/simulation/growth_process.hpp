// A process of a GrowthWorld, as its parts see it. Threads: one.
#pragma once

#include "simulation/growth_world.hpp"

namespace tutti::simulation {

/// The ranks of a group call first within this time of each other.
constexpr Milliseconds first_calls_within(300);

struct GrowthWorld::Process {
    std::size_t number = 0;
    std::string label, host;
    std::optional<Seat> seat;  // nothing: a newcomer
    std::vector<Seat> seats;   // in all groups that it has met for
    int calls = 0, count = 0;
    bool is_patient = false;
    Milliseconds lag{0};    // of the lifelines of one rank of its group, behind which others are
    Milliseconds pause{0};  // before its first call
    bool is_alive = true, has_begun = false, is_done = false, has_store = true;
    std::optional<Instant> stopped_until{};
    Milliseconds stopped{0};  // all in all
    int requests = 0, dies_at = -1;
    bool last_request_counts = false;  // of one that dies
    std::optional<rendezvous::StoreTalk<bool>> talk;
    rendezvous::TalkLine line;
    std::uint64_t serial = 0;
    bool waits = false;
    Instant call_began{};
    std::map<std::string, std::string> wills;
    std::unique_ptr<Training> training;
};

}  // namespace tutti::simulation
