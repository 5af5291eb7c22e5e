#include "algorithm/user_schedule.hpp"

#include "core/assert.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace tutti::algorithm {
namespace {

// As many times these counts; nothing where they are no multiple, and for calls of nothing.
std::optional<std::uint64_t> multiple(std::span<const std::uint64_t> counts, std::span<const std::uint64_t> asked) {
    std::optional<std::uint64_t> times;
    if (counts.size() != asked.size()) return std::nullopt;
    for (std::size_t i = 0; i < counts.size(); ++i) {
        if (counts[i] == 0 && asked[i] == 0) continue;
        if (counts[i] == 0 || asked[i] == 0 || asked[i] % counts[i] != 0) return std::nullopt;
        const std::uint64_t found = asked[i] / counts[i];
        if (times.value_or(found) != found) return std::nullopt;
        times = found;
    }
    return times;
}

}  // namespace

std::optional<std::uint64_t> UserSchedule::times(const Layout& layout, const Request& q) const {
    const schedule::Contract& c = separate_.contract;
    if (q.quantizing || q.collective != c.collective || layout.size() != ranks() ||
        (q.single_rounding && !proved_.single_rounding) || (q.rank_order && !proved_.rank_order))
        return std::nullopt;
    if ((c.dtype && q.dtype != c.dtype) || (c.op && q.op != c.op)) return std::nullopt;
    const auto calls = [](const schedule::Schedule& one) { return !one.functions.empty(); };
    if (q.op == ReduceOp::Kind::user && std::ranges::any_of(separate_.ranks, calls)) return std::nullopt;
    const schedule::Schedule& first = separate_.ranks.front();
    const bool reaches = layout.shared_memory && layout.one_host() && (first.maps ? q.symmetric : layout.pulls);
    if (first.in_place && (!reaches || q.staged)) return std::nullopt;
    const CollectiveTraits& traits = traits_of(c.collective);
    if (traits.is_rooted() && q.root != c.root) return std::nullopt;
    if (traits.has_blocks()) return multiple(c.counts, q.counts);
    switch (traits.input) {
        case CollectiveTraits::Extent::nothing: return 1;
        case CollectiveTraits::Extent::whole: return multiple({&c.count, 1}, {&q.count, 1});
        case CollectiveTraits::Extent::exchanged: {
            // No rank knows the others' blocks unless all are alike, one after the other.
            if (!q.even || !q.largest_count || !c.send_offsets.empty() || !c.receive_offsets.empty())
                return std::nullopt;
            const std::uint64_t block = c.matrix.front().front();
            TUTTI_ASSERT(block <= schedule::elements_max);
            const auto alike = [&](const auto& row) {
                return std::ranges::all_of(row, [&](std::uint64_t count) { return count == block; });
            };
            if (!std::ranges::all_of(c.matrix, alike)) return std::nullopt;
            return multiple({&block, 1}, {&*q.largest_count, 1});
        }
        default: break;
    }
    return std::nullopt;
}

schedule::Schedule UserSchedule::plan(const Layout& layout, const Request& request) const {
    TUTTI_ASSERT(request.rank >= 0 && request.rank < ranks());
    const bool in_place = request.in_place && !in_place_.empty();
    const std::vector<schedule::Schedule>& ranks = in_place ? in_place_ : separate_.ranks;
    TUTTI_ASSERT(ranks.size() == static_cast<std::size_t>(layout.size()));
    return schedule::scaled(ranks[static_cast<std::size_t>(request.rank)], times(layout, request).value());
}

}  // namespace tutti::algorithm
