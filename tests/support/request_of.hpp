// The request of one rank, of a collective that the prover describes for all ranks. Elements are of 64 bits.
#pragma once

#include "algorithm/request.hpp"
#include "schedule/contract.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace tutti {

inline algorithm::Request request_of(const schedule::Contract& contract, int rank) {
    algorithm::Request request{
        .collective = contract.collective,
        .rank = rank,
        .root = contract.root,
        .element_bytes = sizeof(std::int64_t),
        .count = contract.count,
        .counts = contract.counts,
        .in_place = contract.in_place && traits_of(contract.collective).may_be_in_place(rank, contract.root)};
    const auto me = static_cast<std::size_t>(rank);
    std::uint64_t sent = 0, received = 0, largest = 0;
    for (std::size_t peer = 0; peer < contract.matrix.size(); ++peer) {
        request.send_counts.push_back(contract.matrix[me][peer]);
        request.receive_counts.push_back(contract.matrix[peer][me]);
        request.send_offsets.push_back(std::exchange(sent, sent + request.send_counts.back()));
        request.receive_offsets.push_back(std::exchange(received, received + request.receive_counts.back()));
        for (const std::uint64_t count : contract.matrix[peer]) largest = std::max(largest, count);
    }
    if (contract.collective == Collective::all_to_all) {
        request.largest_count = largest;
        request.even = std::ranges::all_of(contract.matrix, [&](const auto& row) {
            return std::ranges::all_of(row, [&](std::uint64_t count) { return count == largest; });
        });
    }
    return request;
}

}  // namespace tutti
