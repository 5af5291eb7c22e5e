#include "api/blocks.hpp"

#include "core/assert.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace tutti::api {
namespace {

using Numbers = std::vector<std::int64_t>;
using NumbersByRank = std::span<const std::uint64_t>;

// ---- Blocks anywhere

/// The blocks on one side of a call: those sent from the input, or those received into the output.
struct Side {
    const char* operation;
    const char* way;  ///< "for" or "from" a rank
    BlockNames names;
    std::uint64_t elements;
    const char* unit = "elements";
};

/// The numbers as they are, none of them negative.
NumbersByRank checked_entries(const Side& side, const char* name, const Numbers& numbers, std::size_t ranks) {
    if (numbers.size() != ranks) {
        TUTTI_ASSERT(ranks > 0);
        throw InvalidArgument(fmt::format("{}: {} has {} entries: expected {}, one per rank", side.operation, name,
                                          numbers.size(), ranks));
    }
    const auto negative = std::ranges::find_if(numbers, [](std::int64_t number) { return number < 0; });
    if (negative != numbers.end()) {
        throw InvalidArgument(fmt::format("{}: {}[{}] is {}: expected zero or more", side.operation, name,
                                          negative - numbers.begin(), *negative));
    }
    return {reinterpret_cast<const std::uint64_t*>(numbers.data()), numbers.size()};
}

NumbersByRank counts_of(const Side& side, const Numbers& counts, std::size_t ranks, RankNumbers& room) {
    if (!counts.empty()) return checked_entries(side, side.names.counts, counts, ranks);
    if (side.elements % ranks != 0) {
        throw InvalidArgument(fmt::format("{}: {} has {} elements: expected a multiple of {} (or {})", side.operation,
                                          side.names.tensor, side.elements, ranks, side.names.counts));
    }
    const std::span<std::uint64_t> even = room.take(ranks);
    std::ranges::fill(even, side.elements / ranks);
    TUTTI_ASSERT(even.size() == ranks);
    return even;
}

void check_places(const Side& side, const Blocks& blocks) {
    std::uint64_t end = 0;  // of the block before, which is where one without an offset begins
    TUTTI_ASSERT(blocks.offsets.empty() || blocks.offsets.size() == blocks.counts.size());
    for (std::size_t i = 0; i < blocks.counts.size(); ++i) {
        const std::uint64_t count = blocks.counts[i];
        if (count == 0) continue;  // it is nowhere
        const std::uint64_t begin = blocks.offsets.empty() ? end : blocks.offsets[i];
        if (count > side.elements || begin > side.elements - count) {
            throw InvalidArgument(fmt::format(
                "{}: the block {} rank {} ({} {} at {} {}) leaves {}: expected blocks within its {} {}", side.operation,
                side.way, i, count, side.unit, side.names.offsets, begin, side.names.tensor, side.elements, side.unit));
        }
        end = begin + count;
    }
}

Blocks blocks_of(const Side& side, const Numbers& counts, const Numbers& offsets, std::size_t ranks,
                 RankNumbers& room) {
    Blocks blocks{counts_of(side, counts, ranks, room), {}};
    if (!offsets.empty()) blocks.offsets = checked_entries(side, side.names.offsets, offsets, ranks);
    check_places(side, blocks);
    return blocks;
}

/// Whether each block ends before that of the next rank begins.
bool are_in_order(const Blocks& blocks) {
    std::uint64_t end = 0;
    TUTTI_ASSERT(blocks.offsets.size() == blocks.counts.size());
    for (std::size_t i = 0; i < blocks.counts.size(); ++i) {
        if (blocks.counts[i] == 0) continue;
        if (blocks.offsets[i] < end) return false;
        end = blocks.offsets[i] + blocks.counts[i];
    }
    return true;
}

/// Ranks in the order of their blocks' places; empty blocks are left out.
std::vector<std::size_t> by_place(const Blocks& blocks) {
    std::vector<std::size_t> order;
    TUTTI_ASSERT(blocks.offsets.size() == blocks.counts.size());
    for (std::size_t i = 0; i < blocks.counts.size(); ++i) {
        if (blocks.counts[i] > 0) order.push_back(i);
    }
    std::ranges::sort(order, {}, [&](std::size_t i) { return blocks.offsets[i]; });
    return order;
}

void check_disjoint(const Side& side, const Blocks& blocks) {
    if (blocks.offsets.empty() || are_in_order(blocks)) return;
    const auto order = by_place(blocks);
    const auto [counts, offsets] = blocks;
    for (std::size_t i = 1; i < order.size(); ++i) {
        const std::size_t before = order[i - 1], after = order[i];
        if (offsets[before] + counts[before] <= offsets[after]) continue;
        throw InvalidArgument(
            fmt::format("{}: the blocks from ranks {} and {} overlap in {}: [{}, +{}] and [{}, +{}]: expected "
                        "blocks apart from each other",
                        side.operation, before, after, side.names.tensor, offsets[before], counts[before],
                        offsets[after], counts[after]));
    }
}

}  // namespace

std::vector<std::uint64_t> offsets_of(const Blocks& blocks) {
    std::vector<std::uint64_t> offsets(blocks.counts.size());
    TUTTI_ASSERT(blocks.offsets.empty() || blocks.offsets.size() == offsets.size());
    if (blocks.offsets.empty()) {
        std::exclusive_scan(blocks.counts.begin(), blocks.counts.end(), offsets.begin(), std::uint64_t{0});
        return offsets;
    }
    for (std::size_t i = 0; i < offsets.size(); ++i) offsets[i] = blocks.counts[i] == 0 ? 0 : blocks.offsets[i];
    return offsets;
}

std::int64_t rows_of(const ConstTensorView& view) {
    return view.shape().empty() ? 1 : view.shape()[0];
}

std::uint64_t even_count(const char* operation, const char* argument, const ConstTensorView& view, int ranks) {
    TUTTI_ASSERT(ranks > 0);
    const auto rows = static_cast<std::uint64_t>(rows_of(view)), n = static_cast<std::uint64_t>(ranks);
    const std::uint64_t elements = count_of(view);
    // Divisions of 32 bits take half the time of others.
    const bool small = elements <= UINT32_MAX && rows <= UINT32_MAX;
    const auto remainder = [&](std::uint64_t whole) {
        return small ? static_cast<std::uint32_t>(whole) % static_cast<std::uint32_t>(n) : whole % n;
    };
    if (remainder(rows) != 0) {
        throw InvalidArgument(fmt::format("{}: dimension 0 of {} is {}: expected a multiple of {} (or split sizes)",
                                          operation, argument, rows, ranks));
    }
    return small ? static_cast<std::uint32_t>(elements) / static_cast<std::uint32_t>(n) : elements / n;
}

std::span<const std::uint64_t> split_counts(const char* operation, const char* argument, const Numbers& sizes,
                                            const ConstTensorView& view, int ranks, RankNumbers& room) {
    const auto n = static_cast<std::size_t>(ranks);
    if (sizes.empty()) {
        const std::uint64_t each = even_count(operation, argument, view, ranks);
        const std::span<std::uint64_t> counts = room.take(n);
        std::ranges::fill(counts, each);
        return counts;
    }
    if (sizes.size() != n) {
        throw InvalidArgument(fmt::format("{}: {}_split_sizes has {} entries: expected {}, one per rank", operation,
                                          argument, sizes.size(), n));
    }
    const std::int64_t rows = rows_of(view);
    const std::uint64_t row = rows == 0 ? 1 : count_of(view) / static_cast<std::uint64_t>(rows);
    const std::span<std::uint64_t> counts = room.take(n);
    std::int64_t total = 0;
    for (std::size_t i = 0; i < n; ++i) {
        if (sizes[i] < 0)
            throw InvalidArgument(
                fmt::format("{}: {}_split_sizes has {}: expected zero or more", operation, argument, sizes[i]));
        if (__builtin_add_overflow(total, sizes[i], &total)) total = INT64_MAX;
        counts[i] = static_cast<std::uint64_t>(sizes[i]) * row;
    }
    if (total != rows) {
        throw InvalidArgument(fmt::format("{}: {}_split_sizes add up to {}: expected {}, the size of dimension 0",
                                          operation, argument, total, rows));
    }
    TUTTI_ASSERT(counts.size() == n);
    return counts;
}

void check_own_block(const char* operation, std::uint64_t sent, std::uint64_t expected) {
    if (sent == expected) return;
    throw InvalidArgument(
        fmt::format("{}: this rank sends {} elements to itself and expects {}", operation, sent, expected));
}

Blocks gathered_blocks(int ranks, std::uint64_t length, const GatherVOptions& o, RankNumbers& room) {
    const Side side{"gather_v", "from", {"receive_counts", "receive_offsets", "output"}, length};
    const Blocks blocks = blocks_of(side, o.receive_counts, o.receive_offsets, static_cast<std::size_t>(ranks), room);
    check_disjoint(side, blocks);
    return blocks;
}

Blocks scattered_blocks(int ranks, std::uint64_t length, const ScatterVOptions& o, RankNumbers& room) {
    const Side side{"scatter_v", "for", {"send_counts", "send_offsets", "input"}, length};
    return blocks_of(side, o.send_counts, o.send_offsets, static_cast<std::size_t>(ranks), room);
}

Blocks displaced_rows(const char* operation, const AllGatherVOptions& o, const ConstTensorView& view, int ranks,
                      const DisplacedRooms& rooms) {
    if (o.output_split_sizes.empty()) {
        throw InvalidArgument(
            fmt::format("{}: output_offsets is given, and no output_split_sizes: expected both", operation));
    }
    const auto rows = static_cast<std::uint64_t>(rows_of(view)), n = static_cast<std::uint64_t>(ranks);
    const Side side{operation, "from", {"output_split_sizes", "output_offsets", "output"}, rows, "rows"};
    const Blocks of_rows = blocks_of(side, o.output_split_sizes, o.output_offsets, n, rooms.receive);
    check_disjoint(side, of_rows);
    const std::uint64_t row = rows == 0 ? 1 : count_of(view) / rows;
    const std::span<std::uint64_t> counts = rooms.receive.take(n), offsets = rooms.send.take(n);
    std::ranges::transform(of_rows.counts, counts.begin(), [&](std::uint64_t count) { return count * row; });
    for (std::size_t i = 0; i < n; ++i) offsets[i] = counts[i] == 0 ? 0 : of_rows.offsets[i] * row;
    return {counts, offsets};
}

DisplacedBlocks displaced_blocks(int rank, int ranks, const DisplacedLengths& lengths, const AllToAllVOptions& options,
                                 const DisplacedRooms& rooms, const DisplacedNames& names) {
    const Side send{names.operation, "for", names.send, lengths.input};
    const Side receive{names.operation, "from", names.receive, lengths.output};
    TUTTI_ASSERT(rank >= 0 && rank < ranks);
    const auto n = static_cast<std::size_t>(ranks), me = static_cast<std::size_t>(rank);
    const DisplacedBlocks blocks{blocks_of(send, options.send_counts, options.send_offsets, n, rooms.send),
                                 blocks_of(receive, options.receive_counts, options.receive_offsets, n, rooms.receive)};
    TUTTI_ASSERT(blocks.send.counts.size() == n && blocks.receive.counts.size() == n);
    check_disjoint(receive, blocks.receive);
    check_own_block(names.operation, blocks.send.counts[me], blocks.receive.counts[me]);
    return blocks;
}

}  // namespace tutti::api
