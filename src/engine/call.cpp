#include "engine/call.hpp"

#include "core/assert.hpp"

#include <algorithm>

namespace tutti::engine {

using Extent = CollectiveTraits::Extent;

void CollectiveCall::set_counts(std::span<const std::uint64_t> of_ranks) noexcept {
    TUTTI_ASSERT(!of_ranks.empty());
    const bool differ = std::ranges::adjacent_find(of_ranks, std::ranges::not_equal_to{}) != of_ranks.end();
    set_count(of_ranks.front());
    if (differ) block_bytes = different;
    counts = differ ? of_ranks : std::span<const std::uint64_t>();
}

void CollectiveCall::set_blocks(std::span<const std::uint64_t> send, std::span<const std::uint64_t> receive) {
    TUTTI_ASSERT(!send.empty() && send.size() == receive.size());
    const auto differs = [&](std::uint64_t other) { return other != send.front(); };
    if (std::ranges::none_of(send, differs) && std::ranges::none_of(receive, differs)) {
        set_count(send.front());
    } else {
        send_counts = send;
        receive_counts = receive;
    }
}

std::vector<Stretch> CollectiveCall::input_parts(int rank, int ranks) const {
    std::vector<Stretch> parts;
    for_each_input_part(rank, ranks, [&](const Stretch& part) { parts.push_back(part); });
    return parts;
}

std::vector<Stretch> CollectiveCall::output_parts(int rank, int ranks) const {
    std::vector<Stretch> parts;
    for_each_output_part(rank, ranks, [&](const Stretch& part) { parts.push_back(part); });
    return parts;
}

std::uint64_t CollectiveCall::contributed_bytes(int rank, int ranks) const noexcept {
    TUTTI_ASSERT(rank >= 0 && rank < ranks);
    const CollectiveTraits& traits = traits_of(collective);
    std::uint64_t bytes = 0;
    if (traits.input == Extent::exchanged) {
        for (int peer = 0; peer < ranks; ++peer) bytes += sent_to(peer);
    } else if (traits.input == Extent::all_blocks && !traits.is_rooted()) {
        for (int r = 0; r < ranks; ++r) bytes += count_of(r) * element_bytes();
    } else if (traits.input != Extent::nothing) {
        bytes = count_of(rank) * element_bytes();
    }
    return bytes;
}

}  // namespace tutti::engine
