#include "simulate/program.hpp"

#include "core/assert.hpp"

#include <cmath>
#include <limits>
#include <unordered_map>

namespace tutti::simulate {
namespace {

using schedule::Schedule;
using schedule::Step;
using schedule::StepKind;

class ProgramWriter {
 public:
    ProgramWriter(const Schedule& s, Rank rank, const Spread& spread, std::uint64_t element_bytes,
                  const algorithm::StepCosts& costs)
        : schedule_(s), rank_(rank), spread_(spread), element_bytes_(element_bytes), costs_(costs) {}

    Program write() {
        program_.in_slots = schedule_.in_slots;
        program_.rounds = schedule_.publications;
        program_.ops.reserve(schedule_.steps.size());
        for (const Step& step : schedule_.steps) add(step);
        // The pairs (before, behind), sorted by `before` without moving them: count, then place.
        for (const auto& [before, behind] : edges_) ++program_.ops[before].next_count;
        std::uint32_t first = 0;
        for (Op& op : program_.ops) {
            op.first_next = first;
            first += op.next_count;
            op.next_count = 0;
        }
        program_.next.resize(first);
        for (const auto& [before, behind] : edges_) {
            Op& op = program_.ops[before];
            program_.next[op.first_next + op.next_count++] = behind;
            ++program_.ops[behind].waits;
        }
        return std::move(program_);
    }

 private:
    using Index = std::uint32_t;
    static constexpr Index none = std::numeric_limits<Index>::max();

    int distance_to(Rank peer) const { return spread_.distance(rank_, peer); }

    void add(const Step& step) {
        const auto index = static_cast<Index>(program_.ops.size());
        Op& op = program_.ops.emplace_back();
        op.kind = step.kind;
        op.round = step.round;
        op.step = index;
        op.work_us = static_cast<float>(costs_.work_us(schedule_, step, element_bytes_));
        for (const std::uint32_t before : after_of(schedule_, step)) edges_.emplace_back(before, index);
        if (step.kind == StepKind::send || schedule::receives(step.kind)) {
            add_message(step, op, index);
        } else if (schedule::is_shared(step.kind)) {
            if (last_shared_ != none) edges_.emplace_back(last_shared_, index);
            last_shared_ = index;
            if (step.kind == StepKind::publish)
                op.bytes = static_cast<float>(algorithm::operand_bytes(schedule_, step, element_bytes_));
            watch(step, op);
        }
    }

    void add_message(const Step& step, Op& op, Index index) {
        const bool sends = step.kind == StepKind::send;
        op.bytes = static_cast<float>(sends ? algorithm::operand_bytes(schedule_, step, element_bytes_)
                                            : static_cast<double>(bytes_of(schedule_, step.target, element_bytes_)));
        auto& peers = sends ? program_.to : program_.from;
        const auto [at, is_new] =
            (sends ? places_to_ : places_from_).try_emplace(step.peer, static_cast<Index>(peers.size()));
        if (is_new) peers.push_back({.distance = distance_to(step.peer), .ops = {}});
        auto& ops = peers[at->second].ops;
        op.peer = at->second;
        op.number = static_cast<Index>(ops.size());
        if (!ops.empty()) edges_.emplace_back(ops.back(), index);
        ops.push_back(index);
    }

    void watch(const Step& step, Op& op) {
        op.first_watched = static_cast<Index>(program_.watched.size());
        if (step.kind == StepKind::read || step.kind == StepKind::wait)
            program_.watched.push_back(distance_to(step.peer));
        if (step.kind == StepKind::read_combine && !schedule_.in_place) {
            for (const schedule::Operand& operand : operands_of(schedule_, step)) {
                if (operand.peer >= 0 && operand.peer != rank_) program_.watched.push_back(distance_to(operand.peer));
            }
        }
        op.watched_count = static_cast<Index>(program_.watched.size()) - op.first_watched;
    }

    const Schedule& schedule_;
    Rank rank_;
    Spread spread_;
    std::uint64_t element_bytes_;
    const algorithm::StepCosts& costs_;
    Program program_;
    std::vector<std::pair<Index, Index>> edges_;
    std::unordered_map<Rank, Index> places_to_, places_from_;
    Index last_shared_ = none;
};

}  // namespace

Program compile(const Schedule& schedule, Rank rank, const Spread& spread, std::uint64_t element_bytes,
                const algorithm::StepCosts& costs) {
    TUTTI_ASSERT(rank >= 0 && rank < spread.size && spread.ranks % spread.cluster() == 0 && element_bytes > 0);
    return ProgramWriter(schedule, rank, spread, element_bytes, costs).write();
}

Program repeated(const Program& once, int calls) {
    TUTTI_ASSERT(calls >= 1);
    if (calls == 1 || once.ops.empty()) return once;
    Program result{.watched = once.watched, .to = once.to, .from = once.from, .rounds = once.rounds};
    result.in_slots = once.in_slots;
    const auto steps = static_cast<std::uint32_t>(once.ops.size());
    std::vector<std::uint32_t> firsts, lasts;  // ops that wait for none, and for which none waits
    for (std::uint32_t i = 0; i < steps; ++i) {
        if (once.ops[i].waits == 0) firsts.push_back(i);
        if (once.ops[i].next_count == 0) lasts.push_back(i);
    }
    const auto repeat = [&](const Program::Peer& peer, Program::Peer& all, std::uint32_t base) {
        for (const std::uint32_t op : peer.ops) all.ops.push_back(base + op);
    };
    for (int call = 0; call < calls; ++call) {
        const auto base = static_cast<std::uint32_t>(result.ops.size()), number = static_cast<std::uint32_t>(call);
        const std::uint32_t between = base + steps;  // an op without work joins a call and the next one
        const bool last = call + 1 == calls;
        for (const Op& op : once.ops) {
            Op& again = result.ops.emplace_back(op);
            const bool sends = op.kind == schedule::StepKind::send;
            if (sends || schedule::receives(op.kind))
                again.number += number * static_cast<std::uint32_t>((sends ? once.to : once.from)[op.peer].ops.size());
            if (schedule::is_shared(op.kind)) again.round += number * once.rounds;
            again.first_next = static_cast<std::uint32_t>(result.next.size());
            for (std::uint32_t i = 0; i < op.next_count; ++i)
                result.next.push_back(base + once.next[op.first_next + i]);
            if (op.next_count == 0 && !last) {
                result.next.push_back(between);
                again.next_count = 1;
            }
            if (op.waits == 0 && call > 0) again.waits = 1;
        }
        for (std::size_t i = 0; i < once.to.size() && call > 0; ++i) repeat(once.to[i], result.to[i], base);
        for (std::size_t i = 0; i < once.from.size() && call > 0; ++i) repeat(once.from[i], result.from[i], base);
        if (last) break;
        Op& join = result.ops.emplace_back();
        join.waits = static_cast<std::uint32_t>(lasts.size());
        join.first_next = static_cast<std::uint32_t>(result.next.size());
        join.next_count = static_cast<std::uint32_t>(firsts.size());
        for (const std::uint32_t first : firsts) result.next.push_back(between + 1 + first);
    }
    return result;
}

Likeness likeness(const Program& a, const Program& b, double slack) {
    if (a == b) return Likeness::same;
    if (a.ops.size() != b.ops.size() || a.watched != b.watched || a.to != b.to || a.from != b.from)
        return Likeness::different;
    bool ordered = a.next != b.next;
    for (std::size_t i = 0; i < a.ops.size(); ++i) {
        const Op &x = a.ops[i], &y = b.ops[i];
        if (x.kind != y.kind || x.peer != y.peer || x.number != y.number || x.round != y.round ||
            x.watched_count != y.watched_count || std::abs(x.bytes - y.bytes) > slack)
            return Likeness::different;
        ordered = ordered || x.first_next != y.first_next || x.waits != y.waits;
    }
    return ordered ? Likeness::ordered : Likeness::rounded;
}

}  // namespace tutti::simulate
