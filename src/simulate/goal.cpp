#include "simulate/goal.hpp"

#include "algorithm/plan.hpp"
#include "core/assert.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <map>

namespace tutti::simulate {
namespace {

using schedule::StepKind;

// A publication has a tag of its own; messages have tag 0.
std::uint32_t tag_of(std::uint32_t round) {
    return round + 1;
}

class GoalWriter {
 public:
    explicit GoalWriter(const std::vector<Program>& programs) : programs_(programs), ranks_(std::ssize(programs)) {
        for (Rank rank = 0; rank < ranks_; ++rank) {
            for (const Op& op : program(rank).ops) {
                for (std::uint32_t i = 0; i < op.watched_count; ++i)
                    readers_[{peer(rank, program(rank).watched[op.first_watched + i]), op.round}].push_back(rank);
            }
        }
    }

    std::string write() {
        print("num_ranks {}\n", ranks_);
        for (Rank rank = 0; rank < ranks_; ++rank) write(rank);
        return std::move(text_);
    }

 private:
    template <class... Values>
    void print(fmt::format_string<Values...> format, Values&&... values) {
        fmt::format_to(std::back_inserter(text_), format, std::forward<Values>(values)...);
    }
    const Program& program(Rank rank) const { return programs_[static_cast<std::size_t>(rank)]; }
    Rank peer(Rank rank, int distance) const { return static_cast<Rank>((rank + distance) % ranks_); }
    static std::uint64_t bytes(float value) { return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(value)); }

    // One line, and what it requires.
    void line(const std::vector<std::uint32_t>& before, const std::string& words) {
        ++label_;
        print("l{}: {}\n", label_, words);
        for (const std::uint32_t other : before) print("l{} requires l{}\n", label_, other);
    }

    // An op becomes one line or more: `enters_` are those that wait for others, `leaves_` is the one for which others
    // wait.
    void write(Rank rank) {
        const Program& p = program(rank);
        std::vector<std::vector<std::uint32_t>> before(p.ops.size());  // labels
        label_ = 0;
        print("\nrank {} {{\n", rank);
        for (std::size_t i = 0; i < p.ops.size(); ++i) {
            const Op& op = p.ops[i];
            const auto work_ns = static_cast<std::uint64_t>(std::llround(op.work_us * 1e3));
            std::vector<std::uint32_t> last;
            if (op.kind == StepKind::send) {
                line(before[i],
                     fmt::format("send {}b to {} tag 0", bytes(op.bytes), peer(rank, p.to[op.peer].distance)));
            } else if (schedule::receives(op.kind)) {
                line(before[i],
                     fmt::format("recv {}b from {} tag 0", bytes(op.bytes), peer(rank, p.from[op.peer].distance)));
                if (work_ns > 0) line({label_}, fmt::format("calc {}", work_ns));
            } else {
                std::vector<std::uint32_t> arrived;
                for (std::uint32_t k = 0; k < op.watched_count; ++k) {
                    const Rank from = peer(rank, p.watched[op.first_watched + k]);
                    line(before[i],
                         fmt::format("recv {}b from {} tag {}", published(from, op.round), from, tag_of(op.round)));
                    arrived.push_back(label_);
                }
                line(arrived.empty() ? before[i] : arrived, fmt::format("calc {}", work_ns));
            }
            last.push_back(label_);
            if (op.kind == StepKind::publish) {
                const std::uint32_t written = label_;
                if (const auto found = readers_.find({rank, op.round}); found != readers_.end()) {
                    for (const Rank reader : found->second) {
                        line({written},
                             fmt::format("send {}b to {} tag {}", bytes(op.bytes), reader, tag_of(op.round)));
                    }
                }
            }
            for (std::uint32_t k = 0; k < op.next_count; ++k) before[p.next[op.first_next + k]].push_back(last.front());
        }
        print("}}\n");
    }

    std::uint64_t published(Rank rank, std::uint32_t round) const {
        for (const Op& op : program(rank).ops) {
            if (op.kind == StepKind::publish && op.round == round) return bytes(op.bytes);
        }
        TUTTI_ASSERT(false);
        return 0;
    }

    const std::vector<Program>& programs_;
    std::int64_t ranks_;
    std::map<std::pair<Rank, std::uint32_t>, std::vector<Rank>> readers_;  // of a rank's publication of a round
    std::string text_;
    std::uint32_t label_ = 0;
};

}  // namespace

std::string goal_of(const Question& question) {
    const algorithm::Layout& layout = question.layout;
    const algorithm::Request& request = question.request;
    algorithm::Plans plans(layout, request);
    const algorithm::CostModel model = costs_behind(question.network, question.costs);
    const algorithm::StepCosts costs(layout, model,
                                     algorithm::held_bytes(plans.of(request.root), request.element_bytes));
    std::vector<Program> programs;
    std::uint64_t steps = 0;
    for (Rank rank = 0; rank < layout.size(); ++rank) {
        const schedule::Schedule schedule = plans.of(rank);
        steps += schedule.steps.size();
        if (schedule.in_place)
            throw InvalidArgument(
                fmt::format("--goal: {} reads and writes other ranks' memory in place, which GOAL cannot "
                            "say: expected another --algorithm",
                            plans.algorithm()));
        if (steps > goal_steps_max)
            throw InvalidArgument(
                fmt::format("--goal: {} of {} ranks has more than {} steps: expected fewer ranks or bytes",
                            plans.algorithm(), layout.size(), goal_steps_max));
        programs.push_back(compile(schedule, rank, Spread::all(layout.size()), request.element_bytes, costs));
    }
    return GoalWriter(programs).write();
}

}  // namespace tutti::simulate
