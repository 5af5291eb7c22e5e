#include "simulate/step.hpp"

#include "algorithm/plan.hpp"
#include "core/assert.hpp"
#include "simulate/machine.hpp"
#include "transport/shm/arena.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>

namespace tutti::simulate {
namespace {

using algorithm::Layout;

constexpr std::size_t times_max = 100'000'000;  // pieces by ranks
constexpr double same_us = 1e-6;
constexpr std::uint64_t at_once_max = 20'000'000;  // steps

// One of the step's calls: the ranks that are played, and the times of the last play.
struct Scene {
    Layout layout;
    Place place;
    std::unique_ptr<algorithm::StepCosts> costs;
    std::optional<Cast> cast;
    std::vector<double> begins_us, took_us;  // of the last play, from its first rank's begin
};

class StepPlay {
 public:
    StepPlay(const StepQuestion& question, const Progress& progress)
        : q_(question),
          progress_(progress),
          ranks_(question.layout.size()),
          model_(costs_behind(question.network, question.costs)) {
        per_host_ = ranks_ / (q_.layout.host_of.back() + 1);
        TUTTI_ASSERT(!q_.conditions.kill && ranks_ % per_host_ == 0);
        set_scenes();
        const std::size_t times = q_.step.pieces.size() * static_cast<std::size_t>(played_);
        if (times > times_max)
            throw InvalidArgument(
                fmt::format("{} pieces on each of {} ranks: expected at most {} in all (fewer ranks "
                            "or pieces, or no --delay, --jitter, --slow-link: these need every rank)",
                            q_.step.pieces.size(), played_, times_max));
    }

    StepAnswer run() {
        answer_.ranks = ranks_;
        answer_.played = played_;
        starts_.assign(static_cast<std::size_t>(played_), 0);
        for (const auto& [rank, us] : q_.conditions.delays_us) starts_[static_cast<std::size_t>(rank)] = us;
        computed_ = starts_;
        groups_.assign(q_.step.groups.size(), starts_);
        last_computed_ = none;
        last_of_group_.assign(q_.step.groups.size(), none);
        for (std::size_t i = 0; i < q_.step.pieces.size(); ++i) {
            if (progress_)
                progress_({.share = static_cast<double>(i) / static_cast<double>(q_.step.pieces.size()),
                           .us = computed_.front()});
            run_piece(i);
        }
        if (groups_overlap()) play_at_once();
        finish();
        return std::move(answer_);
    }

 private:
    static constexpr std::size_t none = static_cast<std::size_t>(-1);

    // All calls are played by as many classes, so that each has a begin for each class.
    void set_scenes() {
        std::int64_t classes = per_host_;
        const bool whole = !q_.conditions.usual();
        for (const WholeStep::Call& call : q_.step.calls) {
            Scene& scene = scenes_.emplace_back();
            scene.layout = layout_of(call.spread, q_.layout, q_.step.groups[call.group]);
            scene.place = {.spread = call.spread, .ranks_per_host = per_host_};
            TUTTI_ASSERT(call.spread.ranks == ranks_);
            if (call.spread.size == 1) continue;
            const algorithm::Plans plans(scene.layout, call.request);
            classes = std::lcm(classes, std::int64_t{classes_of(plans.algorithm(), call.request.collective,
                                                                scene.layout, scene.place, q_.network)});
            classes = std::min<std::int64_t>(classes, ranks_);
        }
        played_ = whole ? ranks_ : static_cast<int>(classes);
        for (std::size_t i = 0; i < scenes_.size(); ++i) {
            cast(i);
            if (!scenes_[i].cast || scenes_[i].cast->played == played_) continue;
            TUTTI_ASSERT(scenes_[i].cast->whole() && played_ < ranks_);  // a rank has other steps than its class
            played_ = ranks_;
            i = static_cast<std::size_t>(-1);
        }
    }

    void cast(std::size_t number) {
        Scene& scene = scenes_[number];
        const WholeStep::Call& call = q_.step.calls[number];
        if (call.spread.size == 1) return;  // there is nobody to talk to
        const double held = algorithm::held_bytes(algorithm::Plans(scene.layout, call.request).of(call.request.root),
                                                  call.request.element_bytes);
        scene.costs = std::make_unique<algorithm::StepCosts>(scene.layout, model_, held);
        scene.place.classes = played_;
        scene.cast = cast_of(scene.layout, call.request, *scene.costs, q_.network, scene.place, played_ == ranks_,
                             [&](double share) {
                                 if (progress_) progress_({.writes = true, .share = share});
                             });
    }

    void run_piece(std::size_t i) {
        const WholeStep::Piece& piece = q_.step.pieces[i];
        PieceTimes& times = answer_.pieces.emplace_back();
        std::vector<double>& stream = piece.call < 0 ? computed_ : groups_[group_of(piece)];
        times.begin_us = stream;
        for (const std::uint32_t before : piece.after) {
            TUTTI_ASSERT(before < i);
            const auto& ends = answer_.pieces[before].end_us;
            for (std::size_t r = 0; r < ends.size(); ++r) times.begin_us[r] = std::max(times.begin_us[r], ends[r]);
        }
        if (piece.call < 0) {
            times.end_us = times.begin_us;
            for (std::size_t r = 0; r < times.end_us.size(); ++r) times.end_us[r] += computing_us(i, r);
        } else {
            times.end_us = played(static_cast<std::size_t>(piece.call), i, times.begin_us);
        }
        stream = times.end_us;
        std::size_t& last = piece.call < 0 ? last_computed_ : last_of_group_[group_of(piece)];
        before_in_stream_.push_back(last);
        last = i;
    }

    double computing_us(std::size_t i, std::size_t rank) const {
        return varied(q_.step.pieces[i].compute_us, q_.conditions.jitter, q_.conditions.seed + i, rank, i);
    }

    std::size_t group_of(const WholeStep::Piece& piece) const {
        return q_.step.calls[static_cast<std::size_t>(piece.call)].group;
    }

    std::vector<double> played(std::size_t number, std::size_t piece, const std::vector<double>& begins) {
        Scene& scene = scenes_[number];
        if (!scene.cast) return begins;
        const double first = *std::ranges::min_element(begins);
        Conditions conditions = q_.conditions;
        conditions.delays_us.clear();
        conditions.begins_us = begins;
        for (double& us : conditions.begins_us) us -= first;
        conditions.seed += piece;
        const bool again = conditions.jitter == 0 && scene.begins_us.size() == begins.size() &&
                           std::ranges::equal(conditions.begins_us, scene.begins_us,
                                              [](double a, double b) { return std::abs(a - b) < same_us; });
        if (!again) {
            scene.begins_us = conditions.begins_us;
            scene.took_us = play(*scene.cast, scene.layout, model_, *scene.costs, q_.network, conditions, {}).finish_us;
            answer_.steps += scene.cast->steps;
        }
        std::vector<double> ends = scene.took_us;
        for (double& us : ends) us += first;
        return ends;
    }

    const Scene* scene_of(std::size_t piece) const {
        const int call = q_.step.pieces[piece].call;
        if (call < 0 || !scenes_[static_cast<std::size_t>(call)].cast) return nullptr;
        return &scenes_[static_cast<std::size_t>(call)];
    }

    // Whether collectives of two groups run at the same time, on whatever ranks.
    bool groups_overlap() const {
        std::vector<std::pair<double, std::size_t>> begins;
        for (std::size_t i = 0; i < answer_.pieces.size(); ++i) {
            if (scene_of(i) != nullptr) begins.emplace_back(std::ranges::min(answer_.pieces[i].begin_us), i);
        }
        std::ranges::sort(begins);
        std::vector<double> ends(q_.step.groups.size(), 0);
        for (const auto& [begin, i] : begins) {
            const std::size_t group = group_of(q_.step.pieces[i]);
            for (std::size_t other = 0; other < ends.size(); ++other) {
                if (other != group && ends[other] > begin + same_us) return true;
            }
            ends[group] = std::max(ends[group], std::ranges::max(answer_.pieces[i].end_us));
        }
        return false;
    }

    // All collectives on one machine: each begins on a rank when all that it waits for has ended there.
    void play_at_once() {
        std::uint64_t steps = 0;
        for (std::size_t i = 0; i < q_.step.pieces.size(); ++i) {
            if (const Scene* scene = scene_of(i)) steps += scene->cast->steps;
        }
        if (steps > at_once_max) {
            answer_.at_once = fmt::format(
                "collectives of several groups overlap and are played alone: at once they would have {} steps, and {} "
                "is the most",
                steps, at_once_max);
            return;
        }
        answer_.at_once = "collectives of several groups overlap: they share links and cores";
        answer_.steps += steps;
        Conditions conditions = q_.conditions;
        conditions.delays_us.clear();
        Machine machine(q_.network, model_, conditions, ranks_ / per_host_, played_, per_host_);
        struct Waiting {
            std::vector<std::uint32_t> behind;  // pieces that wait for this one
            std::vector<std::size_t> left;      // by rank: how many this one waits for
            Play* play = nullptr;
        };
        std::vector<Waiting> waiting(q_.step.pieces.size());
        std::vector<std::pair<std::uint32_t, Index>> ended;  // on a rank, of which those behind do not know yet
        std::size_t over = 0;
        std::function<void()> go_on;
        const auto begin = [&](std::uint32_t i, Index rank) {
            PieceTimes& times = answer_.pieces[i];
            const Scene* scene = scene_of(i);
            if (scene == nullptr) {
                times.end_us[rank] = times.begin_us[rank] + computing_us(i, rank);
                ended.emplace_back(i, rank);
                return;
            }
            Play*& play = waiting[i].play;
            if (play == nullptr) {
                play = &machine.add(*scene->cast, scene->layout, *scene->costs, q_.conditions.seed + i, false);
                play->on_end = [&, i](Index on) {
                    answer_.pieces[i].end_us[on] = machine.now();
                    ended.emplace_back(i, on);
                    go_on();
                };
            }
            machine.at(times.begin_us[rank], Happening::start, play->number(), rank);
        };
        go_on = [&] {
            for (; !ended.empty(); ++over) {
                const auto [i, rank] = ended.back();
                ended.pop_back();
                for (const std::uint32_t next : waiting[i].behind) {
                    double& us = answer_.pieces[next].begin_us[rank];
                    us = std::max(us, answer_.pieces[i].end_us[rank]);
                    if (--waiting[next].left[rank] == 0) begin(next, rank);
                }
            }
        };
        for (std::uint32_t i = 0; i < waiting.size(); ++i) {
            std::vector<std::uint32_t> before = q_.step.pieces[i].after;
            if (before_in_stream_[i] != none) before.push_back(static_cast<std::uint32_t>(before_in_stream_[i]));
            for (const std::uint32_t piece : before) waiting[piece].behind.push_back(i);
            waiting[i].left.assign(starts_.size(), before.size());
            answer_.pieces[i].begin_us = starts_;
        }
        for (std::uint32_t i = 0; i < waiting.size(); ++i) {
            for (Index rank = 0; rank < starts_.size(); ++rank) {
                if (waiting[i].left[rank] == 0) begin(i, rank);
            }
        }
        go_on();
        const auto all = static_cast<double>(waiting.size() * starts_.size());
        machine.run(false, [&] {
            if (progress_) progress_({.share = static_cast<double>(over) / all, .us = machine.now()});
        });
        TUTTI_ASSERT(over == waiting.size() * starts_.size());
    }

    void finish() {
        answer_.finish_us = starts_;
        for (const PieceTimes& times : answer_.pieces) {
            for (std::size_t r = 0; r < starts_.size(); ++r)
                answer_.finish_us[r] = std::max(answer_.finish_us[r], times.end_us[r]);
        }
        const auto last = std::ranges::max_element(answer_.finish_us);
        answer_.step_us = *last;
        answer_.last = static_cast<Rank>(last - answer_.finish_us.begin());
        for (std::size_t i = 0; i < scenes_.size(); ++i) {
            answer_.words.push_back(scenes_[i].cast
                                        ? fmt::format("{}, {}", scenes_[i].cast->algorithm, scenes_[i].cast->words)
                                        : "one rank");
        }
        find_latest();
        add_up();
        follow();
    }

    // By piece and rank, of collectives: the rank of its group that began last.
    void find_latest() {
        for (std::size_t i = 0; i < q_.step.pieces.size(); ++i) {
            const WholeStep::Piece& piece = q_.step.pieces[i];
            if (piece.call < 0) continue;
            const Spread& spread = q_.step.calls[static_cast<std::size_t>(piece.call)].spread;
            const auto& begins = answer_.pieces[i].begin_us;
            std::map<int, Rank> of_group;
            for (Rank r = 0; r < played_; ++r) {
                Rank& late = of_group.try_emplace(spread.group(r), r).first->second;
                if (begins[static_cast<std::size_t>(r)] > begins[static_cast<std::size_t>(late)] + same_us) late = r;
            }
            for (Rank r = 0; r < played_; ++r) answer_.pieces[i].last.push_back(of_group.at(spread.group(r)));
        }
    }

    // The piece whose end `piece` waited for on this rank; none: it began with the step.
    std::size_t cause_of(std::size_t piece, std::size_t rank) const {
        std::size_t cause = before_in_stream_[piece];
        for (const std::uint32_t before : q_.step.pieces[piece].after) {
            if (cause == none || answer_.pieces[before].end_us[rank] > answer_.pieces[cause].end_us[rank])
                cause = before;
        }
        return cause;
    }

    void add_up() {
        std::map<std::string, std::size_t> numbers;
        std::vector<std::size_t> cost_of;
        for (const WholeStep::Piece& piece : q_.step.pieces) {
            const auto [at, is_new] = numbers.try_emplace(piece.name, answer_.costs.size());
            if (is_new) answer_.costs.push_back({.name = piece.name, .computes = piece.call < 0});
            ++answer_.costs[at->second].count;
            cost_of.push_back(at->second);
        }
        std::vector<std::map<Rank, double>> late(answer_.costs.size());
        for (std::size_t rank = 0; rank < static_cast<std::size_t>(played_); ++rank) {
            // Where the computing stands still, it waits for the piece that ends last, and that piece for those before.
            const auto expose = [&](double from, double to, std::size_t piece) {
                while (piece != none && to > from + same_us) {
                    const double begin = std::max(from, answer_.pieces[piece].begin_us[rank]);
                    if (q_.step.pieces[piece].call >= 0 && to > begin) {
                        NamedCost& cost = answer_.costs[cost_of[piece]];
                        cost.exposed_us += to - begin;
                        const Rank last = answer_.pieces[piece].last[rank];
                        const double all_there = answer_.pieces[piece].begin_us[static_cast<std::size_t>(last)];
                        const double waits = std::clamp(all_there - begin, 0.0, to - begin);
                        cost.late_us += waits;
                        if (waits > 0) late[cost_of[piece]][last] += waits;
                        answer_.exposed_us += to - begin;
                    }
                    to = std::min(to, begin);
                    piece = cause_of(piece, rank);
                }
            };
            double done = 0, communicates = 0;
            std::vector<std::pair<double, double>> spans;
            for (std::size_t i = 0; i < q_.step.pieces.size(); ++i) {
                const double begin = answer_.pieces[i].begin_us[rank], end = answer_.pieces[i].end_us[rank];
                answer_.costs[cost_of[i]].busy_us += end - begin;
                if (q_.step.pieces[i].call >= 0) {
                    spans.emplace_back(begin, end);
                    continue;
                }
                expose(done, begin, cause_of(i, rank));
                done = end;
                answer_.compute_us += end - begin;
            }
            std::size_t last = last_computed_;
            for (const std::size_t of_group : last_of_group_) {
                if (last == none ||
                    (of_group != none && answer_.pieces[of_group].end_us[rank] > answer_.pieces[last].end_us[rank]))
                    last = of_group;
            }
            expose(done, answer_.finish_us[rank], last);
            std::ranges::sort(spans);
            double until = 0;
            for (const auto& [begin, end] : spans) {
                communicates += std::max(0.0, end - std::max(begin, until));
                until = std::max(until, end);
            }
            answer_.hidden_us += communicates;
        }
        answer_.hidden_us = std::max(0.0, answer_.hidden_us - answer_.exposed_us);
        const double ranks = played_;
        for (double* sum : {&answer_.compute_us, &answer_.hidden_us, &answer_.exposed_us}) *sum /= ranks;
        for (std::size_t i = 0; i < answer_.costs.size(); ++i) {
            NamedCost& cost = answer_.costs[i];
            for (double* sum : {&cost.busy_us, &cost.exposed_us, &cost.late_us}) *sum /= ranks;
            const auto most = std::ranges::max_element(late[i], {}, [](const auto& entry) { return entry.second; });
            if (most != late[i].end() && most->second > same_us) cost.late_rank = most->first;
        }
    }

    // Back from the end: of a collective to the rank that began it last, of anything to what it waited for.
    void follow() {
        auto rank = static_cast<std::size_t>(answer_.last);
        std::size_t piece = none;
        for (std::size_t i = 0; i < q_.step.pieces.size(); ++i) {
            if (piece == none || answer_.pieces[i].end_us[rank] > answer_.pieces[piece].end_us[rank]) piece = i;
        }
        double to = answer_.step_us;
        while (piece != none) {
            if (q_.step.pieces[piece].call >= 0) rank = static_cast<std::size_t>(answer_.pieces[piece].last[rank]);
            const double from = std::min(to, answer_.pieces[piece].begin_us[rank]);
            answer_.path.push_back({piece, static_cast<Rank>(rank), from, to});
            to = from;
            piece = cause_of(piece, rank);
        }
        std::ranges::reverse(answer_.path);
    }

    const StepQuestion& q_;
    const Progress& progress_;
    int ranks_, per_host_ = 1, played_ = 1;
    algorithm::CostModel model_;
    std::vector<Scene> scenes_;
    std::vector<double> starts_;               // by rank
    std::vector<double> computed_;             // by rank: when its computing is done, so far
    std::vector<std::vector<double>> groups_;  // and the collectives of each group
    std::size_t last_computed_ = none;
    std::vector<std::size_t> last_of_group_, before_in_stream_;
    StepAnswer answer_;
};

}  // namespace

Layout layout_of(const Spread& spread, const Layout& world, const std::string& group) {
    const int per_host = world.size() / (world.host_of.back() + 1), cluster = spread.cluster();
    const auto fits = [](int a, int b) { return a % b == 0 || b % a == 0; };
    if (world.size() % cluster != 0)
        throw InvalidArgument(
            fmt::format("group {}: {} ranks, each {} behind the last: expected their product, {}, to "
                        "divide {} (--ranks)",
                        group, spread.size, spread.stride, cluster, world.size()));
    if (!fits(spread.stride, per_host) || !fits(cluster, per_host))
        throw InvalidArgument(
            fmt::format("group {}: {} ranks, each {} behind the last: expected equally many on each "
                        "host of {} ranks",
                        group, spread.size, spread.stride, per_host));
    Layout layout = world;
    const int together = std::clamp(per_host / spread.stride, 1, spread.size);
    layout.host_of.clear();
    for (int i = 0; i < spread.size; ++i) layout.host_of.push_back(i / together);
    const auto shape = transport::ArenaLayout::of(together, spread.size);
    layout.slot_bytes = shape.slot_bytes;
    layout.slots = shape.slots;
    layout.machines = spread.size / together;
    TUTTI_ASSERT(layout.machines * together == spread.size);
    return layout;
}

StepAnswer answer(const StepQuestion& question, const Progress& progress) {
    TUTTI_ASSERT(question.layout.size() >= 1 && std::ranges::is_sorted(question.layout.host_of));
    return StepPlay(question, progress).run();
}

}  // namespace tutti::simulate
