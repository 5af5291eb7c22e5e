// Player: plays the programs of a cast on a model of hosts and network, by discrete events.
//
// The model is LogGP's, with shared links. A rank has one core, and does one step at a time: of those that can run the
// first in its program. Ranks of a host share its cores. A message takes the sender's core (overhead, and its bytes at
// the pace of one stream), its way through the links (capacity in equal shares, latency), and the receiver's core,
// which copies while bytes arrive if it has nothing else to do. Messages up to algorithm::longest_eager_bytes leave
// without the receiver; longer messages are announced and wait for the receive (transport/WIRE.md). All costs are those
// of algorithm/step_cost.hpp. Equal input gives equal output. Source: Alexandrov, Ionescu, Schauser, Scheiman, "LogGP"
// (1995).
#pragma once

#include "simulate/cast.hpp"
#include "simulate/flows.hpp"

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tutti::simulate {

/// How a play differs from the usual one: late ranks, slow links, disturbed cores, a death.
struct Conditions {
    std::vector<std::pair<Rank, double>> delays_us;  ///< ranks that begin later
    std::vector<double> begins_us{};                 ///< when each played rank begins; empty: at 0
    struct SlowLink {
        int a = 0, b = 0;  ///< hosts
        double share = 1;  ///< of the capacity between them that is left, in each direction
    };
    std::vector<SlowLink> slow_links;
    double jitter = 0;  ///< a step's work takes up to this share longer
    std::uint64_t seed = 1;
    struct Kill {
        Rank rank = 0;
        double us = 0;
    };
    std::optional<Kill> kill;
    std::vector<double> told_us{};  ///< with `kill`: when each rank hears of it, and stops
    bool usual() const { return delays_us.empty() && slow_links.empty() && jitter == 0 && !kill; }
};

/// `us`, up to `jitter` times longer, by a hash of the rest.
double varied(double us, double jitter, std::uint64_t seed, std::uint64_t rank, std::uint64_t op);

inline constexpr double never = std::numeric_limits<double>::infinity();

/// What one step was, and what it waited for last.
struct Moment {
    Rank rank = 0;
    std::uint32_t op = 0;  ///< in the rank's program
    double begin_us = 0, end_us = 0;
    double ready_us = 0;  ///< when it could have begun, had the core been free
};

struct Played {
    double end_us = 0;               ///< when the last rank is done; with a kill, of those that finish
    std::vector<double> finish_us;   ///< of each played rank; `never` where it does not finish
    std::vector<Flows::Use> links;   ///< by link
    std::vector<std::string> names;  ///< of the links
    std::vector<double> capacity_gbps;
    std::vector<Moment> path;  ///< the steps on which the last rank waited, first to last; empty beyond path_steps_max
    std::uint64_t messages = 0, events = 0;
    double bytes = 0;  ///< of messages of the played ranks, within hosts too
};

/// Plays of more steps keep no path.
inline constexpr std::uint64_t path_steps_max = 30'000'000;

/// How far a question is.
struct Reached {
    bool writes = false;  ///< schedules are generated, else they are played
    double share = 0;     ///< of the schedules, or of the steps
    double us = 0;        ///< the time that the play has reached
};
/// Called now and then.
using Progress = std::function<void(const Reached&)>;

/// `layout`, `costs`: as for the cast. Conditions that are not usual need a cast that plays all ranks.
Played play(const Cast& cast, const algorithm::Layout& layout, const algorithm::CostModel& model,
            const algorithm::StepCosts& costs, const Network& network, const Conditions& conditions,
            const Progress& progress);

}  // namespace tutti::simulate
