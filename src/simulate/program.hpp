// Program: a rank's schedule as the player runs it: its steps with their costs, and which steps each one holds back.
// Peers are named by their distance, so that ranks that do the same share a program. Values.
#pragma once

#include "algorithm/step_cost.hpp"
#include "schedule/schedule.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace tutti::simulate {

/// Ranks that call a collective together: `size` of them, each `stride` ranks behind the last. All `ranks` are in such
/// groups: rank r is number r / stride % size of its own.
struct Spread {
    int ranks = 1, size = 1, stride = 1;
    static Spread all(int ranks) { return {ranks, ranks, 1}; }
    /// One group reaches over all ranks, so that each rank has a neighbour at each multiple of the stride.
    bool spans() const { return cluster() == ranks; }
    /// After how many ranks the groups repeat.
    int cluster() const { return size * stride; }
    int number(int rank) const { return rank / stride % size; }
    int group(int rank) const { return rank / cluster() * stride + rank % stride; }
    /// From one member to another, in ranks, modulo all of them.
    int distance(int from, int to) const {
        return spans() ? (to - from + size) % size * stride : ((to - from) * stride + ranks) % ranks;
    }
    friend bool operator==(const Spread&, const Spread&) = default;
};

struct Op {
    schedule::StepKind kind = schedule::StepKind::copy;
    std::uint32_t peer = 0;    ///< messages: in Program::to of a send, Program::from of a receive
    std::uint32_t number = 0;  ///< messages: how many of the same peer and direction are before it
    std::uint32_t round = 0;
    std::uint32_t step = 0;                              ///< its number in the schedule
    std::uint32_t first_next = 0, next_count = 0;        ///< Program::next: ops that wait for this one
    std::uint32_t first_watched = 0, watched_count = 0;  ///< Program::watched: whose publications it needs
    std::uint32_t waits = 0;                             ///< ops that this one waits for
    float bytes = 0;                                     ///< of a message, or of a publication
    float work_us = 0;
    friend bool operator==(const Op&, const Op&) = default;
};

struct Program {
    /// The messages to or from one rank, in order.
    struct Peer {
        int distance = 0;  ///< the peer's rank behind this one, modulo the number of ranks
        std::vector<std::uint32_t> ops;
        friend bool operator==(const Peer&, const Peer&) = default;
    };
    std::vector<Op> ops;
    std::vector<std::uint32_t> next;
    std::vector<int> watched;  ///< distances
    std::vector<Peer> to, from;
    std::uint32_t rounds = 0;  ///< of publications, or of signals in place
    bool in_slots = false;
    friend bool operator==(const Program&, const Program&) = default;
};

/// `rank`: whose schedule it is, in its group.
Program compile(const schedule::Schedule& schedule, Rank rank, const Spread& spread, std::uint64_t element_bytes,
                const algorithm::StepCosts& costs);

/// The same call `calls` times: a rank begins the next one when its part of the one before is done.
Program repeated(const Program& once, int calls);

/// How much two programs differ.
enum class Likeness {
    same,      ///< not at all
    rounded,   ///< messages differ by at most `slack` bytes, and work by what these cost
    ordered,   ///< and steps wait for other steps of the same rank
    different  ///< they have other steps
};
Likeness likeness(const Program& a, const Program& b, double slack);

}  // namespace tutti::simulate
