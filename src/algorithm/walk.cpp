#include "algorithm/walk.hpp"

#include "algorithm/step_cost.hpp"
#include "core/assert.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

namespace tutti::algorithm {
namespace {

using schedule::Operand;
using schedule::Schedule;
using schedule::Step;
using schedule::StepKind;

double most_held(const std::vector<Schedule>& schedules, std::uint64_t element_bytes) {
    double held = 0;
    for (const Schedule& s : schedules) held = std::max(held, held_bytes(s, element_bytes));
    return held;
}

class Walk {
 public:
    Walk(const std::vector<Schedule>& schedules, const Layout& layout, std::uint64_t element_bytes,
         const CostModel& costs)
        : schedules_(schedules),
          layout_(layout),
          element_bytes_(element_bytes),
          costs_(layout, costs, most_held(schedules, element_bytes)) {
        for (const Schedule& s : schedules) walkers_.emplace_back().done.resize(s.steps.size());
        TUTTI_ASSERT(walkers_.size() == schedules.size());
        TUTTI_ASSERT(schedules.size() == static_cast<std::size_t>(layout.size()));
    }

    std::vector<std::vector<Span>> run() {
        for (bool moved = true; moved;) {
            moved = false;
            for (Rank rank = 0; rank < layout_.size(); ++rank) moved |= advance(rank);
        }
        std::vector<std::vector<Span>> spans;
        for (const Walker& walker : walkers_) {
            TUTTI_ASSERT(walker.first == walker.done.size());  // schedules are free of deadlock
            auto& row = spans.emplace_back();
            for (const auto& span : walker.done) row.push_back(span.value_or(Span{walker.now, walker.now}));
        }
        return spans;
    }

 private:
    struct Walker {
        double now = 0;                         // when the core has time for the next step
        std::vector<std::optional<Span>> done;  // when each step was
        std::size_t first = 0;                  // of those that are not
    };
    using Lane = std::pair<Rank, Rank>;
    static constexpr std::size_t looked_ahead = 256;  // steps that wait, beyond which none is looked for

    // Does the steps that can run now, in program order where several can.
    bool advance(Rank rank) {
        const Schedule& s = schedules_[static_cast<std::size_t>(rank)];
        Walker& walker = walkers_[static_cast<std::size_t>(rank)];
        TUTTI_ASSERT(walker.first <= s.steps.size() && walker.done.size() == s.steps.size());
        bool moved = false, staging = true;
        std::map<std::pair<Rank, bool>, bool> waiting;  // messages of one peer and direction keep their order
        std::size_t blocked_steps = 0;
        for (std::size_t i = walker.first; i < s.steps.size() && blocked_steps < looked_ahead; ++i) {
            if (walker.done[i]) continue;
            const Step& step = s.steps[i];
            const bool receives = step.kind == StepKind::receive || step.kind == StepKind::receive_combine;
            const bool message = receives || step.kind == StepKind::send;
            bool& blocked = waiting[{step.peer, receives}];
            const auto ready = (schedule::is_shared(step.kind) && !staging) || (message && blocked)
                                   ? std::nullopt
                                   : ready_at(rank, step);
            if (!ready) {
                ++blocked_steps;
                if (schedule::is_shared(step.kind)) staging = false;
                if (message) blocked = true;
                continue;
            }
            const double begin = std::max(walker.now, *ready);
            walker.now = begin + costs_.rates().crowd * busy_us(rank, step);
            walker.done[i] = Span{begin, walker.now};
            TUTTI_ASSERT(walker.now >= *ready);
            if (step.kind == StepKind::publish || step.kind == StepKind::signal)
                published_[{rank, step.round}] = walker.now;
            if (step.kind == StepKind::send) arrivals_[{rank, step.peer}].push_back(walker.now + way_us(rank, step));
            if (receives) ++taken_[{step.peer, rank}];
            moved = true;
        }
        while (walker.first < s.steps.size() && walker.done[walker.first]) ++walker.first;
        return moved;
    }

    // The time at which everything that the step needs is there; empty: not known yet.
    std::optional<double> ready_at(Rank rank, const Step& step) const {
        const Schedule& s = schedules_[static_cast<std::size_t>(rank)];
        double ready = 0;
        for (std::uint32_t a = 0; a < step.after_count; ++a) {
            const auto& done = walkers_[static_cast<std::size_t>(rank)].done[s.after[step.first_after + a]];
            if (!done) return std::nullopt;
            ready = std::max(ready, done->end_us);
        }
        const auto wait_for = [&](Rank peer) {
            const auto found = published_.find({peer, step.round});
            if (found == published_.end()) return false;
            ready = std::max(ready, found->second + costs_.rates().signal_us);
            return true;
        };
        const bool waits = step.kind == StepKind::read || step.kind == StepKind::wait;
        if (waits && !wait_for(step.peer)) return std::nullopt;
        if (step.kind == StepKind::read_combine && !s.in_place) {
            for (std::uint32_t i = 0; i < step.operand_count; ++i) {
                const Operand& operand = s.operands[step.first_operand + i];
                if (operand.peer >= 0 && operand.peer != rank && !wait_for(operand.peer)) return std::nullopt;
            }
        }
        if (step.kind == StepKind::receive || step.kind == StepKind::receive_combine) {
            const Lane lane{step.peer, rank};
            const auto arrived = arrivals_.find(lane);
            const auto taken = taken_.find(lane);
            TUTTI_ASSERT(taken == taken_.end() || taken->second > 0);
            const std::size_t next = taken == taken_.end() ? 0 : taken->second;
            if (arrived == arrivals_.end() || next >= arrived->second.size()) return std::nullopt;
            ready = std::max(ready, arrived->second[next]);
        }
        return ready;
    }

    StepCosts::Message message(Rank rank, const Step& step) const {
        const Schedule& s = schedules_[static_cast<std::size_t>(rank)];
        const double bytes = step.kind == StepKind::send
                                 ? operand_bytes(s, step, element_bytes_)
                                 : static_cast<double>(bytes_of(s, step.target, element_bytes_));
        return costs_.message(bytes, costs_.near(rank, step.peer));
    }

    // The time for which the step keeps the rank's core. A receiver copies while the sender does.
    double busy_us(Rank rank, const Step& step) const {
        const double work = costs_.work_us(schedules_[static_cast<std::size_t>(rank)], step, element_bytes_);
        if (step.kind == StepKind::send) return message(rank, step).send_us + message(rank, step).send_bytes_us;
        if (!schedule::receives(step.kind)) return work;
        const StepCosts::Message m = message(rank, step);
        return m.receive_us + work + (costs_.near(rank, step.peer) ? m.receive_bytes_us : 0);
    }

    // From the end of a send to its arrival.
    double way_us(Rank rank, const Step& step) const { return message(rank, step).latency_us; }

    const std::vector<Schedule>& schedules_;
    const Layout& layout_;
    std::uint64_t element_bytes_;
    StepCosts costs_;
    std::vector<Walker> walkers_;
    std::map<std::pair<Rank, std::uint32_t>, double> published_;  // and signalled, by rank and round
    std::map<Lane, std::vector<double>> arrivals_;
    std::map<Lane, std::size_t> taken_;
};

}  // namespace

std::vector<std::vector<Span>> walk(const std::vector<Schedule>& schedules, const Layout& layout,
                                    std::uint64_t element_bytes, const CostModel& costs) {
    TUTTI_ASSERT(!schedules.empty());
    return Walk(schedules, layout, element_bytes, costs).run();
}

double walked_us(const std::vector<Schedule>& schedules, const Layout& layout, std::uint64_t element_bytes,
                 const CostModel& costs) {
    double last = 0;
    for (const auto& row : walk(schedules, layout, element_bytes, costs)) {
        for (const Span& span : row) last = std::max(last, span.end_us);
    }
    return last;
}

}  // namespace tutti::algorithm
