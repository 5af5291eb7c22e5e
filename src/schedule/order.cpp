#include "schedule/order.hpp"

#include "core/assert.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace tutti::schedule {
namespace {

bool overlap(const std::vector<Chunk>& these, const std::vector<Chunk>& those) {
    return std::ranges::any_of(these, [&](const Chunk& x) {
        return std::ranges::any_of(those, [&](const Chunk& y) { return share_elements(x, y); });
    });
}

// Any two steps that touch the same elements, one writing, must be ordered: by `after`, or both be staging steps.
std::optional<Disorder> hazard_in(const Schedule& s, Budget& budget) {
    const std::size_t n = s.steps.size();
    budget.spend(2 * n * n);
    std::vector<std::vector<bool>> before(n, std::vector<bool>(n, false));
    std::vector<std::pair<std::vector<Chunk>, std::vector<Chunk>>> touched(n);
    std::optional<std::size_t> last_shared;
    for (std::size_t i = 0; i < n; ++i) {
        const Step& step = s.steps[i];
        const auto inherit = [&](std::size_t earlier) {
            budget.spend(earlier / 8);
            before[i][earlier] = true;
            for (std::size_t k = 0; k < earlier; ++k) {
                if (before[earlier][k]) before[i][k] = true;
            }
        };
        TUTTI_ASSERT(std::size_t{step.first_after} + step.after_count <= s.after.size());
        TUTTI_ASSERT(std::size_t{step.first_operand} + step.operand_count <= s.operands.size());
        for (std::uint32_t a = 0; a < step.after_count; ++a) {
            const std::size_t earlier = s.after[step.first_after + a];
            if (earlier >= i) return Disorder{i, "waits for a later step"};
            inherit(earlier);
        }
        if (is_shared(step.kind)) {
            if (last_shared) inherit(*last_shared);
            last_shared = i;
        }
        for (std::uint32_t o = 0; step.kind != StepKind::meet && o < step.operand_count; ++o) {
            const Operand& operand = s.operands[step.first_operand + o];
            if (operand.peer < 0 && operand.chunk.count > 0) touched[i].first.push_back(operand.chunk);
        }
        const bool own_target = !s.in_place || step.peer < 0 || step.kind == StepKind::get;
        if (step.target.count > 0 && own_target) touched[i].second.push_back(step.target);
        for (std::size_t k = 0; k < i; ++k) {
            if (before[i][k]) continue;
            if (overlap(touched[i].second, touched[k].second) || overlap(touched[i].second, touched[k].first) ||
                overlap(touched[i].first, touched[k].second)) {
                return Disorder{i, fmt::format("touches what step {} touches, but does not wait for it", k)};
            }
        }
    }
    return std::nullopt;
}

// The only other rank of this rank's host; -1 if there is none, or more than one.
Rank partner_of(Rank rank, const Contract& contract) {
    TUTTI_ASSERT(static_cast<std::size_t>(rank) < contract.host_of.size());
    Rank partner = -1;
    for (Rank peer = 0; peer < static_cast<Rank>(contract.host_of.size()); ++peer) {
        const auto host = [&](Rank r) { return contract.host_of[static_cast<std::size_t>(r)]; };
        if (peer == rank || host(peer) != host(rank)) continue;
        if (partner >= 0) return -1;
        partner = peer;
    }
    TUTTI_ASSERT(partner != rank);
    return partner;
}

// Whether it waits for another rank's publication: a rank may combine its own values alone.
bool reads_another(const Schedule& s, const Step& step) {
    if (step.kind == StepKind::read) return true;
    return step.kind == StepKind::read_combine &&
           std::ranges::any_of(operands_of(s, step), [](const Operand& operand) { return operand.peer >= 0; });
}

// Two ranks of a host take turns with the memory of slots: a rank must read the other's values there before it
// publishes.
void find_missed_turns(const Schedule& s, const Schedule& others, std::vector<Disorder>& found) {
    TUTTI_ASSERT(!s.in_place);
    std::set<std::uint32_t> theirs;  // the rounds in which the other publishes values
    for (const Step& step : others.steps) {
        if (step.kind == StepKind::publish && step.operand_count > 0) theirs.insert(step.round);
    }
    std::map<std::uint32_t, std::size_t> last_read;  // by round: its last reader
    for (std::size_t i = 0; i < s.steps.size(); ++i) {
        if (reads_another(s, s.steps[i])) last_read[s.steps[i].round] = i;
    }
    for (std::size_t i = 0; i < s.steps.size(); ++i) {
        const Step& step = s.steps[i];
        if (step.kind != StepKind::publish || step.operand_count == 0) continue;
        // Elsewhere the other's values are older: this rank has released them.
        if (step.round < 2 || (s.turn_group && step.round % 4 < 2)) continue;
        TUTTI_ASSERT(step.round >= 2);
        const std::uint32_t there = step.round - 2;
        const auto read = last_read.find(there);
        if (theirs.contains(there) && (read == last_read.end() || read->second > i))
            found.push_back({i, fmt::format("publishes where it has yet to read the other's round {}", there)});
    }
}

}  // namespace

std::vector<Disorder> disorders_of(Rank rank, const std::vector<Schedule>& schedules, const Contract& contract,
                                   Budget& budget) {
    TUTTI_ASSERT(static_cast<std::size_t>(rank) < schedules.size());
    TUTTI_ASSERT(schedules.size() == contract.host_of.size());
    std::vector<Disorder> found;
    const Schedule& mine = schedules[static_cast<std::size_t>(rank)];
    if (auto hazard = hazard_in(mine, budget)) found.push_back(std::move(*hazard));
    const Rank partner = partner_of(rank, contract);
    if (partner >= 0 && !mine.in_place) find_missed_turns(mine, schedules[static_cast<std::size_t>(partner)], found);
    return found;
}

}  // namespace tutti::schedule
