// plan(): the rules that choose from the table of algorithms.
//
// The table is read from top to bottom: the first row whose algorithm can serve the request and whose limits hold is
// taken. Before the table come a name (Request::algorithm), the rules of Tuning, and, where the machine has been
// measured, the formulas of cost.hpp.
#include "algorithm/plan.hpp"

#include "algorithm/cost.hpp"
#include "algorithm/scale.hpp"
#include "algorithm/slots.hpp"
#include "algorithm/table.hpp"
#include "algorithm/user_schedule.hpp"
#include "core/assert.hpp"
#include "core/suggestion.hpp"
#include "schedule/slots.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <memory>
#include <vector>

namespace tutti::algorithm {
namespace {

std::uint64_t decisive_bytes(const Request& q) {
    return decisive_count(q) * q.element_bytes;
}

// The name of the excluded algorithm; empty: there is none.
std::string_view excluded(const Request& q) {
    return q.algorithm && is_exclusion(*q.algorithm) ? std::string_view(*q.algorithm).substr(1) : std::string_view();
}

bool can_serve(const Algorithm& a, const Context& c) {
    const Request& q = c.request;
    return a.name != excluded(q) && a.collective == q.collective && a.quantises == q.quantizing.has_value() &&
           a.serves(c) && (!q.single_rounding || a.single_rounding) && (!q.rank_order || a.rank_order);
}

std::string sized(const Context& c) {
    return fmt::format("{} bytes, {} ranks", decisive_bytes(c.request), c.layout.size());
}

/// A row, or a user's schedule, and the reason for it.
struct Found {
    const Algorithm* row = nullptr;
    std::string reason;
    const UserSchedule* user = nullptr;
    std::string_view name() const {
        TUTTI_ASSERT((user != nullptr) != (row != nullptr));
        return user != nullptr ? std::string_view(user->name()) : row->name;
    }
};

Found by_user(const Context& c) {
    for (const auto& user : c.layout.tuning.schedules) {
        if (user->serves(c.layout, c.request))
            return {nullptr, fmt::format("TUTTI_SCHEDULE has it ({})", sized(c)), user.get()};
    }
    return {};
}

Found by_name(const Context& c) {
    TUTTI_ASSERT(c.request.algorithm.has_value());
    for (const Algorithm& a : algorithms()) {
        if (a.name == *c.request.algorithm && can_serve(a, c)) return {&a, "it was asked for by name"};
    }
    const auto can = applicable(c.layout, c.request);
    throw InvalidArgument(fmt::format("algorithm \"{}\" cannot serve this {}: expected one of {}{}",
                                      *c.request.algorithm, to_string(c.request.collective), fmt::join(can, ", "),
                                      did_you_mean(*c.request.algorithm, can)));
}

Found by_rule(const Context& c) {
    const std::uint64_t bytes = decisive_bytes(c.request);
    for (const Rule& rule : c.layout.tuning.rules) {
        if (rule.collective != c.request.collective || bytes > rule.up_to_bytes || c.layout.size() > rule.up_to_ranks)
            continue;
        for (const Algorithm& a : algorithms()) {
            if (a.name == rule.algorithm && can_serve(a, c))
                return {&a, fmt::format("TUTTI_TUNE says so ({})", sized(c))};
        }
    }
    return {};
}

Found by_limits(const Context& c) {
    const std::uint64_t bytes = decisive_bytes(c.request);
    for (const Algorithm& a : algorithms()) {
        if (can_serve(a, c) && a.preferred_bytes > 0 && bytes <= a.preferred_bytes &&
            c.layout.size() <= a.preferred_ranks)
            return {&a, fmt::format("{} ({})", a.reason, sized(c))};
    }
    if (const std::string_view name = excluded(c.request); !name.empty())
        throw InvalidArgument(
            fmt::format("algorithm \"^{}\": no other one can serve this {}", name, to_string(c.request.collective)));
    throw InternalError(fmt::format("no algorithm for {}", to_string(c.request.collective)));
}

// Formulas do not know the overhead of a schedule beside its steps, so slots stay, but for one case: of an all_reduce
// each rank reads all ranks' values, twice a buffer in two phases. The sizes are powers of two (slot_sizes()).
bool few_enough_for_slots(const Context& c, const CostModel& costs) {
    if (c.request.collective != Collective::all_reduce) return true;
    constexpr double overhead_us = 1, gain = 1.5;
    const auto us = [&](std::string_view algorithm) {
        return *predicted_us(c.layout, Collective::all_reduce, algorithm, std::bit_floor(decisive_bytes(c.request)), 1,
                             costs);
    };
    return us(in_slots) <= gain * us("two_shot") + overhead_us;
}

// By formula. The limits' choice stays where it has no formula.
Found by_cost(const Context& c, const CostModel& costs, const Found& usual) {
    TUTTI_ASSERT(usual.row != nullptr);
    const auto price = [&](const Algorithm& a) {
        return predicted_us(c.layout, a.collective, a.name, decisive_bytes(c.request),
                            c.tile() * c.request.element_bytes, costs);
    };
    const auto usual_us = price(*usual.row);
    const bool slots = usual.row->name == in_slots;
    if (!usual_us || (slots && few_enough_for_slots(c, costs))) return usual;
    const Algorithm* best = usual.row;
    double best_us = slots ? std::numeric_limits<double>::infinity() : *usual_us;
    for (const Algorithm& a : algorithms()) {
        if (a.name == in_slots || !can_serve(a, c)) continue;
        if (const auto us = price(a); us && *us < best_us) {
            best = &a;
            best_us = *us;
        }
    }
    TUTTI_ASSERT(best_us <= *usual_us || slots);
    if (best == usual.row) return usual;
    return {best, fmt::format("{:.1f} us by the numbers of this machine, against {:.1f} us of {} ({})", best_us,
                              *usual_us, usual.row->name, sized(c))};
}

// Between many hosts, by the formulas for these. Nothing where the limits' choice has none.
Found by_scale(const Context& c, const Found& usual) {
    TUTTI_ASSERT(usual.row != nullptr);
    const CostModel costs = costs_at_scale(c.layout);
    const auto usual_us = at_scale_us(c, usual.row->name, costs);
    if (!usual_us) return {};
    const Algorithm* best = usual.row;
    double best_us = *usual_us;
    for (const Algorithm& a : algorithms()) {
        if (!can_serve(a, c)) continue;
        if (const auto us = at_scale_us(c, a.name, costs); us && *us < best_us) {
            best = &a;
            best_us = *us;
        }
    }
    if (best == usual.row) return usual;
    return {best, fmt::format("{:.1f} us between {} hosts, predicted, against {:.1f} us of {} ({})", best_us,
                              c.topology().hosts.size(), *usual_us, usual.row->name, sized(c))};
}

Found find(const Context& c) {
    if (c.request.algorithm && !is_exclusion(*c.request.algorithm)) return by_name(c);
    if (Found found = by_rule(c); found.row != nullptr) return found;
    if (Found found = by_user(c); found.user != nullptr) return found;
    Found usual = by_limits(c);
    if (is_chosen_at_scale(c.layout)) {
        if (Found at_scale = by_scale(c, usual); at_scale.row != nullptr) return at_scale;
    }
    return c.layout.tuning.costs && !c.request.symmetric ? by_cost(c, *c.layout.tuning.costs, usual) : usual;
}

schedule::Schedule planned(const Context& context, const Found& found) {
    const Layout& layout = context.layout;
    const Request& request = context.request;
    TUTTI_ASSERT((found.row != nullptr) != (found.user != nullptr));
    Builder builder{std::string(found.name())};
    if (found.row != nullptr) found.row->generate(builder, context);
    schedule::Schedule schedule =
        found.user != nullptr ? found.user->plan(layout, request) : std::move(builder).finish();
    if (schedule.in_place) {
        Layout without_users = layout;
        if (found.user != nullptr) without_users.tuning.schedules.clear();
        Request otherwise = request;
        otherwise.algorithm.reset();
        otherwise.staged = !schedule.maps;
        otherwise.scheduled = true;
        otherwise.symmetric = false;
        schedule.otherwise = std::make_shared<const schedule::Schedule>(plan(without_users, otherwise));
    }
    TUTTI_ASSERT(schedule.in_place == (schedule.otherwise != nullptr));
    return schedule;
}

}  // namespace

schedule::Schedule plan(const Layout& layout, const Request& request) {
    TUTTI_ASSERT(layout.size() >= 1 && request.rank >= 0 && request.rank < layout.size());
    TUTTI_ASSERT(!traits_of(request.collective).is_rooted() || (request.root >= 0 && request.root < layout.size()));
    TUTTI_ASSERT(!traits_of(request.collective).has_blocks() ||
                 request.counts.size() == static_cast<std::size_t>(layout.size()));
    const Context context(layout, request);
    return planned(context, find(context));
}

struct Plans::State {
    State(const Layout& layout, Request q) : request(std::move(q)), context(layout, request) {
        const Found found = find(context);
        row = found.row;
        user = found.user;
    }
    Request request;
    Context context;
    const Algorithm* row = nullptr;  // of the two one
    const UserSchedule* user = nullptr;
};

Plans::Plans(const Layout& layout, Request request) {
    TUTTI_ASSERT(!traits_of(request.collective).exchanges() || (request.even && request.largest_count));
    request.rank = 0;
    state_ = std::make_unique<State>(layout, std::move(request));
}

Plans::~Plans() = default;

std::string_view Plans::algorithm() const noexcept {
    return Found{state_->row, {}, state_->user}.name();
}

schedule::Schedule Plans::of(Rank rank) {
    Request& q = state_->request;
    TUTTI_ASSERT(rank >= 0 && rank < state_->context.layout.size());
    q.rank = state_->context.all.me = rank;
    if (traits_of(q.collective).exchanges()) set_even_blocks(q, state_->context.layout.size(), *q.largest_count);
    return planned(state_->context, {state_->row, {}, state_->user});
}

std::vector<SlotSizes> slot_sizes(const Layout& layout, Collective collective,
                                  const std::optional<std::string>& named) {
    TUTTI_ASSERT(layout.size() >= 1);
    if (named && *named != in_slots && !is_exclusion(*named)) return {};
    // They serve some counts, and these are no range.
    const auto serves = [&](const auto& user) { return user->is_for(collective, layout.size()); };
    if (named != in_slots && std::ranges::any_of(layout.tuning.schedules, serves)) return {};
    Request request{.collective = collective, .even = true, .algorithm = named};
    const bool has_counts = !traits_of(collective).exchanges() && collective != Collective::barrier;
    const std::uint64_t most = schedule::longest_in_slot(collective, layout.size());
    // Sizes at which the choice may change: behind the limit of some rule, or by cost.
    std::vector<std::uint64_t> begins{0};
    for (const Rule& rule : layout.tuning.rules) {
        if (rule.collective == collective && rule.up_to_bytes < most && collective != Collective::barrier)
            begins.push_back(rule.up_to_bytes + 1);
    }
    if (collective == Collective::all_reduce && layout.tuning.costs) {
        for (std::uint64_t bytes = 1; bytes <= most; bytes *= 2) begins.push_back(bytes);
    }
    std::ranges::sort(begins);
    begins.erase(std::ranges::unique(begins).begin(), begins.end());
    std::vector<SlotSizes> sizes;
    for (std::size_t i = 0; i < begins.size(); ++i) {
        request.count = begins[i];
        request.largest_count = begins[i];
        if (has_counts) request.counts.assign(static_cast<std::size_t>(layout.size()), begins[i]);
        const std::vector<std::string> can = applicable(layout, request);
        if (std::ranges::find(can, in_slots) == can.end() || choose(layout, request).algorithm != in_slots) continue;
        const std::uint64_t end = i + 1 < begins.size() ? begins[i + 1] - 1 : most;
        TUTTI_ASSERT(end >= begins[i]);
        if (!sizes.empty() && sizes.back().to + 1 == begins[i])
            sizes.back().to = end;
        else
            sizes.push_back({begins[i], end});
    }
    TUTTI_ASSERT(std::ranges::is_sorted(sizes, {}, &SlotSizes::from));
    return sizes;
}

Choice choose(const Layout& layout, const Request& request) {
    const Found found = find(Context(layout, request));
    return {std::string(found.name()), found.reason};
}

std::vector<Estimate> estimates(const Layout& layout, const Request& request, const CostModel& costs) {
    const Context context(layout, request);
    std::vector<Estimate> result;
    for (const std::string& name : applicable(layout, request)) {
        const auto at_scale = has_many_hosts(layout) ? at_scale_us(context, name, costs) : std::nullopt;
        const auto usual = predicted_us(layout, request.collective, name, decisive_bytes(request),
                                        context.tile() * request.element_bytes, costs);
        const bool by_scale = at_scale && (!usual || is_chosen_at_scale(layout));
        result.push_back({name, by_scale ? at_scale : usual});
    }
    return result;
}

std::vector<std::string> applicable(const Layout& layout, const Request& request) {
    const Context context(layout, request);
    std::vector<std::string> names;
    for (const auto& user : layout.tuning.schedules) {
        if (user->serves(layout, request)) names.push_back(user->name());
    }
    for (const Algorithm& a : algorithms()) {
        if (!can_serve(a, context) || std::ranges::find(names, a.name) != names.end()) continue;
        names.emplace_back(a.name);
    }
    return names;
}

}  // namespace tutti::algorithm
