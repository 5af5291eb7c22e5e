// The inputs of a collective's buffers, and their expected contents afterwards: one description for tutti's ranks and
// for the peers' programs (bench/peers). Needs nothing of tutti.
//
// Inputs take two values, `low` and `low + 1`, by rank and by the class of the element's index, so that every type
// holds them, a product stays small for long, and neighbours differ. A buffer is a row of runs: each holds inputs of
// one rank, or of all ranks combined.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace tutti::bench {

/// Elements that a rank sends to another, of `count` that it has for all.
using Pattern = std::uint64_t (*)(std::uint64_t count, int from, int to, int ranks);

struct Layout {
    std::string_view collective;
    bool reduces;
    bool blocks;                  ///< the size is divided among the ranks
    bool in_place;                ///< the output is the input
    double (*bus)(double ranks);  ///< bus over algorithm bandwidth (nccl-tests: doc/PERFORMANCE.md)
    Pattern pattern = nullptr;    ///< of blocks that differ
};

namespace patterns {
/// Blocks of a third less and a third more than their mean, and of the mean.
inline std::uint64_t balanced(std::uint64_t count, int from, int to, int ranks) {
    const std::uint64_t mean = count / static_cast<std::uint64_t>(ranks);
    return mean - mean / 3 + static_cast<std::uint64_t>((from + to) % 3) * (mean / 3);
}
/// A block for each of the next three ranks.
inline std::uint64_t sparse(std::uint64_t count, int from, int to, int ranks) {
    const int distance = (to - from + ranks) % ranks;
    return distance >= 1 && distance <= 3 ? count / 3 : 0;
}
/// Nine tenths for rank 0.
inline std::uint64_t skewed(std::uint64_t count, int /*from*/, int to, int ranks) {
    const std::uint64_t rest = count / 10;
    return to == 0 ? count - rest : rest / static_cast<std::uint64_t>(ranks - 1);
}
/// Uneven blocks between rank 0 and each other rank.
inline std::uint64_t to_root(std::uint64_t count, int from, int to, int ranks) {
    return to == 0 ? balanced(count, from, to, ranks) : 0;
}
inline std::uint64_t from_root(std::uint64_t count, int from, int to, int ranks) {
    return from == 0 ? balanced(count, from, to, ranks) : 0;
}
}  // namespace patterns

namespace bus {
inline double once(double) {
    return 1;
}
inline double others(double n) {
    return (n - 1) / n;
}
}  // namespace bus

inline constexpr std::array layouts{
    Layout{"all_reduce", true, false, true, [](double n) { return 2 * bus::others(n); }},
    Layout{"scan", true, false, true, bus::once},
    Layout{"exscan", true, false, true, bus::once},
    Layout{"broadcast", false, false, true, bus::once},
    Layout{"reduce", true, false, true, bus::once},
    Layout{"all_gather", false, true, false, bus::others},
    Layout{"reduce_scatter", true, true, false, bus::others},
    Layout{"all_to_all", false, true, false, bus::others},
    Layout{"all_to_all_v", false, false, false, bus::others, patterns::balanced},
    Layout{"all_to_all_v_sparse", false, false, false, bus::others, patterns::sparse},
    Layout{"all_to_all_v_skewed", false, false, false, bus::others, patterns::skewed},
    Layout{"gather_v", false, false, false, bus::others, patterns::to_root},
    Layout{"scatter_v", false, false, false, bus::others, patterns::from_root},
    Layout{"gather", false, true, false, bus::others},
    Layout{"scatter", false, true, false, bus::others},
    Layout{"sendrecv", false, false, false, bus::once},
    Layout{"barrier", false, false, true, [](double) { return 0.0; }},
};

/// Null: there is no such collective.
inline const Layout* find_layout(std::string_view collective) {
    const auto* const found = std::ranges::find(layouts, collective, &Layout::collective);
    return found == layouts.end() ? nullptr : found;
}

/// In elements; `whole` is the size that rows are listed under.
struct Counts {
    std::uint64_t block = 0;  ///< a rank's part; the whole where there are no blocks
    std::uint64_t in = 0, out = 0, whole = 0;
};
/// `count` is rounded down to divide among the ranks, but every rank has something.
inline Counts counts_of(const Layout& layout, int rank, int ranks, std::uint64_t count) {
    const std::string_view name = layout.collective;
    const auto n = static_cast<std::uint64_t>(ranks);
    Counts e;
    if (name == "barrier") return e;
    if (layout.pattern != nullptr) {
        e.block = e.whole = count;
        for (int peer = 0; peer < ranks; ++peer) {
            e.in += layout.pattern(count, rank, peer, ranks);
            e.out += layout.pattern(count, peer, rank, ranks);
        }
        return e;
    }
    e.block = layout.blocks ? std::max<std::uint64_t>(1, count / n) : count;
    e.whole = layout.blocks ? e.block * n : e.block;
    const bool root = rank == 0;
    if (!layout.in_place) e.in = name == "all_gather" || name == "gather" ? e.block : e.whole;
    if (name == "scatter" && !root) e.in = 0;
    e.out = name == "reduce_scatter" || name == "scatter" ? e.block : e.whole;
    if (name == "gather" && !root) e.out = 0;
    return e;
}

inline constexpr int all_ranks = -1;

/// `count` elements from `at` on: the inputs of `rank`, or of all_ranks combined, from `from` on.
struct Run {
    std::uint64_t at = 0, count = 0;
    int rank = 0;
    std::uint64_t from = 0;
    int end = 0;  ///< of all_ranks: those before this one alone; 0: all
    int combined(int ranks) const { return end > 0 ? end : ranks; }
};
/// This rank's output. A rank that gets nothing of a reduce or an exscan keeps its input.
inline std::vector<Run> outcome(const Layout& layout, int rank, int ranks, const Counts& e) {
    const std::string_view name = layout.collective;
    if (e.out == 0) return {};
    const std::uint64_t mine = static_cast<std::uint64_t>(rank) * e.block;
    if (name == "all_reduce") return {{0, e.out, all_ranks, 0}};
    if (name == "scan") return {{0, e.out, all_ranks, 0, rank + 1}};
    if (name == "exscan") return {{0, e.out, rank == 0 ? 0 : all_ranks, 0, rank}};
    if (name == "reduce") return {{0, e.out, rank == 0 ? all_ranks : rank, 0}};
    if (name == "reduce_scatter") return {{0, e.out, all_ranks, mine}};
    if (name == "broadcast") return {{0, e.out, 0, 0}};
    if (name == "scatter") return {{0, e.out, 0, mine}};
    if (name == "sendrecv") return {{0, e.out, (rank + ranks - 1) % ranks, 0}};
    std::vector<Run> runs;  // all_gather, gather, all_to_all, all_to_all_v
    if (layout.pattern != nullptr) {
        std::uint64_t at = 0;
        for (int from = 0; from < ranks; ++from) {
            Run run{at, layout.pattern(e.whole, from, rank, ranks), from, 0};
            for (int before = 0; before < rank; ++before) run.from += layout.pattern(e.whole, from, before, ranks);
            at += run.count;
            runs.push_back(run);
        }
        return runs;
    }
    for (int r = 0; r < ranks; ++r) {
        runs.push_back({static_cast<std::uint64_t>(r) * e.block, e.block, r, name == "all_to_all" ? mine : 0});
    }
    return runs;
}

inline constexpr std::size_t classes = 5;
/// One value for each class.
template <class T>
using Values = std::array<T, classes>;

inline constexpr std::size_t class_of(std::uint64_t i) {
    return static_cast<std::size_t>((i * 7 + (i >> 9)) % classes);
}
inline Values<double> inputs_of(int rank, double low) {
    Values<double> values;
    for (std::size_t c = 0; c < classes; ++c) {
        values[c] = low + static_cast<double>((c + static_cast<std::size_t>(rank) * 3) % classes % 2);
    }
    return values;
}
/// `combine` takes the result of the ranks before, and the next one's input.
template <class Combine>
Values<double> inputs_combined(int ranks, double low, Combine&& combine) {
    Values<double> values = inputs_of(0, low);
    for (int r = 1; r < ranks; ++r) {
        const Values<double> next = inputs_of(r, low);
        for (std::size_t c = 0; c < classes; ++c) values[c] = combine(values[c], next[c]);
    }
    return values;
}

/// Calls visit(index in the buffer, class) for the elements of a run, in order.
template <class Visit>
void for_each_element(const Run& run, Visit&& visit) {
    std::size_t c = class_of(run.from);
    for (std::uint64_t i = 0; i < run.count; ++i) {
        visit(run.at + i, c);
        c += (run.from + i + 1) % 512 == 0 ? 3 : 2;  // as class_of goes on
        if (c >= classes) c -= classes;
    }
}

template <class T>
void write_run(T* buffer, const Run& run, const Values<T>& values) {
    for_each_element(run, [&](std::uint64_t i, std::size_t c) { buffer[i] = values[c]; });
}

/// The number of wrong elements; acceptable(index, class) is asked about those that differ.
template <class T, class Acceptable>
std::uint64_t count_wrong(const T* buffer, const Run& run, const Values<T>& wanted, Acceptable&& acceptable) {
    std::uint64_t wrong = 0;
    for_each_element(run, [&](std::uint64_t i, std::size_t c) {
        if (!(buffer[i] == wanted[c]) && !acceptable(i, c)) ++wrong;
    });
    return wrong;
}

}  // namespace tutti::bench
