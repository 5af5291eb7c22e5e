// How a user's text becomes a UserSchedule: it is read and proved, and each rank gets steps for calls in place as well.
#include "algorithm/user_schedule.hpp"
#include "core/assert.hpp"

#include "algorithm/parts.hpp"
#include "algorithm/select.hpp"
#include "schedule/prove.hpp"
#include "schedule/races.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::algorithm {
namespace {

using schedule::Budget;
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
        const Schedule& s = recipe.ranks[rank];
        for (const schedule::Step& step : s.steps) {
            const bool staged =
                step.kind == StepKind::publish || step.kind == StepKind::read ||
                (!s.in_place && (step.kind == StepKind::read_combine || step.kind == StepKind::release));
            if (staged || (schedule::is_shared(step.kind) && !s.in_place)) {
                throw InvalidArgument(fmt::format(
                    "{}: rank {} has a step \"{}\"{}: expected copy, combine, convert, call, send, "
                    "receive, receive_combine and signals, or meet and then copy, combine, convert, call, get, put, "
                    "signal, wait",
                    where, rank, to_string(step.kind), staged ? ", on the staging area" : ""));
            }
        }
        const bool has_codes =
            std::ranges::any_of(s.buffers, [](const auto& buffer) { return buffer.codes.has_value(); });
        if (has_codes || s.of(Buffer::input).dtype) {
            throw InvalidArgument(fmt::format(
                "{}: rank {} has {}: expected none; they are for quantised collectives, which take no texts", where,
                rank, has_codes ? "a scratch buffer of codes" : "an input of another type"));
        }
        if (s.otherwise) {
            throw InvalidArgument(fmt::format(
                "{}: rank {} has steps behind \"otherwise\": expected none; where a buffer cannot be reached, "
                "the ranks run what they would without this text",
                where, rank));
        }
    }
    const auto& hosts = recipe.contract.host_of;
    if (recipe.ranks.front().in_place && std::ranges::adjacent_find(hosts, std::ranges::not_equal_to{}) != hosts.end())
        throw InvalidArgument(fmt::format("{}: ranks of several hosts, in place: expected one host", where));
}

std::vector<std::string> faults_of(const Recipe& recipe, bool single_rounding, bool rank_order) {
    schedule::Contract contract = recipe.contract;
    contract.in_place = false;
    contract.single_rounding = single_rounding;
    contract.rank_order = rank_order;
    return schedule::prove(recipe.ranks, contract, Budget(Budget::of_users_text));
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
        if (operand.peer < 0 && operand.chunk.buffer == Buffer::input)
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
    TUTTI_ASSERT(saved.steps.size() == s.steps.size() + 1 && saved.after.size() == s.after.size() + s.steps.size());
    return saved;
}

std::size_t index_of_meet(const Schedule& s) {
    return static_cast<std::size_t>(std::ranges::find(s.steps, StepKind::meet, &schedule::Step::kind) -
                                    s.steps.begin());
}

// The same, whose local steps wait for the meeting. Else a rank could have overwritten its values when the ranks find
// that they cannot reach each other's buffers, and begin anew.
Schedule behind_meeting(const Schedule& s) {
    Schedule later = s;
    later.after.clear();
    const std::size_t meet = index_of_meet(s);
    TUTTI_ASSERT(meet < s.steps.size());
    for (std::size_t i = 0; i < s.steps.size(); ++i) {
        const auto before = after_of(s, s.steps[i]);
        schedule::Step& step = later.steps[i];
        step.first_after = static_cast<std::uint32_t>(later.after.size());
        later.after.insert(later.after.end(), before.begin(), before.end());
        const bool waits = i > meet && !schedule::is_shared(step.kind) &&
                           std::ranges::find(before, static_cast<std::uint32_t>(meet)) == before.end();
        if (waits) later.after.push_back(static_cast<std::uint32_t>(meet));
        std::sort(later.after.begin() + step.first_after, later.after.end());
        step.after_count = static_cast<std::uint32_t>(later.after.size()) - step.first_after;
    }
    TUTTI_ASSERT(later.after.size() >= s.after.size());
    return later;
}

// Others read this rank's input, which the rank overwrites before they have, where it is its output. So it meets the
// others with an input that they cannot reach, and all run what they would run otherwise.
Schedule only_meeting(const Schedule& s) {
    TUTTI_ASSERT(index_of_meet(s) < s.steps.size());
    Schedule meeting = s;
    meeting.steps = {s.steps[index_of_meet(s)]};
    meeting.steps.front().after_count = 0;
    meeting.after.clear();
    return meeting;
}

bool opens_input(const Schedule& s) {
    return std::ranges::any_of(operands_of(s, s.steps[index_of_meet(s)]), [](const schedule::Operand& operand) {
        return operand.chunk.buffer == Buffer::input && operand.chunk.count > 0;
    });
}

}  // namespace

UserSchedule::UserSchedule(std::string text, Proved proved, Budget budget)
    : text_(std::move(text)),
      proved_(proved),
      separate_(schedule::parse(text_, "TUTTI_SCHEDULE", InputIs::separate, &parts())) {
    if (can_be_in_place(collective())) {
        Recipe in_place = schedule::parse(text_, "TUTTI_SCHEDULE", InputIs::output, &parts());
        const std::vector<bool> same = schedule::same_in_place(separate_.ranks, budget);
        TUTTI_ASSERT(same.size() == separate_.ranks.size() && in_place.ranks.size() == same.size());
        for (std::size_t rank = 0; rank < separate_.ranks.size(); ++rank) {
            const Schedule& s = separate_.ranks[rank];
            Schedule& own = in_place.ranks[rank];
            own.input_is_output = s.in_place;
            in_place_.push_back(same[rank]                     ? std::move(own)
                                : s.in_place && opens_input(s) ? only_meeting(s)
                                                               : with_saved_input(s));
        }
    }
    TUTTI_ASSERT(in_place_.empty() || in_place_.size() == separate_.ranks.size());
    for (auto* const all : {&separate_.ranks, &in_place_}) {
        for (Schedule& s : *all) {
            if (s.in_place) s = behind_meeting(s);
        }
    }
}

UserSchedule UserSchedule::proved(std::string text, std::string_view where) {
    const Recipe recipe = schedule::parse(text, where, InputIs::separate, &parts());
    check_steps(recipe, where);
    const std::string& name = recipe.ranks.front().algorithm;
    TUTTI_ASSERT(!recipe.ranks.empty());
    const auto names = algorithm_names();
    if (std::ranges::find(names, name) != names.end()) {
        throw InvalidArgument(
            fmt::format("{}: \"{}\" is one of tutti's own algorithms: expected another name in its line "
                        "\"algorithm NAME\"",
                        where, name));
    }
    try {
        if (const auto faults = faults_of(recipe, false, false); !faults.empty()) {
            throw InvalidArgument(fmt::format("{}: algorithm \"{}\" does not do what {} promises: {}", where, name,
                                              to_string(recipe.contract.collective), faults.front()));
        }
        const Proved found{.single_rounding = faults_of(recipe, true, false).empty(),
                           .rank_order = faults_of(recipe, false, true).empty()};
        return {std::move(text), found, Budget(Budget::of_users_text)};
    } catch (const schedule::ProofTooLarge& error) {
        throw InvalidArgument(fmt::format("{}: algorithm \"{}\" is too large: {}", where, name, error.what()));
    }
}

}  // namespace tutti::algorithm
