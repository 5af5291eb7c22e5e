// Answer: what a collective would do on a machine: who is played, when ranks are done, what they waited for.
#pragma once

#include "simulate/player.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace tutti::simulate {

struct Question {
    algorithm::Layout layout;  ///< of equal hosts, whose ranks are in order
    algorithm::Request request;
    algorithm::CostModel costs;
    Network network;
    Conditions conditions;  ///< without told_us
    int calls = 1;          ///< one behind the other: a rank begins the next when its part of the last is done
};

struct Answer {
    std::string algorithm, words;  ///< Cast::algorithm, Cast::words
    int played = 0;
    bool exact = true;
    std::uint64_t steps = 0;
    Played play;                       ///< of all calls
    double call_us = 0;                ///< the time of all calls by their number
    std::optional<double> formula_us;  ///< by algorithm/cost.hpp, which knows no links
    std::vector<double> told_us;       ///< with a kill: when each rank hears of it; the dead one: when it dies
    std::vector<schedule::StepKind> path_kinds;  ///< of the steps of Played::path
};

/// Throws InvalidArgument for a play that is too large (cast_of), and as algorithm::plan.
Answer answer(const Question& question, const Progress& progress = {});

/// When the ranks that finish are done, in ascending order.
std::vector<double> finish_times(const Answer& answer);

struct LinkUse {
    std::string name;
    double share = 0;  ///< of its capacity, from the start to the end; 0: it has no limit
    double bytes = 0, busy_us = 0;
};
/// At most so many links: those that carried the largest shares of their capacity first, those without a limit last.
std::vector<LinkUse> busiest_links(const Answer& answer, std::size_t most);

/// The costs of hosts behind a network: tcp_us is the network's latency and the work of the cores.
algorithm::CostModel costs_behind(const Network& network, algorithm::CostModel costs);

}  // namespace tutti::simulate
