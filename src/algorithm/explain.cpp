#include "algorithm/explain.hpp"

#include "algorithm/slots.hpp"
#include "algorithm/walk.hpp"
#include "schedule/slots.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tutti::algorithm {
namespace {

using schedule::Chunk;
using schedule::Operand;
using schedule::Schedule;
using schedule::Step;
using schedule::StepKind;

std::string_view name(schedule::Buffer buffer) {
    switch (buffer) {
        case schedule::Buffer::input: return "input";
        case schedule::Buffer::output: return "output";
        case schedule::Buffer::scratch: return "scratch";
    }
    return "?";
}

std::string text_of(const Chunk& c) {
    return c.count == 0 ? std::string("nothing") : fmt::format("{}[{}, +{}]", name(c.buffer), c.offset, c.count);
}

std::string text_of(const Schedule& s, const Step& step) {
    std::string sources;
    for (std::uint32_t i = 0; i < step.operand_count; ++i) {
        const Operand& o = s.operands[step.first_operand + i];
        if (i > 0) sources += step.kind == StepKind::publish || step.kind == StepKind::meet ? " + " : " op ";
        sources += o.peer < 0   ? text_of(o.chunk)
                   : s.in_place ? fmt::format("rank {}'s {}", o.peer, text_of(o.chunk))
                                : fmt::format("rank {}'s [{}, +{}]", o.peer, o.slot_offset, o.chunk.count);
    }
    switch (step.kind) {
        case StepKind::copy:
        case StepKind::combine: return fmt::format("{} = {}", text_of(step.target), sources);
        case StepKind::send: return fmt::format("{} → rank {}", sources, step.peer);
        case StepKind::receive: return fmt::format("rank {} → {}", step.peer, text_of(step.target));
        case StepKind::receive_combine:
            return fmt::format("{} = {}", text_of(step.target),
                               step.arrival_first ? fmt::format("rank {}'s op {}", step.peer, sources)
                                                  : fmt::format("{} op rank {}'s", sources, step.peer));
        case StepKind::meet:
            return fmt::format("waits for all; others may touch {}", sources.empty() ? "nothing" : sources);
        case StepKind::publish:
            return fmt::format("round {}: {}", step.round, sources.empty() ? "a sign that it is here" : sources);
        case StepKind::read:
            if (s.in_place && step.operand_count > 0) return fmt::format("{} = {}", text_of(step.target), sources);
            return fmt::format("round {}: {} = rank {}'s [{}, +{}]", step.round, text_of(step.target), step.peer,
                               step.slot_offset, step.target.count);
        case StepKind::read_combine: {
            const std::string round = s.in_place ? std::string() : fmt::format("round {}: ", step.round);
            const std::string owner = step.peer < 0 ? std::string() : fmt::format("rank {}'s ", step.peer);
            return fmt::format("{}{}{} = {}{}", round, owner, text_of(step.target), sources,
                               step.everywhere ? ", on all ranks" : "");
        }
        case StepKind::write: return fmt::format("rank {}'s {} = {}", step.peer, text_of(step.target), sources);
        case StepKind::release: return fmt::format("reads nothing of the rounds before {} any more", step.round);
        case StepKind::settle:
            return fmt::format("waits until all ranks of the host have released the rounds before {}", step.round);
    }
    return {};
}

std::uint64_t moved(const Schedule& s, const Step& step) {
    std::uint64_t count = step.target.count;
    if (step.kind == StepKind::publish || step.kind == StepKind::send) {
        count = 0;
        for (std::uint32_t i = 0; i < step.operand_count; ++i) count += s.operands[step.first_operand + i].chunk.count;
    } else if (step.operand_count > 1) {
        count *= step.operand_count;
    }
    return count;
}

// The effect of a kind of step, for readers who see it for the first time.
std::string_view meaning(StepKind kind) {
    switch (kind) {
        case StepKind::copy: return "copies from one of the rank's buffers to another";
        case StepKind::combine: return "combines values of the rank's own buffers";
        case StepKind::send: return "sends a message";
        case StepKind::receive: return "takes a message";
        case StepKind::receive_combine: return "takes a message and combines its values with the rank's own";
        case StepKind::meet: return "says where its buffers lie, and waits until all ranks of the host have";
        case StepKind::publish: return "shows values to the other ranks of the host, as the round of that number";
        case StepKind::read: return "copies what another rank shows in a round, or, in place, from its buffers";
        case StepKind::read_combine: return "combines what other ranks show in a round, or, in place, their buffers";
        case StepKind::write: return "copies into another rank's buffers";
        case StepKind::release: return "gives back the memory in which other ranks showed earlier rounds";
        case StepKind::settle: return "waits until the others have read everything, so that the buffers are free again";
    }
    return {};
}

std::string meanings(const std::vector<Step>& steps) {
    std::string text = "  the steps:\n";
    for (int kind = 0; kind <= static_cast<int>(StepKind::settle); ++kind) {
        const auto one = static_cast<StepKind>(kind);
        if (std::ranges::find(steps, one, &Step::kind) != steps.end())
            text += fmt::format("    {:<15} {}\n", schedule::to_string(one), meaning(one));
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

std::string explain(const Layout& layout, Request request, const std::string& source) {
    const Choice choice = choose(layout, request);
    std::vector<Schedule> schedules;
    for (Rank rank = 0; rank < layout.size(); ++rank) {
        request.rank = rank;
        schedules.push_back(plan(layout, request));
    }
    std::uint64_t sent = 0, published = 0;
    for (const Step& step : schedules[0].steps) {
        if (step.kind == StepKind::send) sent += moved(schedules[0], step) * request.element_bytes;
        if (step.kind == StepKind::publish) published += moved(schedules[0], step) * request.element_bytes;
    }
    std::string text = fmt::format("{} on {} ranks: {}\n  why: {}\n", to_string(request.collective), layout.size(),
                                   choice.algorithm, choice.reason);
    text += fmt::format("  rank 0: {} steps, {} bytes sent, {} bytes published, {} elements of scratch\n",
                        schedules[0].steps.size(), sent, published, schedules[0].scratch_count);
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
            text += fmt::format("    {:>3}  {:<15} {}", i, schedule::to_string(step.kind), text_of(s, step));
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

schedule::Recipe recipe_of(const Layout& layout, Request request) {
    schedule::Recipe recipe;
    for (Rank rank = 0; rank < layout.size(); ++rank) {
        request.rank = rank;
        Schedule& s = recipe.ranks.emplace_back(plan(layout, request));
        s.algorithm = "my_" + s.algorithm;
    }
    const auto ranks = static_cast<std::size_t>(layout.size());
    schedule::Contract& c = recipe.contract;
    c.collective = request.collective;
    c.root = request.root;
    c.in_place = request.in_place;
    c.single_rounding = request.single_rounding;
    c.rank_order = request.rank_order;
    c.count = request.count;
    c.counts = request.counts;
    if (request.collective == Collective::all_to_all)
        c.matrix.assign(ranks, std::vector<std::uint64_t>(ranks, request.largest_count.value()));
    c.host_of = layout.host_of;
    c.slots = std::max<std::uint32_t>(1, layout.slots);
    c.slot_elements = std::max<std::uint64_t>(1, layout.slot_bytes / request.element_bytes);
    return schedule::shortest(std::move(recipe));
}

}  // namespace tutti::algorithm
