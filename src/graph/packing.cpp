#include "graph/packing.hpp"

#include "core/assert.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

namespace tutti::graph {
namespace {

using Indices = std::vector<std::size_t>;

std::uint64_t aligned(std::uint64_t bytes) {
    return (bytes + packing_alignment - 1) / packing_alignment * packing_alignment;
}

/// Each in turn at the smallest gap that holds it between those that live at the same time, else above them.
Packing place(std::span<const Lifetime> blocks, const Indices& order) {
    TUTTI_ASSERT(order.size() == blocks.size());
    Packing result{std::vector<std::uint64_t>(blocks.size()), 0};
    std::vector<std::size_t> placed;  // by offset
    placed.reserve(order.size());
    for (const std::size_t i : order) {
        const Lifetime& block = blocks[i];
        const std::uint64_t bytes = aligned(block.bytes);
        std::uint64_t end = 0, best = 0, best_gap = ~std::uint64_t{0};
        for (const std::size_t other : placed) {
            const Lifetime& its = blocks[other];
            if (its.last < block.first || block.last < its.first) continue;
            const std::uint64_t begin = result.offsets[other];
            if (begin > end && begin - end >= bytes && begin - end < best_gap) {
                best = end;
                best_gap = begin - end;
            }
            end = std::max(end, begin + aligned(its.bytes));
        }
        if (best_gap == ~std::uint64_t{0}) best = end;
        result.offsets[i] = best;
        TUTTI_ASSERT(best % packing_alignment == 0);
        result.bytes = std::max(result.bytes, best + bytes);
        const auto behind =
            std::ranges::upper_bound(placed, best, {}, [&](std::size_t p) { return result.offsets[p]; });
        TUTTI_ASSERT(result.offsets[i] + bytes <= result.bytes);
        placed.insert(behind, i);
    }
    return result;
}

Indices by(std::span<const Lifetime> blocks, const std::function<double(const Lifetime&)>& first_is_largest) {
    TUTTI_ASSERT(static_cast<bool>(first_is_largest));
    Indices order(blocks.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, std::greater<>(), [&](std::size_t i) { return first_is_largest(blocks[i]); });
    return order;
}

void keep_better(Packing& best, Packing&& other) {
    if (other.bytes < best.bytes) best = std::move(other);
}

}  // namespace

std::uint64_t most_alive(std::span<const Lifetime> blocks) {
    TUTTI_ASSERT(std::ranges::all_of(blocks, [](const Lifetime& block) { return block.first <= block.last; }));
    std::vector<std::pair<int, std::int64_t>> changes;
    for (const Lifetime& b : blocks) {
        changes.emplace_back(b.first, static_cast<std::int64_t>(b.bytes));
        changes.emplace_back(b.last + 1, -static_cast<std::int64_t>(b.bytes));
    }
    std::ranges::sort(changes);  // ends come before beginnings at the same place
    std::int64_t now = 0, most = 0;
    for (const auto& [at, change] : changes) most = std::max(most, now += change);
    TUTTI_ASSERT(now == 0 && most >= 0);
    return static_cast<std::uint64_t>(most);
}

Packing pack(std::span<const Lifetime> blocks) {
    TUTTI_ASSERT(std::ranges::all_of(blocks, [](const Lifetime& block) { return block.first <= block.last; }));
    const auto bytes = [](const Lifetime& b) { return static_cast<double>(b.bytes); };
    const auto duration = [](const Lifetime& b) { return static_cast<double>(b.last - b.first + 1); };
    const std::vector<Indices> orders{
        by(blocks, bytes),
        by(blocks, [&](const Lifetime& b) { return bytes(b) * duration(b); }),
        by(blocks, duration),
        by(blocks, [](const Lifetime& b) { return -static_cast<double>(b.first); }),
    };
    const std::size_t n = std::max<std::size_t>(blocks.size(), 1);
    const std::size_t tries = std::clamp<std::size_t>(4'000'000 / (n * n), 1, 300);
    const std::uint64_t least = most_alive(blocks);
    Packing best = place(blocks, orders.front());
    for (Indices order : orders) {
        for (std::size_t turn = 0; turn < tries && best.bytes > least; ++turn) {
            Packing now = place(blocks, order);
            const auto highest = std::ranges::find_if(
                order, [&](std::size_t i) { return now.offsets[i] + aligned(blocks[i].bytes) == now.bytes; });
            keep_better(best, std::move(now));
            if (highest == order.begin() || highest == order.end()) break;
            std::rotate(order.begin(), highest, highest + 1);
        }
    }
    TUTTI_ASSERT(best.offsets.size() == blocks.size() && best.bytes >= least);
    return best;
}

}  // namespace tutti::graph
