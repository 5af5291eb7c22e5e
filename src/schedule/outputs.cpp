// The initial contents of every collective, and its promises about its outputs.
#include "schedule/symbols.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace tutti::schedule {
namespace {

std::uint64_t sum_before(const std::vector<std::uint64_t>& counts, Rank end) {
    return std::accumulate(counts.begin(), counts.begin() + end, std::uint64_t{0});
}

// `count` elements from `at` on are those of rank `from` from `index` on.
std::string not_a_copy(const Values& output, std::uint64_t at, Rank from, std::uint64_t index, std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) {
        const Value& value = output[at + i];
        if (!value || value->parts != std::vector{static_cast<std::uint32_t>(from)} || value->index != index + i) {
            return fmt::format("element {} is not element {} of rank {}", at + i, index + i, from);
        }
    }
    return {};
}

// The first `count` elements are the combinations of everyone's from `first` on.
std::string not_reduced(const Values& output, std::uint64_t first, std::uint64_t count, int size,
                        const Contract& contract) {
    for (std::uint64_t i = 0; i < count; ++i) {
        if (!output[i]) return fmt::format("element {} is never written", i);
        Symbol value = *output[i];
        if (value.index != first + i) return fmt::format("element {} holds another element", i);
        if (!value.finished) return fmt::format("element {} is not finished", i);
        if (contract.single_rounding && value.combinations > 1) {
            return fmt::format("element {} was rounded {} times", i, value.combinations);
        }
        if (!contract.rank_order) std::ranges::sort(value.parts);
        bool right = value.parts.size() == static_cast<std::size_t>(size);
        for (std::size_t p = 0; right && p < value.parts.size(); ++p) right = value.parts[p] == p;
        if (!right) {
            return fmt::format("element {} misses or repeats contributions, or has them in another order", i);
        }
    }
    return {};
}

// Where the blocks of an all_to_all begin.
std::uint64_t send_offset(const Contract& contract, Rank rank, Rank peer) {
    const auto me = static_cast<std::size_t>(rank);
    if (!contract.send_offsets.empty()) return contract.send_offsets[me][static_cast<std::size_t>(peer)];
    return sum_before(contract.matrix[me], peer);
}
std::uint64_t receive_offset(const Contract& contract, Rank rank, Rank peer) {
    const auto me = static_cast<std::size_t>(rank);
    if (!contract.receive_offsets.empty()) return contract.receive_offsets[me][static_cast<std::size_t>(peer)];
    std::uint64_t sum = 0;
    for (std::size_t from = 0; from < static_cast<std::size_t>(peer); ++from) sum += contract.matrix[from][me];
    return sum;
}

// Every block is where it belongs, and the gaps between blocks are untouched.
std::string not_exchanged(const Values& output, Rank rank, int size, const Contract& contract) {
    std::vector<bool> covered(output.size());
    for (Rank from = 0; from < size; ++from) {
        const std::uint64_t at = receive_offset(contract, rank, from);
        const std::uint64_t count = contract.matrix[static_cast<std::size_t>(from)][static_cast<std::size_t>(rank)];
        auto wrong = not_a_copy(output, at, from, send_offset(contract, from, rank), count);
        if (!wrong.empty()) return wrong;
        std::fill_n(covered.begin() + static_cast<std::ptrdiff_t>(at), count, true);
    }
    for (std::size_t i = 0; i < output.size(); ++i) {
        if (!covered[i] && output[i]) return fmt::format("element {} is written, but no block has it", i);
    }
    return {};
}

// How many elements the input and the output of a rank have.
std::pair<std::uint64_t, std::uint64_t> lengths(Rank rank, int size, const Contract& contract) {
    const auto me = static_cast<std::size_t>(rank);
    const std::vector<std::uint64_t>& counts = contract.counts;
    const auto total = [&] { return sum_before(counts, size); };
    const bool is_root = rank == contract.root;
    switch (contract.collective) {
        case Collective::all_reduce: return {contract.count, contract.count};
        case Collective::reduce: return {contract.count, is_root ? contract.count : 0};
        case Collective::broadcast: return {0, contract.count};
        case Collective::all_gather: return {counts[me], total()};
        case Collective::gather: return {counts[me], is_root ? total() : 0};
        case Collective::scatter: return {is_root ? total() : 0, counts[me]};
        case Collective::reduce_scatter: return {total(), counts[me]};
        case Collective::all_to_all: {
            std::pair<std::uint64_t, std::uint64_t> ends;
            for (Rank peer = 0; peer < size; ++peer) {
                const auto p = static_cast<std::size_t>(peer);
                ends.first = std::max(ends.first, send_offset(contract, rank, peer) + contract.matrix[me][p]);
                ends.second = std::max(ends.second, receive_offset(contract, rank, peer) + contract.matrix[p][me]);
            }
            return ends;
        }
        case Collective::barrier: return {};
    }
    return {};
}

}  // namespace

std::pair<Values, Values> starting_with(Rank rank, int size, const Contract& contract) {
    const auto [input, output] = lengths(rank, size, contract);
    const bool output_is_input = (contract.collective == Collective::all_reduce && contract.in_place) ||
                                 (contract.collective == Collective::broadcast && rank == contract.root);
    std::pair<Values, Values> both;
    Values& filled = output_is_input ? both.second : both.first;
    const std::uint64_t count = output_is_input ? output : input;
    for (std::uint64_t i = 0; i < count; ++i) filled.push_back(Symbol{{static_cast<std::uint32_t>(rank)}, i});
    both.second.resize(output);
    return both;
}

std::string wrong_with(const Values& output, Rank rank, int size, const Contract& contract) {
    const auto me = static_cast<std::size_t>(rank);
    const auto& counts = contract.counts;
    switch (contract.collective) {
        case Collective::reduce:
            if (rank != contract.root) return {};
            [[fallthrough]];
        case Collective::all_reduce: return not_reduced(output, 0, contract.count, size, contract);
        case Collective::reduce_scatter:
            return not_reduced(output, sum_before(counts, rank), counts[me], size, contract);
        case Collective::broadcast: return not_a_copy(output, 0, contract.root, 0, contract.count);
        case Collective::gather:
            if (rank != contract.root) return {};
            [[fallthrough]];
        case Collective::all_gather:
            for (Rank from = 0; from < size; ++from) {
                const std::uint64_t count = counts[static_cast<std::size_t>(from)];
                auto wrong = not_a_copy(output, sum_before(counts, from), from, 0, count);
                if (!wrong.empty()) return wrong;
            }
            return {};
        case Collective::scatter: return not_a_copy(output, 0, contract.root, sum_before(counts, rank), counts[me]);
        case Collective::all_to_all: return not_exchanged(output, rank, size, contract);
        case Collective::barrier: return {};
    }
    return {};
}

}  // namespace tutti::schedule
