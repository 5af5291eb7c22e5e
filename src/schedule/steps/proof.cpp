#include "schedule/steps/proof.hpp"

#include "core/assert.hpp"
#include "schedule/races.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace tutti::schedule {

Proof::Proof(const std::vector<Schedule>& schedules, const Contract& contract, Budget& budget)
    : schedules_(schedules), contract_(contract), budget_(budget) {
    TUTTI_ASSERT(contract.host_of.size() == schedules.size());
    restart();
}

void Proof::fault(Rank rank, std::size_t step, const std::string& what) {
    TUTTI_ASSERT(!what.empty());
    const auto& steps = schedule(rank).steps;
    const auto kind = step < steps.size() ? to_string(steps[step].kind) : std::string_view("end");
    faults_.push_back(fmt::format("rank {} step {} ({}): {}", rank, step, kind, what));
}

void Proof::restart(Rank withheld) {
    TUTTI_ASSERT(withheld >= -1 && withheld < size());
    withheld_ = withheld;
    states_.assign(schedules_.size(), State{});
    for (Rank rank = 0; rank < size(); ++rank) {
        State& state = this->state(rank);
        const Schedule& s = schedule(rank);
        spend(s.steps.size() * sizeof(Step) + scratch_count(s) * sizeof(Value));
        auto [input, output] = starting_with(rank, size(), contract_);
        spend((input.size() + output.size()) * sizeof(Value));
        state.buffers = {std::move(input), std::move(output)};
        for (std::size_t b = state.buffers.size(); b < s.buffers.size(); ++b)
            state.buffers.emplace_back(s.buffers[b].count);
        TUTTI_ASSERT(state.buffers.size() >= s.buffers.size());
        state.done.assign(s.steps.size(), false);
        for (std::size_t i = 0; i < s.steps.size(); ++i) {
            const Step& step = s.steps[i];
            TUTTI_ASSERT(step.peer >= -1 && step.peer < size());
            if (step.kind == StepKind::send) state.sends[step.peer].first.push_back(i);
            if (receives(step.kind)) state.receives[step.peer].first.push_back(i);
            if (is_shared(step.kind)) state.shared_order.push_back(i);
        }
    }
}

bool Proof::ready(Rank rank, std::size_t step) const {
    TUTTI_ASSERT(state(rank).done.size() == schedule(rank).steps.size());
    TUTTI_ASSERT(step < state(rank).done.size());
    const State& state = this->state(rank);
    return std::ranges::all_of(after_of(schedule(rank), schedule(rank).steps[step]),
                               [&](std::uint32_t earlier) { return state.done[earlier]; });
}

bool Proof::attempt(Rank rank, std::size_t step) {
    TUTTI_ASSERT(ready(rank, step) && !state(rank).done[step]);
    State& state = this->state(rank);
    const At at = this->at(rank, step);
    const bool shared = is_shared(at.step.kind);
    TUTTI_ASSERT(!shared || state.next_shared < state.shared_order.size());
    if (shared && state.shared_order[state.next_shared] != step) return false;
    if (!kind_of(at.step.kind).prove(*this, at)) return false;
    if (shared) ++state.next_shared;
    return state.done[step] = true;
}

std::string to_string(Type type) {
    if (type.codes) return fmt::format("codes {}", to_string(*type.codes));
    return std::string(type.dtype ? to_string(*type.dtype) : "the call's type");
}

Type Proof::type_of(const At& at, const Chunk& chunk) const {
    TUTTI_ASSERT(row(chunk.buffer) < at.schedule.buffers.size());
    const BufferInfo& info = at.schedule.of(chunk.buffer);
    return {info.dtype ? info.dtype : contract_.dtype, info.codes};
}

// A rank that names another one's buffer may name a row that it does not have.
Values& Proof::values_of_buffer(Rank owner, Buffer buffer) {
    auto& buffers = state(owner).buffers;
    if (row(buffer) < buffers.size()) return buffers[row(buffer)];
    none_.clear();
    return none_;
}

Values Proof::load(const At& at, Rank owner, const Chunk& chunk) {
    TUTTI_ASSERT(owner >= 0 && owner < size());
    const Values& buffer = values_of_buffer(owner, chunk.buffer);
    if (chunk.offset + chunk.count > buffer.size()) {
        fault(at, "reads outside of a buffer");
        return Values(chunk.count);
    }
    const auto first = buffer.begin() + static_cast<std::ptrdiff_t>(chunk.offset);
    spend_on({first, first + static_cast<std::ptrdiff_t>(chunk.count)});
    Values values(first, first + static_cast<std::ptrdiff_t>(chunk.count));
    if (std::ranges::any_of(values, [](const Value& v) { return !v; })) fault(at, "reads before it is written");
    return values;
}

void Proof::save(const At& at, Rank owner, const Chunk& chunk, const Values& values) {
    TUTTI_ASSERT(owner >= 0 && owner < size());
    if (chunk.buffer == Buffer::input && chunk.count > 0) return fault(at, "writes into an input");
    Values& buffer = values_of_buffer(owner, chunk.buffer);
    if (chunk.offset + chunk.count > buffer.size() || values.size() != chunk.count)
        return fault(at, "writes outside of a buffer, or another count");
    spend_on(values);
    std::ranges::copy(values, buffer.begin() + static_cast<std::ptrdiff_t>(chunk.offset));
}

void Proof::spend_on(std::span<const Value> values) {
    for (const Value& value : values) {
        const std::size_t lists = !value ? 0
                                         : value->parts.size() * sizeof value->parts.front() +
                                               value->roundings.size() * sizeof value->roundings.front();
        spend(sizeof value + lists);
    }
}

void Proof::refuse_codes(const At& at, const Values& values) {
    const auto coded =
        std::ranges::find_if(values, [](const Value& value) { return value && !value->coded_by.empty(); });
    if (coded == values.end()) return;
    const bool by_call = std::ranges::find(contract_.calls, (*coded)->coded_by) != contract_.calls.end();
    fault(at, fmt::format("takes what \"{}\" has made for numbers: expected {}", (*coded)->coded_by,
                          by_call ? "a call" : "decode, or decode_add"));
}

Values Proof::combined(const At& at, const std::vector<Values>& inputs) {
    TUTTI_ASSERT(!inputs.empty());
    for (const Values& values : inputs) {
        if (at.step.kind != StepKind::call) refuse_codes(at, values);
    }
    for (const Values& values : inputs) spend_on(values);
    Values result = inputs.front();
    // In the type in which a kernel accumulates itself, before it rounds.
    const auto& dtype = contract_.dtype;
    const bool is_exact = dtype && is_low_precision(*dtype) && type_of(at, at.step.target) == Type{DType::float32};
    for (std::size_t i = 0; i < result.size(); ++i) {
        if (!result[i]) continue;
        int combinations = result[i]->combinations;
        for (std::size_t k = 1; k < inputs.size(); ++k) {
            if (inputs[k].size() <= i || !inputs[k][i]) continue;
            const Symbol& other = *inputs[k][i];
            if (other.index != result[i]->index) {
                fault(at, "combines different elements");
                return result;
            }
            if (other.finished || result[i]->finished) {
                fault(at, "combines a finished value");
                return result;
            }
            const auto before = static_cast<std::uint32_t>(result[i]->parts.size());
            for (const Rounding& r : other.roundings)
                result[i]->roundings.push_back({r.first + before, r.last + before, r.to, r.by, r.block});
            result[i]->parts.insert(result[i]->parts.end(), other.parts.begin(), other.parts.end());
            combinations += other.combinations;
        }
        result[i]->combinations = combinations + (is_exact ? 0 : 1);
        TUTTI_ASSERT(result[i]->combinations > 0 || is_exact);
        result[i]->finished = at.step.finish;
    }
    return result;
}

const Values* Proof::publication(const At& at, Rank peer) {
    TUTTI_ASSERT(peer >= 0 && peer < size());
    const std::uint32_t round = at.step.round;
    if (host(peer) != host(at.rank)) fault(at, "reads from another host");
    if (round < state(at.rank).released) fault(at, "reads a round that it has released");
    const auto& publications = state(peer).publications;
    const auto found = publications.find(round);
    return found == publications.end() ? nullptr : &found->second;
}

Values Proof::fetch(const At& at, const Values& published, std::uint64_t offset, std::uint64_t count) {
    TUTTI_ASSERT(offset + count >= offset);
    if (offset + count > published.size()) {
        fault(at, "reads beyond what was published");
        return Values(count);
    }
    const auto first = published.begin() + static_cast<std::ptrdiff_t>(offset);
    spend_on({first, first + static_cast<std::ptrdiff_t>(count)});
    return Values(first, first + static_cast<std::ptrdiff_t>(count));
}

std::optional<Values> Proof::values_of(const At& at, const Operand& operand) {
    if (operand.peer < 0) return load(at, operand.chunk);
    if (at.schedule.in_place) return load(at, operand.peer, at_owner(schedules_, operand.peer, operand.chunk));
    const Values* const published = publication(at, operand.peer);
    if (published == nullptr) return std::nullopt;
    return fetch(at, *published, operand.slot_offset, operand.chunk.count);
}

bool Proof::reaches(const At& at, Rank peer) {
    TUTTI_ASSERT(at.rank >= 0 && at.rank < size());
    if (!state(at.rank).met)
        fault(at, "comes before meet: expected meet as the first step");
    else if (peer < 0 || peer >= size() || host(peer) != host(at.rank))
        fault(at, fmt::format("reaches for rank {}, which is not on its host", peer));
    else if (peer == at.rank)
        fault(at, "reaches for its own buffers as for another rank's: expected -1, or a chunk without a rank");
    else
        return true;
    return false;
}

bool Proof::released_by_others(Rank rank, std::uint32_t round) const {
    TUTTI_ASSERT(rank >= 0 && rank < size());
    for (Rank peer = 0; peer < size(); ++peer) {
        if (peer == rank || host(peer) != host(rank)) continue;
        if (state(peer).released < round) return false;
    }
    return true;
}

}  // namespace tutti::schedule
