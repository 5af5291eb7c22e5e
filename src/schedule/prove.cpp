#include "schedule/prove.hpp"

#include "core/assert.hpp"
#include "schedule/order.hpp"
#include "schedule/races.hpp"
#include "schedule/steps/proof.hpp"
#include "schedule/symbols.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace tutti::schedule {
namespace {

constexpr std::size_t faults_max = 5;

// Runs every step that can run now; false if none could.
bool advance(Proof& proof) {
    TUTTI_ASSERT(proof.size() > 0);
    bool moved = false;
    for (Rank rank = proof.size(); rank-- > 0;) {
        if (rank == proof.withheld()) continue;
        proof.spend(4 * proof.schedule(rank).steps.size());
        for (std::size_t i = proof.schedule(rank).steps.size(); i-- > 0;) {  // backwards: the adversary's order
            if (!proof.state(rank).done[i] && proof.ready(rank, i)) moved |= proof.attempt(rank, i);
            if (proof.faults().size() >= faults_max) return false;
        }
    }
    return moved;
}

// Either all ranks run in slots, or in place, or none; there they send no messages.
void check_kinds(Proof& proof) {
    for (Rank rank = 0; rank < proof.size(); ++rank) {
        const Schedule& s = proof.schedule(rank);
        if (s.in_slots != proof.schedule(0).in_slots)
            proof.fault(rank, s.steps.size(), "is in slots, or is not, unlike rank 0");
        if (s.in_slots && std::ranges::any_of(s.steps, [](const Step& step) {
                return step.kind == StepKind::send || receives(step.kind) || step.kind == StepKind::meet ||
                       step.kind == StepKind::put || step.kind == StepKind::get;
            }))
            proof.fault(rank, s.steps.size(), "sends a message, or works in place, in slots");
        if (s.in_place != proof.schedule(0).in_place || s.maps != proof.schedule(0).maps)
            proof.fault(rank, s.steps.size(), "works in place, or in memory that all map, or does not, unlike rank 0");
        // Ranks that turn out not to reach each other's buffers run another schedule: no message may be under way.
        if (s.in_place && std::ranges::any_of(s.steps, [](const Step& step) {
                return step.kind == StepKind::send || receives(step.kind);
            }))
            proof.fault(rank, s.steps.size(),
                        "sends or receives a message, in place: expected put, get, signal and wait");
    }
}

// Bytes that are taken for another type mean nothing.
void check_types(Proof& proof) {
    for (Rank rank = 0; rank < proof.size(); ++rank) {
        const Schedule& s = proof.schedule(rank);
        for (std::size_t i = 0; i < s.steps.size(); ++i) {
            const At at = proof.at(rank, i);
            const Types types = kind_of(at.step.kind).types;
            if (types == Types::own) continue;
            std::vector<Type> found;
            const auto add = [&](const Chunk& chunk) {
                if (chunk.count > 0) found.push_back(proof.type_of(at, chunk));
            };
            for (const Operand& operand : at.operands()) {
                if (operand.peer < 0 || s.in_place) add(operand.chunk);
            }
            add(at.step.target);
            if (types == Types::of_call) found.insert(found.begin(), Type{proof.contract().dtype});
            const auto other = std::ranges::find_if(found, [&](const Type& type) { return type != found.front(); });
            if (other != found.end())
                proof.fault(at, fmt::format("takes {} for {}: expected a step convert between them", to_string(*other),
                                            to_string(found.front())));
        }
    }
}

void check_end(Proof& proof) {
    for (Rank rank = 0; rank < proof.size(); ++rank) {
        const auto& done = proof.state(rank).done;
        const auto stuck = std::ranges::find(done, false);
        if (stuck == done.end()) continue;
        proof.fault(rank, static_cast<std::size_t>(stuck - done.begin()),
                    "never completes (deadlock, or a message without a partner)");
    }
}

void check_results(Proof& proof) {
    for (Rank rank = 0; rank < proof.size(); ++rank) {
        const Schedule& s = proof.schedule(rank);
        if (s.publications != proof.schedule(0).publications && proof.host(rank) == proof.host(0))
            proof.fault(rank, s.steps.size(), "uses another number of rounds than rank 0 of its host");
        const Values& output = proof.state(rank).buffers[row(Buffer::output)];
        const std::string wrong = wrong_with(output, rank, proof.size(), proof.contract());
        if (!wrong.empty()) proof.fault(rank, s.steps.size(), wrong);
    }
}

// Values that were rounded on their way: each rank that gets all has to get them alike. (In other orders of combination
// floating-point sums differ, too; but all algorithms copy what one rank has summed.)
void check_equal(Proof& proof) {
    TUTTI_ASSERT(proof.faults().empty());
    const auto output = [&](Rank rank) -> const Values& { return proof.state(rank).buffers[row(Buffer::output)]; };
    for (Rank rank = 1; rank < proof.size(); ++rank) {
        for (std::size_t i = 0; i < output(0).size(); ++i) {
            TUTTI_ASSERT(output(rank).size() == output(0).size());
            TUTTI_ASSERT(output(rank)[i] && output(0)[i]);
            const Symbol &mine = *output(rank)[i], &first = *output(0)[i];
            if (mine.roundings == first.roundings && (first.roundings.empty() || mine.parts == first.parts)) continue;
            return proof.fault(rank, proof.schedule(rank).steps.size(),
                               fmt::format("element {} is not rounded as it is on rank 0, and so may differ", i));
        }
    }
}

// A rank leaves a barrier only after every rank has entered: its last step must depend on every rank's first. Replays
// with each rank withheld in turn: no other rank may finish.
void check_barrier(Proof& proof) {
    TUTTI_ASSERT(proof.faults().empty());
    for (Rank withheld = 0; withheld < proof.size() && proof.size() > 1; ++withheld) {
        proof.restart(withheld);
        auto& held = proof.state(withheld);
        held.sends.clear();
        held.receives.clear();
        TUTTI_ASSERT(proof.withheld() == withheld);
        while (advance(proof)) {
        }
        for (Rank rank = 0; rank < proof.size(); ++rank) {
            const auto& done = proof.state(rank).done;
            if (rank == withheld || std::ranges::find(done, false) != done.end()) continue;
            return proof.fault(rank, proof.schedule(withheld).steps.size(),
                               fmt::format("leaves the barrier although rank {} has not entered", withheld));
        }
    }
}

}  // namespace

std::vector<std::string> prove(const std::vector<Schedule>& schedules, const Contract& contract, Budget budget) {
    TUTTI_ASSERT(!schedules.empty());
    TUTTI_ASSERT(schedules.size() == contract.host_of.size());
    TUTTI_ASSERT(contract.slots > 0);
    Proof proof(schedules, contract, budget);
    check_kinds(proof);
    check_types(proof);
    for (Rank rank = 0; rank < proof.size(); ++rank) {
        for (const Disorder& found : disorders_of(rank, schedules, contract, budget))
            proof.fault(rank, found.step, found.what);
    }
    for (const Race& race : races_in(schedules, budget)) proof.fault(race.rank, race.step, race.what);
    while (proof.faults().size() < faults_max && advance(proof)) {
    }
    check_end(proof);
    if (proof.faults().empty()) check_results(proof);
    const Collective collective = contract.collective;
    if (proof.faults().empty() && (collective == Collective::all_reduce || collective == Collective::broadcast ||
                                   collective == Collective::all_gather))
        check_equal(proof);
    if (proof.faults().empty() && collective == Collective::barrier) check_barrier(proof);
    return proof.faults();
}

}  // namespace tutti::schedule
