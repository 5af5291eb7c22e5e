#include "schedule/text.hpp"

#include "core/assert.hpp"
#include "schedule/steps/writer.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace tutti::schedule {
namespace {

std::string head_of(const Recipe& recipe) {
    const Contract& c = recipe.contract;
    std::string text = fmt::format("tutti schedule 1\nalgorithm {}\ncollective {}\nranks {}\n",
                                   recipe.ranks.empty() ? "" : recipe.ranks.front().algorithm, to_string(c.collective),
                                   recipe.ranks.size());
    const auto rows = [&](std::string_view name, const std::vector<std::vector<std::uint64_t>>& matrix) {
        for (const auto& row : matrix) text += fmt::format("{} {}\n", name, fmt::join(row, " "));
    };
    if (c.root != 0) text += fmt::format("root {}\n", c.root);
    if (c.dtype) text += fmt::format("dtype {}\n", to_string(*c.dtype));
    for (const DType to : c.rounds_to) text += fmt::format("rounds_to {}\n", to_string(to));
    for (const std::string& name : c.calls) text += fmt::format("calls {}\n", name);
    if (c.codes) text += fmt::format("codes {} {}\n", to_string(*c.codes), c.encodings);
    if (c.op) text += fmt::format("op {}\n", to_string(*c.op));
    if (c.count != 0) text += fmt::format("count {}\n", c.count);
    if (!c.counts.empty()) text += fmt::format("counts {}\n", fmt::join(c.counts, " "));
    rows("blocks", c.matrix);
    rows("send_offsets", c.send_offsets);
    rows("receive_offsets", c.receive_offsets);
    if (c.in_place) text += "in_place\n";
    if (c.single_rounding) text += "single_rounding\n";
    if (c.rank_order) text += "rank_order\n";
    if (std::ranges::any_of(c.host_of, [](int host) { return host != 0; }))
        text += fmt::format("hosts {}\n", fmt::join(c.host_of, " "));
    if (c.slots != Contract{}.slots || c.slot_elements != Contract{}.slot_elements)
        text += fmt::format("slots {} {}\n", c.slots, c.slot_elements);
    return text;
}

// The schedules in the order of the text: of each rank, and of what it runs otherwise.
std::vector<const Schedule*> all_of(const Recipe& recipe) {
    std::vector<const Schedule*> all;
    for (const Schedule& rank : recipe.ranks) {
        for (const Schedule* s = &rank; s != nullptr; s = s->otherwise.get()) all.push_back(s);
    }
    return all;
}

std::string written(const Recipe& recipe, const std::vector<Writer::Edges>& edges) {
    TUTTI_ASSERT(edges.empty() || edges.size() == all_of(recipe).size());
    std::string text = head_of(recipe);
    std::size_t next = 0;
    for (std::size_t rank = 0; rank < recipe.ranks.size(); ++rank) {
        text += fmt::format("rank {}\n", rank);
        for (const Schedule* s = &recipe.ranks[rank]; s != nullptr; s = s->otherwise.get()) {
            if (s != &recipe.ranks[rank]) text += fmt::format("  algorithm {}\n", s->algorithm);
            text += Writer(*s, edges.empty() ? Writer::Edges() : edges[next]).run();
            ++next;
        }
    }
    return text;
}

template <class Change>
void for_all_counts(Schedule& s, const Change& change) {
    for (Step& step : s.steps) {
        for (std::uint64_t* value :
             {&step.slot_offset, &step.whole, &step.number, &step.target.offset, &step.target.count})
            change(*value);
    }
    for (Operand& operand : s.operands) {
        for (std::uint64_t* value : {&operand.chunk.offset, &operand.chunk.count, &operand.slot_offset}) change(*value);
    }
    for (BufferInfo& buffer : s.buffers) {
        change(buffer.count);
        change(buffer.used_end);
    }
    if (!s.otherwise) return;
    auto otherwise = std::make_shared<Schedule>(*s.otherwise);
    for_all_counts(*otherwise, change);
    s.otherwise = std::move(otherwise);
}

template <class Change>
void for_all_counts(Recipe& recipe, const Change& change) {
    Contract& c = recipe.contract;
    change(c.count);
    for (std::uint64_t& count : c.counts) change(count);
    for (auto* matrix : {&c.matrix, &c.send_offsets, &c.receive_offsets}) {
        for (auto& row : *matrix) {
            for (std::uint64_t& count : row) change(count);
        }
    }
    for (Schedule& s : recipe.ranks) for_all_counts(s, change);
}

}  // namespace

// What the Builder makes of a text without further edges shows which ones have to be said.
std::string to_text(const Recipe& recipe) {
    std::string plain = written(recipe, {});
    const auto given = all_of(recipe);
    const Recipe again = parse(plain, "the text of a schedule");
    const auto found = all_of(again);
    TUTTI_ASSERT(again.ranks.size() == recipe.ranks.size());
    TUTTI_ASSERT(found.size() == given.size());
    std::vector<Writer::Edges> edges(given.size());
    bool more = false;
    for (std::size_t i = 0; i < given.size(); ++i) {
        edges[i].resize(given[i]->steps.size());
        for (std::size_t k = 0; k < std::min(given[i]->steps.size(), found[i]->steps.size()); ++k) {
            std::ranges::set_difference(after_of(*given[i], given[i]->steps[k]),
                                        after_of(*found[i], found[i]->steps[k]), std::back_inserter(edges[i][k]));
            more |= !edges[i][k].empty();
        }
    }
    return more ? written(recipe, edges) : plain;
}

Schedule scaled(Schedule schedule, std::uint64_t times) {
    TUTTI_ASSERT(times > 0);
    for_all_counts(schedule, [&](std::uint64_t& value) { value *= times; });
    return schedule;
}

Recipe shortest(Recipe recipe) {
    if (recipe.contract.codes) return recipe;  // blocks have their length
    std::uint64_t divisor = 0;
    for_all_counts(recipe, [&](std::uint64_t& value) { divisor = std::gcd(divisor, value); });
    if (divisor < 2) return recipe;
    TUTTI_ASSERT(divisor > 1);
    for_all_counts(recipe, [&](std::uint64_t& value) { value /= divisor; });
    recipe.contract.slot_elements = std::max<std::uint64_t>(1, recipe.contract.slot_elements / divisor);
    TUTTI_ASSERT(recipe.contract.slot_elements > 0);
    return recipe;
}

}  // namespace tutti::schedule
