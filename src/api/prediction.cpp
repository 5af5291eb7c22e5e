// The predicted time of a collective of a group, by the numbers that its ranks agreed on when they met.
#include "algorithm/plan.hpp"
#include "api/arguments.hpp"
#include "core/assert.hpp"
#include "core/suggestion.hpp"
#include "engine/call.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

namespace tutti {
namespace {

Collective collective_of(std::string_view name) {
    std::vector<std::string_view> names;
    for (int i = 1; i <= collective_count; ++i) {
        const auto collective = static_cast<Collective>(i);
        if (to_string(collective) == name) return collective;
        names.push_back(to_string(collective));
    }
    throw InvalidArgument(fmt::format("ProcessGroup.predicted_us: collective \"{}\": expected one of {}{}", name,
                                      fmt::join(names, ", "), did_you_mean(name, names)));
}

algorithm::Request request_of(Collective collective, std::uint64_t bytes, int ranks) {
    TUTTI_ASSERT(ranks > 1);
    engine::CollectiveCall call{.collective = collective};
    call.set_count(bytes);
    algorithm::Request request{.collective = collective};
    engine::write_blocks(request, call, 0, ranks);
    const CollectiveTraits& traits = traits_of(collective);
    if (traits.input == CollectiveTraits::Extent::whole) {
        request.count = bytes;
        request.in_place = traits.combines && !traits.is_rooted();
    }
    if (traits.input == CollectiveTraits::Extent::exchanged) request.largest_count = bytes;
    return request;
}

}  // namespace

double ProcessGroup::predicted_us(std::string_view name, std::uint64_t bytes) const {
    if (!group_) throw InvalidArgument("ProcessGroup.predicted_us: an empty handle: expected a group");
    const algorithm::Layout& layout = group_->planner().layout();
    if (layout.size() == 1) return 0;
    const algorithm::Request request = request_of(collective_of(name), bytes, layout.size());
    const std::string chosen = algorithm::choose(layout, request).algorithm;
    double quickest = -1;
    for (const auto& [algorithm, us] :
         algorithm::estimates(layout, request, layout.tuning.costs.value_or(algorithm::CostModel{}))) {
        if (!us) continue;
        if (algorithm == chosen) return *us;
        if (quickest < 0 || *us < quickest) quickest = *us;
    }
    return std::max(quickest, 0.0);
}

}  // namespace tutti
