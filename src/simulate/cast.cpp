#include "simulate/cast.hpp"

#include "algorithm/plan.hpp"
#include "core/assert.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <exception>
#include <map>
#include <numeric>
#include <thread>

namespace tutti::simulate {
namespace {

using algorithm::Layout;
using algorithm::Plans;
using algorithm::Request;
using algorithm::StepCosts;

// The node that has the subtree of `me` and the same place below its parent, nearest to the root. The nodes are
// relative to the root.
int twin_in_tree(int me, int size, int radix) {
    for (int distance = 1; distance < size; distance *= radix) {
        if (const int digit = me / distance % radix; digit != 0)
            return me + distance <= size ? digit * distance : me;  // beyond the end there is less than a subtree
    }
    return me;
}

int radix_of(std::string_view algorithm) {
    return algorithm == "binomial" ? 2 : algorithm == "knomial" ? 4 : 0;
}

// Generates and compiles programs, on two threads where there are several.
class Playwright {
 public:
    Playwright(const Layout& layout, const Request& request, const StepCosts& costs, const Spread& spread)
        : layout_(layout), request_(request), costs_(costs), spread_(spread) {}

    std::vector<Program> write(const std::vector<Rank>& ranks, const std::function<void(double)>& share) {
        std::vector<Program> programs(ranks.size());
        const std::size_t writers = ranks.size() < 4 ? 1 : 2;
        std::array<std::exception_ptr, 2> errors;
        const auto write = [&](std::size_t which) {
            try {
                Plans plans(layout_, request_);
                const std::size_t first = ranks.size() * which / writers, end = ranks.size() * (which + 1) / writers;
                for (std::size_t i = first; i < end; ++i) {
                    if (which == 0 && share) share(static_cast<double>(i) / static_cast<double>(end));
                    programs[i] = compile(plans.of(ranks[i]), ranks[i], spread_, request_.element_bytes, costs_);
                }
            } catch (...) {
                errors[which] = std::current_exception();
            }
        };
        if (writers == 1) {
            write(0);
        } else {
            std::thread second(write, 1);
            write(0);
            second.join();
        }
        for (const auto& error : errors) {
            if (error) std::rethrow_exception(error);
        }
        return programs;
    }

 private:
    const Layout& layout_;
    const Request& request_;
    const StepCosts& costs_;
    Spread spread_;
};

// A few ranks, spread: whether they are what they are taken for.
std::vector<Rank> witnesses(int ranks, std::size_t steps) {
    std::vector<Rank> chosen;
    const int count = steps > 100'000 ? 2 : 6;
    for (int i = 1; i <= count; ++i) {
        const auto rank = static_cast<Rank>(std::int64_t{ranks} * i / count - (i % 3 == 0 ? 1 : i));
        if (rank > 0 && rank < ranks) chosen.push_back(rank);
    }
    return chosen;
}

[[noreturn]] void refuse_steps(std::uint64_t steps, const Cast& cast) {
    throw InvalidArgument(fmt::format(
        "--ranks {}: played whole, {} has about {} steps: expected at most {} (fewer ranks or bytes, another "
        "--algorithm, or no --delay, --jitter, --kill, --slow-link: these need every rank)",
        cast.ranks, cast.algorithm, steps, played_steps_max));
}

}  // namespace

int repeats_after(std::string_view algorithm, Collective collective, int ranks_per_host) {
    const auto is = [&](std::string_view name, std::initializer_list<Collective> those) {
        return algorithm == name && std::ranges::find(those, collective) != those.end();
    };
    using enum Collective;
    if (is("ring", {all_reduce, all_gather, reduce_scatter}) ||
        is("direct", {all_reduce, all_gather, reduce_scatter}) || is("two_shot_messages", {all_reduce}) ||
        is("bruck", {all_gather, all_to_all}) || is("pairwise", {all_to_all}) || is("dissemination", {barrier}))
        return 1;
    if (is("rails", {all_reduce, all_gather, reduce_scatter}) ||
        is("circulant", {all_reduce, all_gather, reduce_scatter}) || is("hierarchical", {all_reduce, barrier}))
        return ranks_per_host;
    return 0;
}

Rank twin_of(std::string_view algorithm, Collective collective, int ranks, int ranks_per_host, Rank root, Rank rank) {
    TUTTI_ASSERT(rank >= 0 && rank < ranks && ranks % ranks_per_host == 0);
    if (const int period = repeats_after(algorithm, collective, ranks_per_host); period > 0) return rank % period;
    const bool passes = collective == Collective::broadcast || collective == Collective::reduce;
    const bool collects = collective == Collective::gather || collective == Collective::scatter;
    const int behind = (rank - root + ranks) % ranks;
    if (const int radix = radix_of(algorithm); radix > 0 && (passes || collects))
        return (twin_in_tree(behind, ranks, radix) + root) % ranks;
    if (algorithm == "chain" && collective == Collective::broadcast)
        return behind > 0 && behind < ranks - 1 ? (1 + root) % ranks : rank;
    // Leaders are the nodes of a tree; the ranks that they lead are alike on all hosts.
    if (algorithm == "hierarchical" && passes && root % ranks_per_host == 0) {
        const int position = rank % ranks_per_host, hosts = ranks / ranks_per_host;
        const int host = position == 0 ? twin_in_tree(behind / ranks_per_host, hosts, 2) : 0;
        return (host * ranks_per_host + position + root) % ranks;
    }
    return rank;
}

Place Place::of(const Layout& layout) {
    return {.spread = Spread::all(layout.size()), .ranks_per_host = layout.size() / (layout.host_of.back() + 1)};
}

int classes_of(std::string_view algorithm, Collective collective, const Layout& layout, const Place& place,
               const Network& network) {
    const Spread& spread = place.spread;
    TUTTI_ASSERT(layout.size() == spread.size && spread.ranks % place.ranks_per_host == 0);
    const int together = static_cast<int>(std::ranges::count(layout.host_of, layout.host_of.front()));
    // The groups of a mesh repeat too, whatever their members do.
    const std::int64_t period = spread.spans()
                                    ? std::int64_t{spread.stride} * repeats_after(algorithm, collective, together)
                                    : spread.cluster();
    if (period == 0) return spread.ranks;
    const std::int64_t hosts = std::int64_t{place.ranks_per_host} * repeats_after(network);
    const std::int64_t classes = std::lcm(std::lcm(hosts, period), std::int64_t{place.classes});
    return static_cast<int>(std::min<std::int64_t>(classes, spread.ranks));
}

Cast cast_of(const Layout& layout, const Request& request, const StepCosts& costs, const Network& network,
             const Place& place, bool whole, const std::function<void(double)>& written_share) {
    const Spread& spread = place.spread;
    TUTTI_ASSERT(layout.size() == spread.size);
    Cast cast{.ranks = spread.ranks, .hosts = spread.ranks / place.ranks_per_host};
    cast.spread = spread;
    cast.ranks_per_host = place.ranks_per_host;
    cast.algorithm = Plans(layout, request).algorithm();
    Playwright playwright(layout, request, costs, spread);
    const int members_of_host = static_cast<int>(std::ranges::count(layout.host_of, layout.host_of.front()));
    // Twins have equal distances only where each rank has a neighbour at each of them.
    const auto twin = [&](Rank rank) {
        if (!spread.spans()) return rank;
        return twin_of(cast.algorithm, request.collective, spread.size, members_of_host, request.root, rank);
    };
    cast.played = whole ? cast.ranks : classes_of(cast.algorithm, request.collective, layout, place, network);

    // Programs are written for the twins of the played ranks, and for some ranks that are compared with their twins.
    // Ranks are those of a group from here on.
    std::map<Rank, std::uint32_t> written;
    std::vector<Rank> ranks;
    const auto add = [&](Rank rank) {
        if (written.try_emplace(rank, static_cast<std::uint32_t>(ranks.size())).second) ranks.push_back(rank);
    };
    for (Rank rank = 0; rank < cast.played; ++rank) add(twin(spread.number(rank)));
    cast.programs = playwright.write(ranks, written_share);
    const std::vector<Rank> tested = witnesses(spread.size, cast.programs.front().ops.size());
    const std::vector<Program> theirs = playwright.write(tested, {});
    // A message has a block, or many of them, whose lengths differ by an element.
    const double slack = static_cast<double>(request.element_bytes) * (cast.algorithm == "circulant" ? spread.size : 1);
    Likeness least = Likeness::same;
    for (std::size_t i = 0; i < tested.size(); ++i) {
        const auto found = written.find(twin(tested[i]));  // else it would be written for itself
        if (found != written.end()) least = std::max(least, likeness(theirs[i], cast.programs[found->second], slack));
    }
    // All ranks of a play have their own programs where twins are only nearly alike, unless these would be very many.
    const std::uint64_t expected = cast.programs.front().ops.size() * static_cast<std::uint64_t>(cast.ranks);
    constexpr std::uint64_t own_steps_max = 20'000'000;
    const bool alike_all =
        least != Likeness::different && (least == Likeness::same || !cast.whole() || expected > own_steps_max);
    if (!alike_all) {  // every rank has a schedule of its own
        cast.played = cast.ranks;
        if (expected / 8 > played_steps_max) refuse_steps(expected, cast);
        ranks.clear();
        written.clear();
        // By positions in hosts: these have their rails in common.
        for (int position = 0; position < members_of_host; ++position) {
            for (Rank rank = position; rank < spread.size; rank += members_of_host) add(rank);
        }
        cast.programs = playwright.write(ranks, written_share);
    }
    for (Rank rank = 0; rank < cast.played; ++rank) {
        const Rank member = spread.number(rank);
        cast.program_of.push_back(written.at(alike_all ? twin(member) : member));
        cast.steps += cast.programs[cast.program_of.back()].ops.size();
    }
    if (cast.steps > played_steps_max) refuse_steps(cast.steps, cast);

    std::string how;
    const auto add_reason = [&](std::string_view reason) {
        how += fmt::format("{}{}", how.empty() ? "" : ", ", reason);
    };
    if (!cast.whole() && cast.ranks % cast.played != 0) add_reason("the last switch is taken for a full one");
    if (alike_all && least >= Likeness::rounded) add_reason("messages within an element a block");
    if (alike_all && least == Likeness::ordered) add_reason("some steps in another order");
    cast.exact = how.empty();
    cast.words = cast.whole() ? "whole" : fmt::format("by classes ({} ranks)", cast.played);
    if (!cast.exact)
        cast.words += ": nearly; " + how;
    else if (!cast.whole())
        cast.words += ": exact";
    return cast;
}

}  // namespace tutti::simulate
