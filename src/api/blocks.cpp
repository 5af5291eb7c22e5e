#include "api/blocks.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace tutti::api {
namespace {

using Counts = std::vector<std::uint64_t>;
using Numbers = std::vector<std::int64_t>;

std::uint64_t count_of(const ConstTensorView& view) {
    return static_cast<std::uint64_t>(view.element_count());
}

Counts running_sums(const Counts& counts) {
    Counts result(counts.size());
    std::exclusive_scan(counts.begin(), counts.end(), result.begin(), std::uint64_t{0});
    return result;
}

void check_own(const char* operation, const algorithm::Request& request) {
    const auto me = static_cast<std::size_t>(request.rank);
    if (request.send_counts[me] == request.receive_counts[me]) return;
    throw InvalidArgument(fmt::format("{}: this rank sends {} elements to itself and expects {}", operation,
                                      request.send_counts[me], request.receive_counts[me]));
}

// ---- all_to_all_v

/// One side of an all_to_all_v: the blocks sent from the input, or those received into the output.
struct Side {
    const char* operation;
    const char* way;  ///< "for" or "from" a rank
    const BlockNames& names;
    std::uint64_t elements;
};

void check_entries(const Side& side, const char* name, const Numbers& numbers, std::size_t ranks) {
    if (numbers.size() != ranks) {
        throw InvalidArgument(fmt::format("{}: {} has {} entries: expected {}, one per rank", side.operation, name,
                                          numbers.size(), ranks));
    }
    const auto negative = std::ranges::find_if(numbers, [](std::int64_t number) { return number < 0; });
    if (negative != numbers.end()) {
        throw InvalidArgument(fmt::format("{}: {}[{}] is {}: expected zero or more", side.operation, name,
                                          negative - numbers.begin(), *negative));
    }
}

Counts counts_of(const Side& side, const Numbers& counts, std::size_t ranks) {
    if (counts.empty()) {
        if (side.elements % ranks != 0) {
            throw InvalidArgument(fmt::format("{}: {} has {} elements: expected a multiple of {} (or {})",
                                              side.operation, side.names.tensor, side.elements, ranks,
                                              side.names.counts));
        }
        return Counts(ranks, side.elements / ranks);
    }
    check_entries(side, side.names.counts, counts, ranks);
    return {counts.begin(), counts.end()};
}

// An empty block is nowhere, whatever its offset says.
Counts offsets_of(const Side& side, const Numbers& offsets, const Counts& counts) {
    if (!offsets.empty()) check_entries(side, side.names.offsets, offsets, counts.size());
    Counts result = offsets.empty() ? running_sums(counts) : Counts(offsets.begin(), offsets.end());
    for (std::size_t i = 0; i < counts.size(); ++i) {
        if (counts[i] == 0) result[i] = 0;
        if (counts[i] <= side.elements && result[i] <= side.elements - counts[i]) continue;
        throw InvalidArgument(fmt::format(
            "{}: the block {} rank {} ({} elements at {} {}) leaves {}, which has {} elements", side.operation,
            side.way, i, counts[i], side.names.offsets, result[i], side.names.tensor, side.elements));
    }
    return result;
}

/// Ranks in the order of their blocks' places; empty blocks are left out.
std::vector<std::size_t> by_place(const Counts& counts, const Counts& offsets) {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < counts.size(); ++i) {
        if (counts[i] > 0) order.push_back(i);
    }
    std::ranges::sort(order, {}, [&](std::size_t i) { return offsets[i]; });
    return order;
}

void check_disjoint(const Side& side, const Counts& counts, const Counts& offsets) {
    const auto order = by_place(counts, offsets);
    for (std::size_t i = 1; i < order.size(); ++i) {
        const std::size_t before = order[i - 1], after = order[i];
        if (offsets[before] + counts[before] <= offsets[after]) continue;
        throw InvalidArgument(fmt::format("{}: the blocks from ranks {} and {} overlap in {}: [{}, +{}] and [{}, +{}]",
                                          side.operation, before, after, side.names.tensor, offsets[before],
                                          counts[before], offsets[after], counts[after]));
    }
}

}  // namespace

std::int64_t rows_of(const ConstTensorView& view) {
    return view.shape().empty() ? 1 : view.shape()[0];
}

std::vector<std::uint64_t> split_counts(const char* operation, const char* argument, const Numbers& sizes,
                                        const ConstTensorView& view, int ranks) {
    const auto n = static_cast<std::size_t>(ranks);
    const std::int64_t rows = rows_of(view);
    const std::uint64_t row = rows == 0 ? 1 : count_of(view) / static_cast<std::uint64_t>(rows);
    if (sizes.empty()) {
        if (rows % ranks != 0) {
            throw InvalidArgument(fmt::format("{}: dimension 0 of {} is {}: expected a multiple of {} (or split sizes)",
                                              operation, argument, rows, ranks));
        }
        return Counts(n, static_cast<std::uint64_t>(rows / ranks) * row);
    }
    if (sizes.size() != n) {
        throw InvalidArgument(
            fmt::format("{}: {}_split_sizes has {} entries: expected {}", operation, argument, sizes.size(), n));
    }
    std::int64_t total = 0;
    Counts counts;
    for (const std::int64_t size : sizes) {
        if (size < 0)
            throw InvalidArgument(
                fmt::format("{}: {}_split_sizes has {}: expected zero or more", operation, argument, size));
        total += size;
        counts.push_back(static_cast<std::uint64_t>(size) * row);
    }
    if (total != rows) {
        throw InvalidArgument(fmt::format("{}: {}_split_sizes add up to {}: expected {}, the size of dimension 0",
                                          operation, argument, total, rows));
    }
    return counts;
}

void set_split_blocks(algorithm::Request& request, int ranks, const ConstTensorView& output,
                      const ConstTensorView& input, const AllToAllSingleOptions& options) {
    constexpr const char* name = "all_to_all_single";
    set_adjoining_blocks(request, split_counts(name, "input", options.input_split_sizes, input, ranks),
                         split_counts(name, "output", options.output_split_sizes, output, ranks));
    check_own(name, request);
}

void set_adjoining_blocks(algorithm::Request& request, Counts send, Counts receive) {
    request.send_offsets = running_sums(send);
    request.receive_offsets = running_sums(receive);
    request.send_counts = std::move(send);
    request.receive_counts = std::move(receive);
}

void set_displaced_blocks(algorithm::Request& request, int ranks, std::uint64_t output_elements,
                          std::uint64_t input_elements, const AllToAllVOptions& options, const DisplacedNames& names) {
    const Side send{names.operation, "for", names.send, input_elements};
    const Side receive{names.operation, "from", names.receive, output_elements};
    const auto n = static_cast<std::size_t>(ranks);
    request.send_counts = counts_of(send, options.send_counts, n);
    request.send_offsets = offsets_of(send, options.send_offsets, request.send_counts);
    request.receive_counts = counts_of(receive, options.receive_counts, n);
    request.receive_offsets = offsets_of(receive, options.receive_offsets, request.receive_counts);
    check_disjoint(receive, request.receive_counts, request.receive_offsets);
    check_own(names.operation, request);
}

bool leaves_gaps(const algorithm::Request& request, std::uint64_t elements) {
    // They do not overlap, so they cover everything if their sizes add up to it.
    return std::accumulate(request.receive_counts.begin(), request.receive_counts.end(), std::uint64_t{0}) != elements;
}

}  // namespace tutti::api
