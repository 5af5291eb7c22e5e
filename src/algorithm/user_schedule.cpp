#include "algorithm/user_schedule.hpp"

#include "algorithm/parts.hpp"
#include "algorithm/select.hpp"
#include "schedule/prove.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

namespace tutti::algorithm {
namespace {

using schedule::Buffer;
using schedule::Chunk;
using schedule::InputIs;
using schedule::Recipe;
using schedule::Schedule;
using schedule::StepKind;

// Where the input is the output, in the collectives that have both.
bool can_be_in_place(Collective collective) {
    const CollectiveTraits& traits = traits_of(collective);
    return traits.combines && traits.output == CollectiveTraits::Extent::whole;
}

void check_steps(const Recipe& recipe, std::string_view where) {
    for (std::size_t rank = 0; rank < recipe.ranks.size(); ++rank) {
        for (const schedule::Step& step : recipe.ranks[rank].steps) {
            if (schedule::is_shared(step.kind)) {
                throw InvalidArgument(
                    fmt::format("{}: rank {} has a step \"{}\", on memory that ranks share: expected copy, combine, "
                                "convert, call, send, receive, receive_combine and signals",
                                where, rank, to_string(step.kind)));
            }
        }
    }
}

std::vector<std::string> faults_of(const Recipe& recipe, bool single_rounding, bool rank_order) {
    schedule::Contract contract = recipe.contract;
    contract.in_place = false;
    contract.single_rounding = single_rounding;
    contract.rank_order = rank_order;
    return schedule::prove(recipe.ranks, contract);
}

bool overlap(const Chunk& a, const Chunk& b) {
    return a.offset < b.offset + b.count && b.offset < a.offset + a.count;
}

// Whether a rank does the same where its input and its output are one buffer: no step reads an element of the input
// after a step has written the element of the output that lies there. One step may, element by element.
bool is_same_in_place(const Schedule& s) {
    std::vector<Chunk> written;
    for (const schedule::Step& step : s.steps) {
        const std::span operands(s.operands.data() + step.first_operand, step.operand_count);
        const bool writes = step.target.buffer == Buffer::output && step.target.count > 0;
        for (const schedule::Operand& operand : operands) {
            const Chunk& chunk = operand.chunk;
            if (chunk.buffer != Buffer::input || chunk.count == 0) continue;
            if (std::ranges::any_of(written, [&](const Chunk& before) { return overlap(before, chunk); })) return false;
            const bool by_element = step.kind != StepKind::call && step.target.offset == chunk.offset;
            if (writes && overlap(step.target, chunk) && !by_element) return false;
        }
        if (writes) written.push_back(step.target);
    }
    return true;
}

// The same where the output holds the input, which a first step saves behind the scratch buffer.
Schedule with_saved_input(const Schedule& s) {
    Schedule saved = s;
    const std::uint64_t count = s.of(Buffer::input).used_end;
    const Chunk kept{Buffer::scratch, s.of(Buffer::scratch).count, count};
    schedule::BufferInfo& scratch = saved.of(Buffer::scratch);
    scratch.count += count;
    scratch.used_end = scratch.count;
    saved.of(Buffer::input).used_end = 0;
    std::uint64_t& output_end = saved.of(Buffer::output).used_end;
    output_end = std::max(output_end, count);
    for (schedule::Operand& operand : saved.operands) {
        if (operand.chunk.buffer == Buffer::input)
            operand.chunk = {Buffer::scratch, kept.offset + operand.chunk.offset, operand.chunk.count};
    }
    saved.after.clear();
    for (schedule::Step& step : saved.steps) {
        const std::span before(s.after.data() + step.first_after, step.after_count);
        step.first_after = static_cast<std::uint32_t>(saved.after.size());
        step.after_count += 1;
        saved.after.push_back(0);
        for (const std::uint32_t index : before) saved.after.push_back(index + 1);
    }
    const schedule::Step save{.kind = StepKind::copy,
                              .whole = count,
                              .target = kept,
                              .first_operand = static_cast<std::uint32_t>(saved.operands.size()),
                              .operand_count = 1};
    saved.operands.push_back({.chunk = {Buffer::output, 0, count}});
    saved.steps.insert(saved.steps.begin(), save);
    return saved;
}

// As many times these counts; nothing where they are no multiple, and for calls of nothing.
std::optional<std::uint64_t> multiple(std::span<const std::uint64_t> counts, std::span<const std::uint64_t> asked) {
    std::optional<std::uint64_t> times;
    if (counts.size() != asked.size()) return std::nullopt;
    for (std::size_t i = 0; i < counts.size(); ++i) {
        if (counts[i] == 0 && asked[i] == 0) continue;
        if (counts[i] == 0 || asked[i] == 0 || asked[i] % counts[i] != 0) return std::nullopt;
        const std::uint64_t found = asked[i] / counts[i];
        if (times.value_or(found) != found) return std::nullopt;
        times = found;
    }
    return times;
}

}  // namespace

UserSchedule::UserSchedule(std::string text, Proved proved)
    : text_(std::move(text)),
      proved_(proved),
      separate_(schedule::parse(text_, "TUTTI_SCHEDULE", InputIs::separate, &parts())) {
    if (!can_be_in_place(collective())) return;
    Recipe in_place = schedule::parse(text_, "TUTTI_SCHEDULE", InputIs::output, &parts());
    for (std::size_t rank = 0; rank < separate_.ranks.size(); ++rank) {
        const Schedule& s = separate_.ranks[rank];
        in_place_.push_back(is_same_in_place(s) ? std::move(in_place.ranks[rank]) : with_saved_input(s));
    }
}

UserSchedule UserSchedule::proved(std::string text, std::string_view where) {
    const Recipe recipe = schedule::parse(text, where, InputIs::separate, &parts());
    check_steps(recipe, where);
    const std::string& name = recipe.ranks.front().algorithm;
    const auto names = algorithm_names();
    if (std::ranges::find(names, name) != names.end()) {
        throw InvalidArgument(
            fmt::format("{}: \"{}\" is one of tutti's own algorithms: expected another name in its line "
                        "\"algorithm NAME\"",
                        where, name));
    }
    if (const auto faults = faults_of(recipe, false, false); !faults.empty()) {
        throw InvalidArgument(fmt::format("{}: algorithm \"{}\" does not do what {} promises: {}", where, name,
                                          to_string(recipe.contract.collective), faults.front()));
    }
    const Proved found{.single_rounding = faults_of(recipe, true, false).empty(),
                       .rank_order = faults_of(recipe, false, true).empty()};
    return {std::move(text), found};
}

std::optional<std::uint64_t> UserSchedule::times(const Layout& layout, const Request& q) const {
    const schedule::Contract& c = separate_.contract;
    if (q.collective != c.collective || layout.size() != ranks() || (q.single_rounding && !proved_.single_rounding) ||
        (q.rank_order && !proved_.rank_order))
        return std::nullopt;
    if ((c.dtype && q.dtype != c.dtype) || (c.op && q.op != c.op)) return std::nullopt;
    const CollectiveTraits& traits = traits_of(c.collective);
    if (traits.is_rooted() && q.root != c.root) return std::nullopt;
    if (traits.has_blocks()) return multiple(c.counts, q.counts);
    switch (traits.input) {
        case CollectiveTraits::Extent::nothing: return 1;
        case CollectiveTraits::Extent::whole: return multiple({&c.count, 1}, {&q.count, 1});
        case CollectiveTraits::Extent::exchanged: {
            // No rank knows the others' blocks unless all are alike, one after the other.
            if (!q.even || !q.largest_count || !c.send_offsets.empty() || !c.receive_offsets.empty())
                return std::nullopt;
            const std::uint64_t block = c.matrix.front().front();
            const auto alike = [&](const auto& row) {
                return std::ranges::all_of(row, [&](std::uint64_t count) { return count == block; });
            };
            if (!std::ranges::all_of(c.matrix, alike)) return std::nullopt;
            return multiple({&block, 1}, {&*q.largest_count, 1});
        }
        default: break;
    }
    return std::nullopt;
}

schedule::Schedule UserSchedule::plan(const Layout& layout, const Request& request) const {
    const bool in_place = request.in_place && !in_place_.empty();
    const std::vector<Schedule>& ranks = in_place ? in_place_ : separate_.ranks;
    return schedule::scaled(ranks[static_cast<std::size_t>(request.rank)], times(layout, request).value());
}

}  // namespace tutti::algorithm
