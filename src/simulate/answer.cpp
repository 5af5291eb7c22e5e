#include "simulate/answer.hpp"

#include "algorithm/cost.hpp"
#include "algorithm/plan.hpp"
#include "algorithm/table.hpp"
#include "core/assert.hpp"
#include "rendezvous/tree.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <queue>

namespace tutti::simulate {
namespace {

// News of a death: those beside the dead in the tree of lifelines see its connections end; everyone passes them on.
std::vector<double> told_of_death(int ranks, const Conditions::Kill& kill, double hop_us) {
    std::vector<std::vector<Rank>> beside(static_cast<std::size_t>(ranks));
    for (Rank rank = 1; rank < ranks; ++rank) {
        const Rank parent = rendezvous::parent_of(rank);
        beside[static_cast<std::size_t>(rank)].push_back(parent);
        beside[static_cast<std::size_t>(parent)].push_back(rank);
    }
    std::vector<double> told(static_cast<std::size_t>(ranks), never);
    told[static_cast<std::size_t>(kill.rank)] = kill.us;
    std::queue<Rank> next({kill.rank});
    for (; !next.empty(); next.pop()) {
        for (const Rank rank : beside[static_cast<std::size_t>(next.front())]) {
            double& when = told[static_cast<std::size_t>(rank)];
            if (when < never) continue;
            when = told[static_cast<std::size_t>(next.front())] + hop_us;
            next.push(rank);
        }
    }
    TUTTI_ASSERT(std::ranges::max(told) < never);  // it is a tree
    return told;
}

}  // namespace

std::vector<double> finish_times(const Answer& answer) {
    std::vector<double> times;
    for (const double us : answer.play.finish_us) {
        if (us < never) times.push_back(us);
    }
    std::ranges::sort(times);
    return times;
}

std::vector<LinkUse> busiest_links(const Answer& answer, std::size_t most) {
    std::vector<LinkUse> uses;
    for (std::size_t i = 0; i < answer.play.links.size(); ++i) {
        const auto& use = answer.play.links[i];
        if (use.bytes == 0) continue;
        const double could = answer.play.capacity_gbps[i] * 1e3 * answer.play.end_us;
        uses.push_back({answer.play.names[i], could > 0 ? use.bytes / could : 0, use.bytes, use.busy_us});
    }
    std::ranges::stable_sort(uses, std::greater{}, [](const LinkUse& use) { return use.share; });
    uses.resize(std::min(uses.size(), most));
    return uses;
}

algorithm::CostModel costs_behind(const Network& network, algorithm::CostModel costs) {
    if (network.us >= 0) costs.tcp_us = costs.tcp_send_us + network.us + costs.tcp_receive_us;
    return costs;
}

Answer answer(const Question& question, const Progress& progress) {
    const algorithm::Layout& layout = question.layout;
    const algorithm::Request& request = question.request;
    TUTTI_ASSERT(layout.size() >= 1 && std::ranges::is_sorted(layout.host_of));
    const algorithm::CostModel model = costs_behind(question.network, question.costs);
    const double held =
        algorithm::held_bytes(algorithm::Plans(layout, request).of(request.root), request.element_bytes);
    const algorithm::StepCosts costs(layout, model, held);
    Conditions conditions = question.conditions;
    if (conditions.kill) conditions.told_us = told_of_death(layout.size(), *conditions.kill, model.tcp_us);
    const auto written = [&](double share) {
        if (progress) progress({.writes = true, .share = share});
    };
    Cast cast = cast_of(layout, request, costs, question.network, Place::of(layout), !conditions.usual(), written);
    if (cast.steps * static_cast<std::uint64_t>(question.calls) > played_steps_max)
        throw InvalidArgument(fmt::format("--calls {}: {} steps each: expected at most {} steps in all", question.calls,
                                          cast.steps, played_steps_max));
    for (Program& program : cast.programs) program = repeated(program, question.calls);
    cast.steps *= static_cast<std::uint64_t>(question.calls);
    Answer answer{.algorithm = cast.algorithm, .words = cast.words, .played = cast.played, .exact = cast.exact};
    answer.steps = cast.steps;
    answer.play = play(cast, layout, model, costs, question.network, conditions, progress);
    answer.call_us = answer.play.end_us / question.calls;
    answer.told_us = conditions.told_us;
    for (const Moment& moment : answer.play.path)
        answer.path_kinds.push_back(cast.program(moment.rank).ops[moment.op].kind);
    const algorithm::Context context(layout, request);
    answer.formula_us = algorithm::predicted_us(layout, request.collective, cast.algorithm,
                                                algorithm::decisive_count(request) * request.element_bytes,
                                                context.tile() * request.element_bytes, model);
    return answer;
}

}  // namespace tutti::simulate
