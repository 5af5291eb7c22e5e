#include "schedule/text.hpp"

#include "schedule/builder.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <span>

namespace tutti::schedule {
namespace {

std::string to_text(const Chunk& chunk) {
    static constexpr std::string_view names[] = {"input", "output", "scratch"};
    return fmt::format("{}[{}:{}]", names[static_cast<std::size_t>(chunk.buffer)], chunk.offset,
                       chunk.offset + chunk.count);
}

// Of a schedule in place a peer's operand is a chunk of its buffers, else a piece of its publication.
std::string to_text(const Operand& operand, bool in_place) {
    if (operand.peer < 0) return to_text(operand.chunk);
    if (in_place) return fmt::format("{}@{}", operand.peer, to_text(operand.chunk));
    return fmt::format("{}@slot[{}:{}]", operand.peer, operand.slot_offset, operand.slot_offset + operand.chunk.count);
}

bool waits_for_all(const Step& step, std::size_t index) {
    return step.after_count == index;
}

// Writes the steps of one rank as calls of the Builder, and keeps count of its rounds.
class Writer {
 public:
    using Edges = std::vector<std::vector<std::uint32_t>>;  // by step

    // `edges`: those of sends that the Builder does not find.
    Writer(const Schedule& schedule, const Edges& edges) : s_(schedule), edges_(edges) {}

    std::string run() {
        if (s_.turn_group) add("turn_group");
        if (s_.in_slots) add("in_slots");
        if (s_.input_is_output) add("input_is_output");
        if (!s_.single_rounding) add("not_single_rounding");
        if (s_.scratch_count > 0) add(fmt::format("scratch {}", s_.scratch_count));
        // The Builder's finish() adds a last release and, in place, settle.
        std::size_t count = s_.steps.size();
        if (count > 0 && s_.steps.back().kind == StepKind::settle) --count;
        if (count > 0 && s_.publications > 0 && s_.steps[count - 1].kind == StepKind::release) --count;
        for (std::size_t i = 0; i < count; ++i) write(i);
        use_rounds(s_.publications);
        if (s_.otherwise) add("otherwise");
        return std::move(text_);
    }

 private:
    void add(const std::string& line) { text_ += "  " + line + "\n"; }

    void use_rounds(std::uint32_t until) {
        if (until > rounds_) add(fmt::format("use_rounds {}", until - rounds_));
        rounds_ = std::max(rounds_, until);
    }

    void write(std::size_t i) {
        const Step& step = s_.steps[i];
        const std::span operands(s_.operands.data() + step.first_operand, step.operand_count);
        const std::string target = to_text(step.target);
        const auto others = [&](std::string_view before = " ") {
            std::string words;
            for (const Operand& operand : operands) words += fmt::format("{}{}", before, to_text(operand, s_.in_place));
            return words;
        };
        const std::string_view finish = step.finish ? " finish" : "";
        const auto source = [&] { return to_text(operands[0].chunk); };
        switch (step.kind) {
            case StepKind::copy:
                return add(fmt::format("copy {} {}{}", target, source(),
                                       step.whole > step.target.count ? fmt::format(" whole {}", step.whole) : ""));
            case StepKind::combine: return add(fmt::format("combine {}{}{}", target, others(), finish));
            case StepKind::send: {
                if (operands[0].chunk.count == 0) return add(fmt::format("send_signal {}", step.peer));
                const auto after = i < edges_.size() ? edges_[i] : std::vector<std::uint32_t>();
                return add(fmt::format("send {} {}{}{}", step.peer, source(), after.empty() ? "" : " after ",
                                       fmt::join(after, " ")));
            }
            case StepKind::receive:
                if (step.target.count == 0) return add(fmt::format("receive_signal {}", step.peer));
                return add(fmt::format("receive {} {}", step.peer, target));
            case StepKind::receive_combine:
                return add(fmt::format("receive_combine {} {} {}{}{}", step.peer, target, source(),
                                       step.arrival_first ? " arrival_first" : "", finish));
            case StepKind::meet:
                use_rounds(step.round);
                ++rounds_;
                return add(fmt::format("meet{}{}", s_.maps ? " maps" : "", others()));
            case StepKind::publish:
                if (operands.empty() && i > 0 && waits_for_all(step, i))
                    return add(fmt::format("publish_signal {}", step.round));
                return add(fmt::format("publish {}{}", step.round, others()));
            case StepKind::read:
                if (s_.in_place) return add(fmt::format("read_in_place {} {} {}", step.peer, target, source()));
                return add(fmt::format("read {} {} {} {}", step.peer, step.round, step.slot_offset, target));
            case StepKind::read_combine:
                if (!s_.in_place)
                    return add(fmt::format("read_combine {} {}{}{}", step.round, target, others(), finish));
                return add(fmt::format("combine_in_place {} {}{}{}{}", step.peer, target, others(),
                                       step.everywhere ? " everywhere" : "", finish));
            case StepKind::write: return add(fmt::format("write_in_place {} {} {}", step.peer, target, source()));
            case StepKind::release: return add(fmt::format("release {}", step.round));
            case StepKind::settle: return;
        }
    }

    const Schedule& s_;
    const Edges& edges_;
    std::string text_;
    std::uint32_t rounds_ = 0;
};

std::string head_of(const Recipe& recipe) {
    const Contract& c = recipe.contract;
    std::string text = fmt::format("tutti schedule 1\nalgorithm {}\ncollective {}\nranks {}\n",
                                   recipe.ranks.empty() ? "" : recipe.ranks.front().algorithm, to_string(c.collective),
                                   recipe.ranks.size());
    const auto rows = [&](std::string_view name, const std::vector<std::vector<std::uint64_t>>& matrix) {
        for (const auto& row : matrix) text += fmt::format("{} {}\n", name, fmt::join(row, " "));
    };
    if (c.root != 0) text += fmt::format("root {}\n", c.root);
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

std::span<const std::uint32_t> after(const Schedule& s, const Step& step) {
    return {s.after.data() + step.first_after, step.after_count};
}

template <class Change>
void for_all_counts(Schedule& s, const Change& change) {
    for (Step& step : s.steps) {
        for (std::uint64_t* value : {&step.slot_offset, &step.whole, &step.target.offset, &step.target.count})
            change(*value);
    }
    for (Operand& operand : s.operands) {
        for (std::uint64_t* value : {&operand.chunk.offset, &operand.chunk.count, &operand.slot_offset}) change(*value);
    }
    change(s.scratch_count);
    for (std::uint64_t& end : s.used_end) change(end);
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
    std::vector<Writer::Edges> edges(given.size());
    bool more = false;
    for (std::size_t i = 0; i < given.size(); ++i) {
        edges[i].resize(given[i]->steps.size());
        for (std::size_t k = 0; k < std::min(given[i]->steps.size(), found[i]->steps.size()); ++k) {
            std::ranges::set_difference(after(*given[i], given[i]->steps[k]), after(*found[i], found[i]->steps[k]),
                                        std::back_inserter(edges[i][k]));
            more |= !edges[i][k].empty();
        }
    }
    return more ? written(recipe, edges) : plain;
}

Schedule scaled(Schedule schedule, std::uint64_t times) {
    for_all_counts(schedule, [&](std::uint64_t& value) { value *= times; });
    return schedule;
}

Recipe shortest(Recipe recipe) {
    std::uint64_t divisor = 0;
    for_all_counts(recipe, [&](std::uint64_t& value) { divisor = std::gcd(divisor, value); });
    if (divisor < 2) return recipe;
    for_all_counts(recipe, [&](std::uint64_t& value) { value /= divisor; });
    recipe.contract.slot_elements = std::max<std::uint64_t>(1, recipe.contract.slot_elements / divisor);
    return recipe;
}

}  // namespace tutti::schedule
