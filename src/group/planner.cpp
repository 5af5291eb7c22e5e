#include "group/planner.hpp"

#include "algorithm/select.hpp"
#include "group/expected_blocks.hpp"

#include <algorithm>
#include <utility>

namespace tutti::detail {

Planner::Planner(algorithm::Layout layout) : layout_(std::move(layout)) {
    for (int c = 1; c <= collective_count && !layout_.tuning.named.empty(); ++c) {
        const auto collective = static_cast<Collective>(c);
        named_[static_cast<std::size_t>(c)] = algorithm::parse_override(layout_.tuning.named, collective);
    }
}

void Planner::serve_with(Collective collective, std::optional<std::string> algorithm) {
    named_[static_cast<std::size_t>(collective)] = std::move(algorithm);
    largest_relayed_.reset();
}

std::shared_ptr<const schedule::Schedule> Planner::plan(const algorithm::Request& request) {
    if (request.collective == Collective::all_to_all && !request.even && request.algorithm == "bruck") {
        algorithm::Request straight = request;  // the operation that could not be passed on
        straight.algorithm.reset();
        return plan(straight);
    }
    const auto found = std::ranges::find(kept_, request, &Kept::request);
    if (found != kept_.end()) {
        kept_.splice(kept_.begin(), kept_, found);
    } else {
        kept_.push_front({request, std::make_shared<const schedule::Schedule>(algorithm::plan(layout_, request))});
        if (kept_.size() > schedules_max) kept_.pop_back();
    }
    return kept_.front().schedule;
}

std::uint64_t Planner::largest_relayed() {
    const auto& name = named(Collective::all_to_all);
    if (name && !algorithm::is_exclusion(*name)) return *name == "bruck" ? ExpectedBlocks::most_room : 0;
    if (!largest_relayed_) {
        algorithm::Request request{.collective = Collective::all_to_all,
                                   .largest_count = 0,
                                   .even = true,
                                   .scheduled = true,
                                   .algorithm = name};
        std::uint64_t largest = 0;
        for (std::uint64_t room = ExpectedBlocks::least_room; room <= ExpectedBlocks::most_room;
             room *= ExpectedBlocks::step) {
            request.largest_count = room;
            if (algorithm::choose(layout_, request).algorithm == "bruck") largest = room;
        }
        largest_relayed_ = largest;
    }
    return *largest_relayed_;
}

}  // namespace tutti::detail
