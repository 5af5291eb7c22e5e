// Cast: which ranks are played, and for which others each of them stands.
//
// Two symmetries make 100,000 ranks few. Ranks have the same steps as another one, with peers shifted (`twin_of`): then
// one schedule is generated for them. And where in addition the whole collective and the network look the same from
// ranks r and r + played, for all r, ranks 0 … played-1 are played, and each stands for those at multiples of `played`
// behind it: their times are equal. Which algorithms are symmetric is known by name, proved by this room's tests for
// small numbers of ranks, and checked for a few ranks each time.
#pragma once

#include "algorithm/request.hpp"
#include "simulate/network.hpp"
#include "simulate/program.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tutti::simulate {

/// The most steps of a play: of all played ranks together.
inline constexpr std::uint64_t played_steps_max = 400'000'000;

struct Cast {
    int ranks = 0, hosts = 0, ranks_per_host = 0;  ///< hosts are equal: rank r is on host r / ranks_per_host
    Spread spread;                                 ///< who calls the collective with whom
    int played = 0;                                ///< == ranks: whole
    bool exact = true;                             ///< each rank stands for ranks that do exactly the same
    std::string algorithm;
    std::string words;  ///< who is played, and how exact that is
    std::vector<Program> programs;
    std::vector<std::uint32_t> program_of;  ///< by played rank
    std::uint64_t steps = 0;                ///< of all played ranks
    bool whole() const noexcept { return played == ranks; }
    const Program& program(int rank) const { return programs[program_of[static_cast<std::size_t>(rank)]]; }
};

/// The first rank that has the steps of `rank`, with all peers shifted by the ranks' distance; `rank` where none is
/// known. `root` counts for collectives that have one.
Rank twin_of(std::string_view algorithm, Collective collective, int ranks, int ranks_per_host, Rank root, Rank rank);
/// After how many ranks the steps of all ranks repeat, with peers shifted; 0: they do not.
int repeats_after(std::string_view algorithm, Collective collective, int ranks_per_host);

/// Who plays where: the ranks of `layout` (of a group), in a world of equal hosts.
struct Place {
    Spread spread;
    int ranks_per_host = 1;
    int classes = 1;  ///< a multiple of so many ranks is played
    /// One group, of all ranks.
    static Place of(const algorithm::Layout& layout);
};

/// How many ranks have to be played, for which the others stand; the number of all: none stands for another.
int classes_of(std::string_view algorithm, Collective collective, const algorithm::Layout& layout, const Place& place,
               const Network& network);

/// `whole`: plays every rank, since the conditions are not the same for all. `costs` describes the layout's hosts.
/// `written_share` is called with the share of schedules that are generated.
/// Throws InvalidArgument for a play of more than played_steps_max steps, and as algorithm::plan.
Cast cast_of(const algorithm::Layout& layout, const algorithm::Request& request, const algorithm::StepCosts& costs,
             const Network& network, const Place& place, bool whole,
             const std::function<void(double)>& written_share = {});

}  // namespace tutti::simulate
