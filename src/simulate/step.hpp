// Step: a whole step of a program, of pieces of computing and collectives that wait for each other; and its play.
//
// Each rank computes one piece after the other, in the order of the list, each as soon as the pieces are done for which
// it waits. The collectives of one group run one after the other too, as the library runs them, beside the computing:
// each begins on a rank when the pieces are done there for which it waits. Each collective is played by the player
// (player.hpp) with the times at which its ranks begin, so that late ranks delay others as its schedule has it; all
// groups of one kind are played together and share the links. Where collectives of groups of different kinds overlap,
// all collectives of the step are played at once on one machine (machine.hpp), and share links and cores. Otherwise one
// that begins on some ranks while the one before it still runs on others shares nothing with that.
// Values and pure functions.
#pragma once

#include "simulate/answer.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::simulate {

struct WholeStep {
    /// A collective, as pieces use it. The request is for a group of `spread.size` ranks.
    struct Call {
        algorithm::Request request;
        Spread spread;
        std::size_t group = 0;  ///< in `groups`
    };
    struct Piece {
        std::string name;
        double compute_us = 0;             ///< of a piece of computing
        int call = -1;                     ///< in `calls`; -1: it computes
        std::vector<std::uint32_t> after;  ///< pieces before it in the list
    };
    std::vector<std::string> groups;
    std::vector<Call> calls;
    std::vector<Piece> pieces;
};

struct StepQuestion {
    WholeStep step;
    algorithm::Layout layout;  ///< of all ranks, on equal hosts, in order
    algorithm::CostModel costs;
    Network network;
    Conditions conditions;  ///< without a kill
};

/// When a piece runs on each played rank.
struct PieceTimes {
    std::vector<double> begin_us, end_us;
    std::vector<Rank> last;  ///< of a collective: who of the rank's group began last
};

/// What all pieces of one name cost a rank, on average over the ranks.
struct NamedCost {
    std::string name;
    bool computes = false;
    int count = 0;
    double busy_us = 0;     ///< in which they run
    double exposed_us = 0;  ///< of that: in which the rank's computing waits for them
    double late_us = 0;     ///< of that: until the last rank of the group has begun too
    Rank late_rank = -1;    ///< for which the others waited longest; -1: for none
};

/// A part of the way to the end of the step: `piece` on `rank`, from when the part before it ends.
struct Hop {
    std::size_t piece = 0;
    Rank rank = 0;
    double from_us = 0, to_us = 0;
};

struct StepAnswer {
    int ranks = 0, played = 0;       ///< rank r has the times of rank r mod played
    std::vector<std::string> words;  ///< by call: its algorithm, and who is played
    std::vector<PieceTimes> pieces;  ///< by piece
    std::vector<double> finish_us;   ///< by played rank
    double step_us = 0;              ///< until the last rank is done
    Rank last = 0;
    double compute_us = 0;                 ///< of a rank, on average
    double hidden_us = 0, exposed_us = 0;  ///< communication beside computing, and without; on average
    std::vector<NamedCost> costs;          ///< by name, in the order of the list
    std::vector<Hop> path;                 ///< on which the last rank waited, first to last
    std::uint64_t steps = 0;               ///< of schedules, played
    std::string at_once{};                 ///< how collectives that overlap are played; empty: there are none
};

/// Throws InvalidArgument for groups that do not fit the hosts, and for plays that are too large.
StepAnswer answer(const StepQuestion& question, const Progress& progress = {});

/// The layout of one group. Throws InvalidArgument, naming `group`, where its ranks are not equally many on each host.
algorithm::Layout layout_of(const Spread& spread, const algorithm::Layout& world, const std::string& group);

}  // namespace tutti::simulate
