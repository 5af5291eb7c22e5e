#include "algorithm/explain.hpp"

#include "algorithm/plan.hpp"
#include "algorithm/slots.hpp"
#include "algorithm/user_schedule.hpp"
#include "algorithm/walk.hpp"
#include "core/assert.hpp"
#include "schedule/slots.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tutti::algorithm {
namespace {

using schedule::Schedule;
using schedule::Step;
using schedule::StepKind;

// Of the values that a step sends or publishes.
std::uint64_t bytes_from(const Schedule& s, const Step& step, std::uint64_t element_bytes) {
    std::uint64_t bytes = 0;
    for (const schedule::Operand& operand : operands_of(s, step)) bytes += bytes_of(s, operand.chunk, element_bytes);
    return bytes;
}

std::string meanings(const std::vector<Step>& steps) {
    std::string text = "  the steps:\n";
    for (int kind = 0; kind <= static_cast<int>(StepKind::settle); ++kind) {
        const auto one = static_cast<StepKind>(kind);
        if (std::ranges::find(steps, one, &Step::kind) != steps.end())
            text += fmt::format("    {:<15} {}\n", schedule::to_string(one), schedule::meaning_of(one));
    }
    return text + "    [A, +B] are B elements from element A on; \"after\" names steps that have to be done before.\n";
}

// The measured or assumed numbers, and the time of every algorithm by them.
std::string prices(const Layout& layout, const Request& request, const CostModel& costs, const std::string& source,
                   const std::string& chosen, const std::vector<Schedule>& schedules) {
    std::string text = fmt::format("  numbers ({}):", source);
    for (const CostField& field : cost_fields()) text += fmt::format(" {} {:.4g}", field.name, costs.*field.value);
    text += "\n  predicted:";
    std::string unknown;
    for (const Estimate& e : estimates(layout, request, costs)) {
        if (e.us)
            text += fmt::format(" {} {:.1f} us", e.algorithm, *e.us);
        else if (e.algorithm == chosen)
            text += fmt::format(" {} {:.1f} us (walked step by step)", e.algorithm,
                                walked_us(schedules, layout, request.element_bytes, costs));
        else
            unknown += fmt::format("{}{}", unknown.empty() ? "" : ", ", e.algorithm);
    }
    if (!unknown.empty()) text += fmt::format("\n  without a formula: {}; --algorithm NAME walks its steps", unknown);
    return text + '\n';
}

}  // namespace

std::vector<Schedule> schedules_of(const Layout& layout, const Request& request) {
    TUTTI_ASSERT(layout.size() >= 1 && request.element_bytes > 0);
    Plans plans(layout, request);
    std::vector<Schedule> schedules;
    for (Rank rank = 0; rank < layout.size(); ++rank) schedules.push_back(plans.of(rank));
    return schedules;
}

std::string explain(const Layout& layout, const Request& request, const std::string& source) {
    const Choice choice = choose(layout, request);
    const std::vector<Schedule> schedules = schedules_of(layout, request);
    std::uint64_t sent = 0, published = 0;
    for (const Step& step : schedules[0].steps) {
        if (step.kind == StepKind::send) sent += bytes_from(schedules[0], step, request.element_bytes);
        TUTTI_ASSERT(!schedules.empty() && schedules.size() == static_cast<std::size_t>(layout.size()));
        if (step.kind == StepKind::publish) published += bytes_from(schedules[0], step, request.element_bytes);
    }
    std::string text = fmt::format("{} on {} ranks: {}\n  why: {}\n", to_string(request.collective), layout.size(),
                                   choice.algorithm, choice.reason);
    text += fmt::format("  rank 0: {} steps, {} bytes sent, {} bytes published, {} elements of scratch\n",
                        schedules[0].steps.size(), sent, published, schedule::scratch_count(schedules[0]));
    if (schedules[0].in_place)
        text += fmt::format("  in place; where a rank's buffers cannot be reached, all ranks run {} instead\n",
                            schedules[0].otherwise->algorithm);
    if (schedules[0].in_slots)
        text += fmt::format(
            "  one call does all of this, in slots of {} bytes a rank; longer calls run a schedule, and with "
            "TUTTI_ALGORITHM=^{} this one does, too\n",
            schedule::slot_bytes(request.collective, layout.size()), in_slots);
    const CostModel costs = layout.tuning.costs.value_or(CostModel{});
    text += prices(layout, request, costs, source, choice.algorithm, schedules);
    text += meanings(schedules[0].steps);
    constexpr std::size_t shown_steps = 40;
    const std::size_t shown_ranks = layout.size() <= 4 && schedules[0].steps.size() <= 12 ? schedules.size() : 1;
    for (std::size_t rank = 0; rank < shown_ranks; ++rank) {
        const Schedule& s = schedules[rank];
        text += fmt::format("  rank {}:\n", rank);
        for (std::size_t i = 0; i < std::min(s.steps.size(), shown_steps); ++i) {
            const Step& step = s.steps[i];
            text +=
                fmt::format("    {:>3}  {:<15} {}", i, schedule::to_string(step.kind), schedule::sentence_of(s, step));
            if (step.after_count > 0) {
                text += "   after";
                for (std::uint32_t a = 0; a < step.after_count; ++a)
                    text += fmt::format(" {}", s.after[step.first_after + a]);
            }
            text += '\n';
        }
        if (s.steps.size() > shown_steps) text += fmt::format("    … {} more\n", s.steps.size() - shown_steps);
    }
    return text;
}

schedule::Recipe recipe_of(const Layout& layout, const Request& request) {
    schedule::Recipe recipe{.ranks = schedules_of(layout, request)};
    for (Schedule& s : recipe.ranks) {
        s.algorithm = "my_" + s.algorithm;
        s.otherwise.reset();  // the table's choice, which a text need not say
    }
    TUTTI_ASSERT(recipe.ranks.size() == static_cast<std::size_t>(layout.size()));
    schedule::Contract& c = recipe.contract;
    for (const auto& user : layout.tuning.schedules) {
        if (user->name() != choose(layout, request).algorithm) continue;
        c.dtype = user->contract().dtype;
        c.rounds_to = user->contract().rounds_to;
        c.calls = user->contract().calls;
        c.op = user->contract().op;
    }
    c.collective = request.collective;
    c.root = request.root;
    c.in_place = request.in_place;
    c.single_rounding = request.single_rounding;
    c.rank_order = request.rank_order;
    c.count = request.count;
    c.counts = request.counts;
    if (traits_of(c.collective).exchanges()) {
        for (Rank from = 0; from < layout.size(); ++from) {
            Request one = request;
            one.rank = from;
            set_even_blocks(one, layout.size(), request.largest_count.value());
            c.matrix.push_back(std::move(one.send_counts));
        }
    }
    c.host_of = layout.host_of;
    c.slots = std::max<std::uint32_t>(1, layout.slots);
    c.slot_elements = std::max<std::uint64_t>(1, layout.slot_bytes / request.element_bytes);
    return schedule::shortest(std::move(recipe));
}

}  // namespace tutti::algorithm
