#include "operation/planner.hpp"

#include "algorithm/select.hpp"
#include "core/assert.hpp"
#include "engine/slots.hpp"
#include "operation/block_size_predictor.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace tutti::detail {
namespace {

// all_reduce of two processes over TCP, 4 KB: tutti's takes 5.8 µs over MPI and 55 µs over Gloo, the library's 10 and
// 100 µs, and over MPI ranks meet in 4 µs; at 64 KB the library is as quick.
constexpr std::size_t short_bytes_max = 16 << 10;

}  // namespace

Planner::Planner(algorithm::Layout layout, int rank, bool rank_order)
    : layout_(std::move(layout)), rank_(rank), rank_order_(rank_order) {
    TUTTI_ASSERT(rank_ >= 0 && rank_ < layout_.size());
    for (int c = 1; c <= collective_count && !layout_.tuning.named.empty(); ++c) {
        const auto collective = static_cast<Collective>(c);
        named_[static_cast<std::size_t>(c)] = algorithm::parse_override(layout_.tuning.named, collective);
    }
}

void Planner::serve_with(Collective collective, std::optional<std::string> algorithm) {
    named_[static_cast<std::size_t>(collective)] = std::move(algorithm);
    largest_relayed_.reset();
    if (uses_slots_) choose_short_sizes(collective);
}

void Planner::use_slots() {
    TUTTI_ASSERT(kept_.empty() && layout_.shared_memory);
    uses_slots_ = true;
    for (int c = 1; c <= collective_count; ++c) choose_short_sizes(static_cast<Collective>(c));
}

void Planner::choose_short_sizes(Collective collective) {
    short_sizes_[static_cast<std::size_t>(collective)] = algorithm::slot_sizes(layout_, collective, named(collective));
}

void Planner::use_library(bool ranks_share_memory) {
    TUTTI_ASSERT(kept_.empty() && library_ == Library::none);
    library_ = ranks_share_memory ? Library::beside_memory : Library::alone;
}

// Rules are for blocks of one length. For blocks of different lengths the longest decides, up to the longest block with
// which an even call can be short.
bool Planner::blocks_fit(const engine::CollectiveCall& call) const noexcept {
    if (!uses_slots_ || !engine::blocks_fit_in_slot(call, rank_, layout_.size())) return false;
    if (call.send_counts.empty()) return is_short(call.collective, call.block_bytes);
    const bool is_rooted = traits_of(call.collective).is_rooted();
    std::uint64_t longest = 0;
    for (int peer = 0; peer < layout_.size(); ++peer) {
        if (is_rooted && peer == rank_) continue;  // the root's own block stays where it is
        longest = std::max({longest, call.sent_to(peer), is_rooted ? call.received_from(peer) : 0});
    }
    return is_short(call.collective, std::min(longest, schedule::longest_in_slot(call.collective, layout_.size())));
}

Path Planner::path_by_messages(const engine::CollectiveCall& call) {
    TUTTI_ASSERT(call.collective >= Collective{1} && static_cast<int>(call.collective) <= collective_count);
    const auto& name = named(call.collective);
    if (traits_of(call.collective).exchanges()) {
        if (call.collective != Collective::all_to_all || layout_.size() < 4 || (uses_slots_ && name != "bruck"))
            return Path::schedule;
        return largest_relayed() > 0 ? Path::relay : Path::schedule;
    }
    const bool is_named = name && !algorithm::is_exclusion(*name);
    if (library_ == Library::none || layout_.size() == 1 || is_named || call.user != nullptr) return Path::schedule;
    // Without shared memory ranks need longer to meet than tutti's own algorithms for a short collective, whose
    // messages show by themselves whether ranks mean the same.
    const bool is_brief = library_ == Library::alone && call.block_bytes <= short_bytes_max;
    return is_brief ? Path::schedule : Path::library;
}

// A plan's call comes again and again, and allocates nothing.
const algorithm::Request& Planner::request_of(const engine::CollectiveCall& call, const Circumstances& with) {
    const CollectiveTraits& traits = traits_of(call.collective);
    TUTTI_ASSERT(!traits.is_rooted() || (call.root >= 0 && call.root < layout_.size()));
    algorithm::Request& q = asked_;
    q.collective = call.collective;
    q.rank = rank_;
    q.root = call.root;
    q.element_bytes = call.element_bytes();
    // Elements that only the caller's operator knows have no type that a user's schedule could be for.
    q.dtype = q.element_bytes == size_of(call.dtype) ? std::optional(call.dtype) : std::nullopt;
    q.op = traits.combines ? std::optional(call.op) : std::nullopt;
    q.in_place = call.in_place && traits.combines;
    q.single_rounding = traits.combines && is_low_precision(call.dtype) && call.user == nullptr;
    q.rank_order = rank_order_ || (call.user != nullptr && !call.user->commutative());
    q.symmetric = with.symmetric;
    q.scheduled = true;
    q.count = traits.input == CollectiveTraits::Extent::whole ? call.count : 0;
    for (auto* const numbers : {&q.counts, &q.send_counts, &q.send_offsets, &q.receive_counts, &q.receive_offsets})
        numbers->clear();
    engine::write_blocks(q, call, rank_, layout_.size());
    TUTTI_ASSERT(q.element_bytes > 0);
    if (with.follows_slots && call.collective == Collective::gather_v && call.root == rank_) {
        // Short blocks lay in slots, as their ranks have decided by the same rule; the root has copied its own.
        for (int peer = 0; peer < layout_.size(); ++peer) {
            if (peer == rank_ || is_short(call.collective, call.received_from(peer)))
                q.receive_counts[static_cast<std::size_t>(peer)] = 0;
        }
        q.send_counts[static_cast<std::size_t>(rank_)] = 0;
    }
    q.largest_count = std::nullopt;
    if (with.largest_bytes) q.largest_count = *with.largest_bytes / q.element_bytes;
    // Blocks that could not be passed on: only equal ones can (BruckExchange).
    const auto& name = named(call.collective);
    q.algorithm = call.collective == Collective::all_to_all && name == "bruck" ? std::nullopt : name;
    return q;
}

std::shared_ptr<const schedule::Schedule> Planner::plan(const engine::CollectiveCall& call, const Circumstances& with) {
    return plan(request_of(call, with));
}

std::shared_ptr<const schedule::Schedule> Planner::plan(const algorithm::Request& request) {
    const auto found = std::ranges::find(kept_, request, &Kept::request);
    TUTTI_ASSERT(request.rank == rank_);
    if (found != kept_.end()) {
        kept_.splice(kept_.begin(), kept_, found);
    } else {
        kept_.push_front({request, std::make_shared<const schedule::Schedule>(algorithm::plan(layout_, request))});
        if (kept_.size() > schedules_max) kept_.pop_back();
    }
    TUTTI_ASSERT(kept_.size() <= schedules_max && kept_.front().schedule != nullptr);
    return kept_.front().schedule;
}

std::uint64_t Planner::largest_relayed() {
    const auto& name = named(Collective::all_to_all);
    if (name && !algorithm::is_exclusion(*name)) return *name == "bruck" ? BlockSizePredictor::most_room : 0;
    if (!largest_relayed_) {
        algorithm::Request request{.collective = Collective::all_to_all,
                                   .largest_count = 0,
                                   .even = true,
                                   .scheduled = true,
                                   .algorithm = name};
        std::uint64_t largest = 0;
        for (std::uint64_t room = BlockSizePredictor::least_room; room <= BlockSizePredictor::most_room;
             room *= BlockSizePredictor::step) {
            request.largest_count = room;
            if (algorithm::choose(layout_, request).algorithm == "bruck") largest = room;
        }
        largest_relayed_ = largest;
        TUTTI_ASSERT(largest <= BlockSizePredictor::most_room);
    }
    return *largest_relayed_;
}

}  // namespace tutti::detail
