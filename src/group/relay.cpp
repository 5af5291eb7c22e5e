// Short all_to_alls over messages: the ranks pass blocks on for each other ("bruck"), many blocks in a message. The
// blocks differ, and no rank knows those of others; so each travels in a slot of one size, behind its length. Slots
// also say how long the longest block of their source is. In the end each rank has heard of all: if one did not fit,
// all know, and all go on with a schedule.
#include "algorithm/select.hpp"
#include "group/group.hpp"

#include <algorithm>
#include <cstring>

namespace tutti::detail {
namespace {

/// The head of a slot.
struct SlotHead {
    std::uint64_t bytes = 0;    ///< of the block, whether or not it fits
    std::uint64_t longest = 0;  ///< of all blocks of its source
};

std::uint64_t bytes_of(const Operation& operation, const std::vector<std::uint64_t>& counts, int peer) {
    return counts[static_cast<std::size_t>(peer)] * operation.request.element_bytes;
}
std::uint64_t place_of(const Operation& operation, const std::vector<std::uint64_t>& offsets, int peer) {
    return bytes_of(operation, offsets, peer);
}

}  // namespace

// The largest slots with which passing blocks on is the quickest way; 0: none. Equal on all ranks.
std::uint64_t Group::largest_slot() {
    const auto& name = named(Collective::all_to_all);
    if (name && !algorithm::is_exclusion(*name)) return *name == "bruck" ? ExpectedBlocks::most_room : 0;
    if (!largest_slot_) {
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
        largest_slot_ = largest;
    }
    return *largest_slot_;
}

// Bytes of the slots in which to try this operation's blocks; empty: none. Blocks of one type are most likely as long
// as those before: often an all_to_all of counts comes before one of the counted values.
std::optional<std::uint64_t> Group::room_for_blocks(const Operation& operation) {
    if (operation.request.collective != Collective::all_to_all || size_ < 4) return {};
    if (uses_shared_memory_only() && named(Collective::all_to_all) != "bruck") return {};
    const std::uint64_t limit = largest_slot();
    if (limit == 0) return {};
    return expected_blocks_.try_emplace(operation.operands.dtype, limit).first->second.next();
}

void Group::begin_relay(Operation& operation, std::uint64_t room) {
    const algorithm::Request& request = operation.request;
    const auto n = static_cast<std::size_t>(size_);
    const std::uint64_t slot = sizeof(SlotHead) + room;
    relayed_.resize(2 * n * slot);
    SlotHead head;
    for (const std::uint64_t count : request.send_counts)
        head.longest = std::max(head.longest, count * request.element_bytes);
    std::byte* at = relayed_.data();
    for (int peer = 0; peer < size_; ++peer, at += slot) {
        head.bytes = bytes_of(operation, request.send_counts, peer);
        std::memcpy(at, &head, sizeof head);
        if (head.bytes > 0 && head.longest <= room && peer != rank_) {
            std::memcpy(at + sizeof head, operation.operands.input + place_of(operation, request.send_offsets, peer),
                        head.bytes);
        }
    }
    algorithm::Request even{.collective = Collective::all_to_all, .rank = rank_};
    even.send_counts.assign(n, slot);
    for (std::size_t i = 0; i < n; ++i) even.send_offsets.push_back(i * slot);
    even.receive_counts = even.send_counts;
    even.receive_offsets = even.send_offsets;
    even.largest_count = slot;
    even.even = true;
    even.algorithm = "bruck";
    operation.room = room;
    operation.execution =
        std::make_unique<engine::Execution>(plan_for(even),
                                            engine::Operands{.input = relayed_.data(),
                                                             .output = at,
                                                             .channel = operation.operands.channel,
                                                             .fingerprint = operation.operands.fingerprint},
                                            context_);
}

// All slots have come. Goes on with a schedule where some rank's blocks did not fit into its slots.
void Group::end_relay(Operation& operation) {
    const algorithm::Request& request = operation.request;
    const std::uint64_t room = *std::exchange(operation.room, std::nullopt), slot = sizeof(SlotHead) + room;
    const std::byte* const slots = relayed_.data() + static_cast<std::size_t>(size_) * slot;
    std::uint64_t longest = 0;
    for (int peer = 0; peer < size_; ++peer) {
        SlotHead head;
        std::memcpy(&head, slots + static_cast<std::size_t>(peer) * slot, sizeof head);
        longest = std::max(longest, head.longest);
        const std::uint64_t expected = bytes_of(operation, request.receive_counts, peer);
        if (head.bytes != expected)
            return mismatch_of_blocks(peer, operation.sequence, operation.operands.fingerprint, head.bytes, expected);
    }
    expected_blocks_.at(operation.operands.dtype).learn(longest);
    if (longest > room) return execute(operation);
    for (int peer = 0; peer < size_; ++peer) {
        const std::uint64_t bytes = bytes_of(operation, request.receive_counts, peer);
        if (bytes == 0) continue;
        const std::byte* from = slots + static_cast<std::size_t>(peer) * slot + sizeof(SlotHead);
        if (peer == rank_) from = operation.operands.input + place_of(operation, request.send_offsets, peer);
        std::memcpy(operation.operands.output + place_of(operation, request.receive_offsets, peer), from, bytes);
    }
}

}  // namespace tutti::detail
