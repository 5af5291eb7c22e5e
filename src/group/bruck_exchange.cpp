#include "group/bruck_exchange.hpp"

#include "core/assert.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace tutti::detail {
namespace {

/// The head of a slot.
struct SlotHead {
    std::uint64_t bytes = 0;    ///< of the block, whether or not it fits
    std::uint64_t longest = 0;  ///< of all blocks of its source
};

}  // namespace

std::optional<std::uint64_t> BruckExchange::room_for(DType dtype, std::uint64_t largest) {
    if (largest == 0) return {};
    TUTTI_ASSERT(largest >= BlockSizePredictor::least_room && largest <= BlockSizePredictor::most_room);
    return expected_.try_emplace(dtype, largest).first->second.next();
}

BruckExchange::Pass BruckExchange::begin(const engine::CollectiveCall& call, std::uint64_t channel,
                                         std::uint64_t room) {
    TUTTI_ASSERT(call.collective == Collective::all_to_all && room > 0);
    const auto n = static_cast<std::size_t>(size_);
    const std::uint64_t slot = sizeof(SlotHead) + room;
    room_ = room;
    slots_.resize(2 * n * slot);
    const std::vector<engine::Stretch> sent = call.input_parts(rank_, size_);
    TUTTI_ASSERT(sent.size() == n);
    SlotHead head;
    for (const engine::Stretch& block : sent) head.longest = std::max(head.longest, block.bytes);
    std::byte* at = slots_.data();
    for (int peer = 0; peer < size_; ++peer, at += slot) {
        const engine::Stretch& block = sent[static_cast<std::size_t>(peer)];
        head.bytes = block.bytes;
        std::memcpy(at, &head, sizeof head);
        if (head.bytes > 0 && head.longest <= room && peer != rank_)
            std::memcpy(at + sizeof head, call.input + block.at, head.bytes);
    }
    TUTTI_ASSERT(at == slots_.data() + n * slot);
    algorithm::Request even{.collective = Collective::all_to_all, .rank = rank_};
    even.send_counts.assign(n, slot);
    for (std::size_t i = 0; i < n; ++i) even.send_offsets.push_back(i * slot);
    even.receive_counts = even.send_counts;
    even.receive_offsets = even.send_offsets;
    even.largest_count = slot;
    even.even = true;
    even.algorithm = "bruck";
    return {std::move(even),
            {.input = slots_.data(), .output = at, .channel = channel, .fingerprint = call.fingerprint}};
}

BruckExchange::Outcome BruckExchange::end(const engine::CollectiveCall& call) {
    TUTTI_ASSERT(room_ > 0 && slots_.size() == 2 * static_cast<std::size_t>(size_) * (sizeof(SlotHead) + room_));
    const std::uint64_t slot = sizeof(SlotHead) + room_;
    const std::byte* const slots = slots_.data() + static_cast<std::size_t>(size_) * slot;
    std::uint64_t longest = 0;
    for (int peer = 0; peer < size_; ++peer) {
        SlotHead head;
        std::memcpy(&head, slots + static_cast<std::size_t>(peer) * slot, sizeof head);
        longest = std::max(longest, head.longest);
        const std::uint64_t expected = call.received_from(peer);
        if (head.bytes != expected) return {.difference = Outcome::Difference{peer, head.bytes, expected}};
    }
    expected_.at(call.dtype).learn(longest);
    if (longest > room_) return {};
    TUTTI_ASSERT(longest <= room_);
    const std::vector<engine::Stretch> received = call.output_parts(rank_, size_);
    for (int peer = 0; peer < size_; ++peer) {
        const auto [to, bytes] = received[static_cast<std::size_t>(peer)];
        TUTTI_ASSERT(bytes <= room_);
        if (bytes == 0) continue;
        const std::byte* from = slots + static_cast<std::size_t>(peer) * slot + sizeof(SlotHead);
        if (peer == rank_) from = call.input + call.input_parts(rank_, size_)[static_cast<std::size_t>(peer)].at;
        std::memcpy(call.output + to, from, bytes);
    }
    return {.fitted = true};
}

}  // namespace tutti::detail
