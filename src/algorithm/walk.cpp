#include "algorithm/walk.hpp"

#include "core/assert.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

namespace tutti::algorithm {
namespace {

using schedule::Buffer;
using schedule::Chunk;
using schedule::Operand;
using schedule::Schedule;
using schedule::Step;
using schedule::StepKind;

class Walk {
 public:
    Walk(const std::vector<Schedule>& schedules, const Layout& layout, std::uint64_t element_bytes,
         const CostModel& costs)
        : schedules_(schedules), layout_(layout), element_bytes_(element_bytes), costs_(costs) {
        std::uint64_t held = 0;
        for (const Schedule& s : schedules) {
            Walker& walker = walkers_.emplace_back();
            walker.done.resize(s.steps.size());
            held = std::max(held, s.of(Buffer::input).used_end + s.of(Buffer::output).used_end + scratch_count(s));
        }
        crowd_ = std::max(1.0, layout.size() / (costs.cores * layout.machines));
        const bool cached = static_cast<double>(held * element_bytes_) * crowd_ <= 1024 * costs.cache_kb;
        copy_gbps_ = cached ? costs.cache_copy_gbps : costs.memory_copy_gbps;
        combine_gbps_ = cached ? costs.combine_gbps : std::min(costs.combine_gbps, costs.memory_copy_gbps);
        TUTTI_ASSERT(walkers_.size() == schedules.size() && crowd_ >= 1);
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
            walker.now = begin + crowd_ * busy_us(rank, step);
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
            ready = std::max(ready, found->second + 2 * costs_.line_us);
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

    bool near(Rank a, Rank b) const {
        TUTTI_ASSERT(a >= 0 && a < layout_.size() && b >= 0 && b < layout_.size());
        const auto& host = layout_.host_of;
        return layout_.shared_memory && host[static_cast<std::size_t>(a)] == host[static_cast<std::size_t>(b)];
    }

    double bytes_of(const Schedule& s, const Chunk& chunk) const {
        return static_cast<double>(schedule::bytes_of(s, chunk, element_bytes_));
    }
    double bytes_of(const Schedule& s, const Step& step) const {
        double bytes = 0;
        for (const Operand& operand : operands_of(s, step)) bytes += bytes_of(s, operand.chunk);
        return bytes;
    }

    // The time for which the step keeps the rank's core.
    double busy_us(Rank rank, const Step& step) const {
        const Schedule& s = schedules_[static_cast<std::size_t>(rank)];
        const double target = bytes_of(s, step.target) / 1e3;
        const double operands = bytes_of(s, step) / 1e3;
        const double inputs = std::max(1.0, step.operand_count - 1.0);
        switch (step.kind) {
            case StepKind::encode:  // about as quick as numbers are combined
            case StepKind::decode: return std::max(target, operands) / combine_gbps_;
            case StepKind::decode_add: return target * step.operand_count / combine_gbps_;
            case StepKind::magnitudes: return operands / combine_gbps_;
            case StepKind::largest:
            case StepKind::convert:
            case StepKind::copy: return std::max(target, operands) / copy_gbps_;
            case StepKind::call:
            case StepKind::combine: return target * inputs / combine_gbps_;
            case StepKind::meet: return 2 * costs_.line_us;
            case StepKind::publish: return operands / copy_gbps_ + costs_.line_us;
            case StepKind::get:
            case StepKind::put:
            case StepKind::read: return std::max(target, operands) / costs_.share_gbps;
            case StepKind::read_combine: return target * inputs / std::min(combine_gbps_, costs_.share_gbps);
            case StepKind::send:
                return near(rank, step.peer) ? 3 * costs_.line_us + operands / copy_gbps_
                                             : costs_.tcp_send_us + operands / costs_.tcp_gbps;
            case StepKind::receive:
            case StepKind::receive_combine: {
                const double sum = step.kind == StepKind::receive ? 0 : target / combine_gbps_;
                return near(rank, step.peer) ? 3 * costs_.line_us + target / costs_.share_gbps + sum
                                             : costs_.tcp_receive_us + sum;
            }
            case StepKind::signal: return costs_.line_us;
            case StepKind::wait:
            case StepKind::release:
            case StepKind::settle: return 0;
        }
        return 0;
    }

    // From the end of a send to its arrival.
    double way_us(Rank rank, const Step& step) const {
        return near(rank, step.peer) ? 3 * costs_.line_us
                                     : std::max(0.0, costs_.tcp_us - costs_.tcp_send_us - costs_.tcp_receive_us);
    }

    const std::vector<Schedule>& schedules_;
    const Layout& layout_;
    std::uint64_t element_bytes_;
    const CostModel& costs_;
    double crowd_ = 1, copy_gbps_ = 1, combine_gbps_ = 1;
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
