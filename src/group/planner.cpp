#include "group/planner.hpp"

#include "algorithm/select.hpp"
#include "group/expected_blocks.hpp"

#include <algorithm>
#include <utility>

namespace tutti::detail {

Planner::Planner(algorithm::Layout layout, int rank, bool rank_order)
    : layout_(std::move(layout)), rank_(rank), rank_order_(rank_order) {
    for (int c = 1; c <= collective_count && !layout_.tuning.named.empty(); ++c) {
        const auto collective = static_cast<Collective>(c);
        named_[static_cast<std::size_t>(c)] = algorithm::parse_override(layout_.tuning.named, collective);
    }
}

void Planner::serve_with(Collective collective, std::optional<std::string> algorithm) {
    named_[static_cast<std::size_t>(collective)] = std::move(algorithm);
    largest_relayed_.reset();
}

// A plan's call comes again and again, and allocates nothing.
const algorithm::Request& Planner::request_of(const engine::CollectiveCall& call, const Circumstances& with) {
    const CollectiveTraits& traits = traits_of(call.collective);
    algorithm::Request& q = asked_;
    q.collective = call.collective;
    q.rank = rank_;
    q.root = call.root;
    q.element_bytes = size_of(call.dtype);
    q.dtype = call.dtype;
    q.op = traits.combines ? std::optional(call.op) : std::nullopt;
    q.in_place = call.in_place && traits.combines;
    q.single_rounding = traits.combines && is_low_precision(call.dtype);
    q.rank_order = rank_order_;
    q.symmetric = with.symmetric;
    q.scheduled = true;
    q.count = traits.input == CollectiveTraits::Extent::whole ? call.count : 0;
    for (auto* const numbers : {&q.counts, &q.send_counts, &q.send_offsets, &q.receive_counts, &q.receive_offsets})
        numbers->clear();
    engine::write_blocks(q, call, rank_, layout_.size());
    q.largest_count = std::nullopt;
    if (with.largest_bytes) q.largest_count = *with.largest_bytes / q.element_bytes;
    // Blocks that could not be passed on: only equal ones can (Relay).
    const auto& name = named(call.collective);
    q.algorithm = call.collective == Collective::all_to_all && name == "bruck" ? std::nullopt : name;
    return q;
}

std::shared_ptr<const schedule::Schedule> Planner::plan(const engine::CollectiveCall& call, const Circumstances& with) {
    return plan(request_of(call, with));
}

std::shared_ptr<const schedule::Schedule> Planner::plan(const algorithm::Request& request) {
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
