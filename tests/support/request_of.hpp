// The request of one rank, of a collective that the prover describes for all ranks. Elements are of 64 bits.
#pragma once

#include "algorithm/request.hpp"
#include "schedule/contract.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace tutti {

/// Whether every block of an exchange has `count` elements.
inline bool is_even(const schedule::Contract& contract, std::uint64_t count) {
    const auto ranks = static_cast<int>(contract.matrix.size());
    for (int from = 0; from < ranks; ++from) {
        for (int to = 0; to < ranks; ++to) {
            if (traits_of(contract.collective).exchanges_between(from, to, contract.root) &&
                contract.matrix[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)] != count)
                return false;
        }
    }
    return true;
}

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
    if (traits_of(contract.collective).exchanges()) {
        request.largest_count = largest;
        request.even = is_even(contract, largest);
    }
    return request;
}

}  // namespace tutti
