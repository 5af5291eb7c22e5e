// The work of each algorithm of the table, by formula.
#include "algorithm/cost.hpp"
#include "core/assert.hpp"

#include "algorithm/slots.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace tutti::algorithm {
namespace {

/// The variables of the formulas.
struct Shape {
    double n = 1;        // ranks
    double bytes = 0;    // of the buffer, or of a block
    double levels = 0;   // of a binary tree
    double power = 1;    // the largest power of two that is no more than n
    double tile = 1;     // of a ring's slices
    double segment = 1;  // of long messages
    double slot = 1;     // of the staging area
    double slots = 1;    // that a rank has
};

double levels_of(double n, double radix) {
    TUTTI_ASSERT(radix > 1);
    double levels = 0;
    for (double reached = 1; reached < n; reached *= radix) ++levels;
    return levels;
}

// Every rank does the same: sends and receives `each` messages with `bytes` in all.
Workload alike(const Shape& s, double exchanges, double each, double bytes) {
    TUTTI_ASSERT(exchanges >= 0 && each >= 0 && bytes >= 0);
    return {.exchanges = exchanges,
            .messages = s.n * each,
            .bytes = s.n * bytes,
            .most_sends = each,
            .most_receives = each,
            .most_bytes = bytes};
}

// Ranks beyond the power of two give their values away first, and get the result at the end.
Workload folded(const Shape& s, Workload work, double first_bytes, double last_bytes) {
    const double extra = s.n - s.power;
    TUTTI_ASSERT(extra >= 0 && extra < s.power);
    if (extra == 0) return work;
    work.exchanges += 2;
    work.messages = work.messages * s.power / s.n + 2 * extra;
    work.bytes = work.bytes * s.power / s.n + extra * (first_bytes + last_bytes);
    work.most_sends += 1;
    work.most_receives += 1;
    work.most_bytes += std::max(first_bytes, last_bytes);
    return work;
}

Workload with_scratch(const Shape& s, Workload work, double bytes_a_rank) {
    TUTTI_ASSERT(bytes_a_rank >= 0);
    work.scratch = s.n * bytes_a_rank;
    work.scratch_ranks = s.n;
    work.held += bytes_a_rank;
    return work;
}

Workload with_own_block(const Shape& s, Workload work) {
    work.most_local = s.bytes;
    return work;
}

// From or to a root, which has `children` messages with `root_bytes`; an inner rank passes on all that it gets.
Workload rooted(double depth, double messages, double bytes, double children, double root_bytes, bool root_sends) {
    Workload work{.exchanges = depth, .messages = messages, .bytes = bytes, .most_bytes = root_bytes, .one_way = true};
    (root_sends ? work.most_sends : work.most_receives) = children;
    return work;
}

// Combining k inputs in one pass reads k streams and writes one: so many times the work for two inputs.
double combining(double inputs) {
    TUTTI_ASSERT(inputs >= 1);
    return (inputs + 1) / 3;
}

// The values that arrived in messages are combined.
Workload combined(Workload work, double sums) {
    work.most_sums += sums;
    return work;
}

// An all_reduce, in whose buffers results lie that ranks have written: those of the last call, or partial ones.
Workload of_results(Workload work) {
    work.fresh = 1;
    return work;
}

// To a root, which combines its children's values.
Workload reduced(const Shape& s, double depth, double children) {
    return combined(rooted(depth, s.n - 1, (s.n - 1) * s.bytes, children, children * s.bytes, false),
                    0.75 * children * s.bytes);
}

// Through the staging area in tiles of `tile` bytes. A rank hands `crossing` bytes over, the work
// of both ends counted.
Workload staged(double bytes, double tile, double signals_a_tile, double copied, double most_copied, double crossing) {
    TUTTI_ASSERT(bytes >= 0 && tile > 0);
    return {.signals = signals_a_tile * std::max(1.0, std::ceil(bytes / tile)),
            .copied = copied,
            .most_copied = most_copied,
            .crossing = crossing};
}

// Where the kernel copies from rank to rank, `calls` times on the busiest rank, `pulled` bytes in all. Ranks meet
// before and after.
Workload copied_once(double calls, double pulled, double most_pulled) {
    TUTTI_ASSERT(most_pulled <= pulled || pulled == 0);
    return {.signals = 2, .pulled = pulled, .most_pulled = most_pulled, .calls = calls, .meetings = 2};
}

// And each rank combines all ranks' values to `bytes` of results.
Workload and_combined(const Shape& s, Workload work, double bytes) {
    work.most_summed += combining(s.n) * bytes;
    work.summed += s.n * combining(s.n) * bytes;
    return work;
}

// Bytes of a buffer that are in the slices of others.
double shared_part(const Shape& s) {
    return (s.n - 1) / s.n * s.bytes;
}
double two_shot_tile(const Shape& s) {
    return s.slot * s.n / std::max(1.0, s.n - 1);
}

Workload counting_on_huge_pages(Workload work) {
    work.counts_on_huge_pages = true;
    return work;
}

// Through a tree, or a line, of `depth` levels. Long messages follow one another in segments.
Workload spread(const Shape& s, double depth, double children) {
    Workload work = rooted(depth, s.n - 1, (s.n - 1) * s.bytes, children, children * s.bytes, true);
    work.relayed = s.bytes + (depth - 1) * std::min(s.bytes, s.segment);
    return work;
}

// Ranks pass on blocks that they have received, all but those of the last exchange.
Workload passed_on(const Shape& s, Workload work) {
    work.streamed = s.n * std::max(0.0, s.n - 2) * s.bytes;
    return with_own_block(s, work);
}

Workload gather_split(const Shape& s) {
    // Both sides take as long: the root, which copies its own block too, and a rank that writes this part of its block.
    const double part = 1 - 0.625 / s.n;
    Workload work = copied_once(s.n - 1, (s.n - 1) * s.bytes, part * s.bytes);
    work.copied = s.bytes;
    return counting_on_huge_pages(work);
}

// The rank before the last has the most to do: it publishes, and combines the values of all up to itself. The last one
// publishes nothing, and rank 0, which combines nothing, runs ahead of the others.
Workload scan_shared(const Shape& s) {
    const double others = (s.n - 1) * s.bytes;
    const bool has_inner = s.n > 2;
    Workload work = staged(s.bytes, s.slot, 1, s.n * s.bytes, has_inner ? s.bytes : 0, readers_part * others);
    work.most_summed = combining(has_inner ? s.n - 1 : s.n) * s.bytes;
    work.summed = (s.n - 1) * combining((s.n + 2) / 2) * s.bytes;  // of two inputs to n
    return work;
}
Workload scan_direct(const Shape& s) {
    const double pairs = s.n * (s.n - 1) / 2, others = (s.n - 1) * s.bytes;
    Workload work{.exchanges = 1,
                  .messages = pairs,
                  .bytes = pairs * s.bytes,
                  .most_sends = s.n - 1,
                  .most_receives = 0,
                  .most_bytes = others,
                  .one_way = true};
    work.scratch = pairs * s.bytes;
    work.scratch_ranks = s.n;
    work.held = others;
    return combined(work, combining(s.n) * s.bytes);
}
Workload scan_doubling(const Shape& s) {
    Workload work{.exchanges = s.levels, .most_sends = s.levels, .most_receives = s.levels, .one_way = true};
    for (double distance = 1; distance < s.n; distance *= 2) work.messages += s.n - distance;
    work.bytes = work.messages * s.bytes;
    work.most_bytes = s.levels * s.bytes;
    work.fresh = 1 - (s.n - 1) / std::max(1.0, work.messages);  // the first step sends inputs
    return combined(with_scratch(s, work, (s.levels + 1) * s.bytes), combining(2) * s.levels * s.bytes);
}
// Each rank passes on what it has combined, a tile later than the one before it, which never runs ahead by much.
Workload scan_chain(const Shape& s) {
    const double links = s.n - 1, tile = std::min(s.bytes, s.tile);
    Workload work{.exchanges = links,
                  .messages = links * std::max(1.0, std::ceil(s.bytes / s.tile)),
                  .bytes = links * s.bytes,
                  .most_sends = 1,
                  .most_receives = 1,
                  .most_bytes = s.bytes,
                  .fresh = 1};
    work.relayed = s.bytes + std::max(0.0, links - 1) * tile;
    return combined(work, combining(2) * (s.bytes + std::max(0.0, links - 1) * tile));
}

struct Formula {
    Collective collective;
    std::string_view algorithm;
    Workload (*work)(const Shape&);
};

Workload gather_shared(const Shape& s) {
    Workload work = staged(s.bytes, s.slot, 1, (2 * s.n - 1) * s.bytes, s.n * s.bytes, (s.n - 1) * s.bytes);
    work.one_way = true;
    return work;
}
Workload gather_direct(const Shape& s) {
    return with_own_block(s, rooted(1, s.n - 1, (s.n - 1) * s.bytes, s.n - 1, (s.n - 1) * s.bytes, false));
}
Workload scatter_shared(const Shape& s) {
    const double tile = s.slot / std::max(1.0, s.n - 1);
    Workload work = staged(s.bytes, tile, 1, (2 * s.n - 1) * s.bytes, s.n * s.bytes, s.bytes);
    work.one_way = true;
    // The root runs ahead until its slots are full; then all others have to come.
    work.meetings = std::ceil(s.bytes / tile) / s.slots;
    return work;
}
Workload scatter_direct(const Shape& s) {
    Workload work = with_own_block(s, rooted(1, s.n - 1, (s.n - 1) * s.bytes, s.n - 1, (s.n - 1) * s.bytes, true));
    work.sends_first = true;
    return counting_on_huge_pages(work);
}

const Formula formulas[] = {
    {Collective::all_reduce, "one_shot",
     [](const Shape& s) {
         return and_combined(s, staged(s.bytes, s.slot, 1, s.n * s.bytes, s.bytes, (s.n - 1) * s.bytes), s.bytes);
     }},
    {Collective::all_reduce, "two_shot",
     [](const Shape& s) {
         // The owner of a slice writes its result to the slot from the first-level cache.
         const double each = s.bytes * (2 * (s.n - 1) / s.n + 0.7 / s.n);
         Workload work = staged(s.bytes, two_shot_tile(s), 2, s.n * each, each, 2 * shared_part(s));
         work.signals += 3;  // ranks are idle while the first pieces come
         return and_combined(s, work, s.bytes / s.n);
     }},
    {Collective::all_reduce, "direct",
     [](const Shape& s) {
         const Workload work = of_results(alike(s, 1, s.n - 1, (s.n - 1) * s.bytes));
         return combined(with_scratch(s, work, (s.n - 1) * s.bytes), combining(s.n) * s.bytes);
     }},
    {Collective::all_reduce, "recursive_doubling",
     [](const Shape& s) {
         const double steps = std::log2(s.power);
         const Workload work = of_results(folded(s, alike(s, steps, steps, steps * s.bytes), s.bytes, s.bytes));
         return combined(with_scratch(s, work, 2 * s.bytes), combining(2) * steps * s.bytes);
     }},
    {Collective::all_reduce, "recursive_halving",
     [](const Shape& s) {
         const double steps = 2 * std::log2(s.power), sent = 2 * s.bytes * (s.power - 1) / s.power;
         Workload work = of_results(folded(s, alike(s, steps, steps, sent), s.bytes, s.bytes));
         work.streamed = s.n * sent;
         return combined(work, combining(2) * sent / 2);
     }},
    {Collective::all_reduce, "ring",
     [](const Shape& s) {
         const double blocks = std::max(1.0, std::ceil(s.bytes / (s.n * s.tile)));
         const double sent = 2 * s.bytes * (s.n - 1) / s.n;
         // Messages that follow one another find the peer awake, and their calls are part of the rate.
         const double each = 2 * (s.n - 1) * (1 + 0.15 * (blocks - 1));
         return combined(of_results(alike(s, 2 * (s.n - 1), each, sent)), combining(2) * sent / 2);
     }},
    {Collective::all_reduce, "two_shot_messages",
     [](const Shape& s) {
         const double sent = 2 * s.bytes * (s.n - 1) / s.n;
         Workload work = of_results(alike(s, 2, 2 * (s.n - 1), sent));
         work.streamed = s.n * sent;
         return combined(with_scratch(s, work, sent / 2), combining(s.n) * s.bytes / s.n);
     }},

    {Collective::reduce, "one_shot",
     [](const Shape& s) {
         const double others = (s.n - 1) * s.bytes;
         // The others write while the root combines what they have written before.
         Workload work = staged(s.bytes, s.slot, 1, others, 0, readers_part * others);
         work.summed = work.most_summed = combining(s.n) * s.bytes;
         work.one_way = true;
         return work;
     }},
    {Collective::reduce, "two_shot",
     [](const Shape& s) {
         const double each = s.bytes * ((s.n - 1) / s.n + 0.7 / s.n);
         Workload work = staged(s.bytes, two_shot_tile(s), 2, s.n * each + shared_part(s), each + shared_part(s),
                                2 * shared_part(s));
         work = and_combined(s, work, s.bytes / s.n);
         // In one shot ranks that share a core need not meet.
         work.meetings = std::max(1.0, std::ceil(s.bytes / two_shot_tile(s)));
         return work;
     }},
    {Collective::reduce, "knomial",
     [](const Shape& s) {
         const double depth = levels_of(s.n, 4), children = std::min(s.n - 1, 3 * depth);
         return reduced(s, depth, children);
     }},
    {Collective::reduce, "binomial", [](const Shape& s) { return reduced(s, s.levels, s.levels); }},
    {Collective::reduce, "direct",
     [](const Shape& s) {
         Workload work = reduced(s, 1, s.n - 1);
         work.scratch = work.held = (s.n - 1) * s.bytes;
         return work;
     }},

    {Collective::broadcast, "shared",
     [](const Shape& s) {
         // All read the same lines at once, and have nothing else to do meanwhile.
         Workload work = staged(s.bytes, s.slot, 1, 1.4 * s.n * s.bytes, 1.4 * s.bytes, s.bytes);
         work.one_way = true;
         return work;
     }},
    {Collective::broadcast, "single_copy",
     [](const Shape& s) { return copied_once(s.n - 1, (s.n - 1) * s.bytes, shared_part(s)); }},
    {Collective::broadcast, "knomial",
     [](const Shape& s) {
         const double depth = levels_of(s.n, 4), children = std::min(s.n - 1, 3 * depth);
         return spread(s, depth, children);
     }},
    {Collective::broadcast, "binomial", [](const Shape& s) { return spread(s, s.levels, s.levels); }},
    {Collective::broadcast, "chain",
     [](const Shape& s) {
         Workload work = spread(s, s.n - 1, 1);
         work.most_receives = s.n > 2 ? 1 : 0;
         return work;
     }},

    {Collective::all_gather, "shared",
     [](const Shape& s) {
         return staged(s.bytes, s.slot, 1, s.n * (s.n + 1) * s.bytes, (s.n + 1) * s.bytes, (s.n - 1) * s.bytes);
     }},
    {Collective::all_gather, "direct",
     [](const Shape& s) {
         return counting_on_huge_pages(with_own_block(s, alike(s, 1, s.n - 1, (s.n - 1) * s.bytes)));
     }},
    {Collective::all_gather, "bruck",
     [](const Shape& s) { return passed_on(s, alike(s, s.levels, s.n - 1, (s.n - 1) * s.bytes)); }},
    {Collective::all_gather, "recursive_doubling",
     [](const Shape& s) {
         const double steps = std::log2(s.power);
         const Workload work = alike(s, steps, steps, (s.n - 1) * s.bytes);
         return passed_on(s, folded(s, work, s.bytes, (s.n - 1) * s.bytes));
     }},
    {Collective::all_gather, "ring",
     [](const Shape& s) { return passed_on(s, alike(s, s.n - 1, s.n - 1, (s.n - 1) * s.bytes)); }},

    {Collective::gather, "shared", gather_shared},
    {Collective::gather, "single_copy", gather_split},
    {Collective::gather, "binomial",
     [](const Shape& s) {
         const double passed_on = s.levels * s.n / 2 * s.bytes;
         return with_own_block(s, rooted(s.levels, s.n - 1, passed_on, s.levels, (s.n - 1) * s.bytes, false));
     }},
    {Collective::gather, "direct", gather_direct},

    {Collective::scatter, "shared", scatter_shared},
    {Collective::scatter, "binomial",
     [](const Shape& s) {
         const double passed_on = s.levels * s.n / 2 * s.bytes;
         return with_own_block(s, rooted(s.levels, s.n - 1, passed_on, s.levels, (s.n - 1) * s.bytes, true));
     }},
    {Collective::scatter, "direct", scatter_direct},

    {Collective::reduce_scatter, "shared",
     [](const Shape& s) {
         const double others = (s.n - 1) * s.bytes;
         return and_combined(s, staged(s.bytes, s.slot / std::max(1.0, s.n - 1), 1, s.n * others, others, others),
                             s.bytes);
     }},
    {Collective::reduce_scatter, "direct",
     [](const Shape& s) {
         const Workload work = alike(s, 1, s.n - 1, (s.n - 1) * s.bytes);
         return combined(with_scratch(s, work, (s.n - 1) * s.bytes), combining(s.n) * s.bytes);
     }},
    {Collective::reduce_scatter, "recursive_halving",
     [](const Shape& s) {
         const double steps = std::log2(s.power), sent = (s.power - 1) / s.power * s.n * s.bytes;
         Workload work = folded(s, alike(s, steps, steps, sent), s.n * s.bytes, s.bytes);
         work.fresh = s.n > 2 ? 0.5 : 0;  // the first exchange has half of the bytes
         return combined(with_scratch(s, work, s.n * s.bytes), combining(2) * sent);
     }},
    {Collective::reduce_scatter, "ring",
     [](const Shape& s) {
         Workload work = alike(s, s.n - 1, s.n - 1, (s.n - 1) * s.bytes);
         const double passed_on = std::max(0.0, s.n - 2);  // blocks of a rank
         work.fresh = passed_on / std::max(1.0, s.n - 1);
         return combined(with_scratch(s, work, passed_on * s.bytes), combining(2) * (s.n - 1) * s.bytes);
     }},

    {Collective::all_to_all, in_slots,
     [](const Shape& s) {
         const double others = (s.n - 1) * s.bytes;
         return staged(s.bytes, s.bytes + 1, 1, 2 * s.n * others, 2 * others, others);
     }},
    {Collective::all_to_all, "bruck",
     [](const Shape& s) {
         const double passed = s.levels * s.n / 2 * s.bytes;
         Workload work = alike(s, s.levels, s.levels, passed);
         work.most_local = passed + s.n * s.bytes;
         return work;
     }},
    {Collective::all_to_all, "pairwise", [](const Shape& s) { return alike(s, 1, s.n - 1, (s.n - 1) * s.bytes); }},
    {Collective::gather_v, in_slots, gather_shared},
    {Collective::gather_v, "direct", gather_direct},
    {Collective::scatter_v, in_slots, scatter_shared},
    {Collective::scatter_v, "direct", scatter_direct},
    {Collective::barrier, "shared", [](const Shape&) { return Workload{.signals = 1}; }},
    {Collective::barrier, "dissemination", [](const Shape& s) { return alike(s, s.levels, s.levels, 0); }},

    {Collective::scan, "shared", scan_shared},
    {Collective::scan, "direct", scan_direct},
    {Collective::scan, "recursive_doubling", scan_doubling},
    {Collective::scan, "chain", scan_chain},

    {Collective::exscan, "shared", scan_shared},
    {Collective::exscan, "direct", scan_direct},
    {Collective::exscan, "recursive_doubling", scan_doubling},
    {Collective::exscan, "chain", scan_chain},
};

}  // namespace

std::optional<Workload> work_of(const Layout& layout, Collective collective, std::string_view algorithm,
                                std::uint64_t bytes, std::uint64_t tile_bytes) {
    TUTTI_ASSERT(layout.size() >= 1);
    // A call in slots does the work of one round of the staging area.
    if (algorithm == in_slots && !traits_of(collective).exchanges())
        algorithm = collective == Collective::all_reduce || collective == Collective::reduce ? "one_shot" : "shared";
    const auto found = std::ranges::find_if(
        formulas, [&](const Formula& f) { return f.collective == collective && f.algorithm == algorithm; });
    if (found == std::end(formulas)) return std::nullopt;
    Shape shape;
    shape.n = layout.size();
    shape.bytes = static_cast<double>(bytes);
    shape.levels = levels_of(shape.n, 2);
    shape.power = static_cast<double>(std::bit_floor(static_cast<unsigned>(layout.size())));
    TUTTI_ASSERT(shape.power <= shape.n && 2 * shape.power > shape.n);
    shape.segment = static_cast<double>(std::max<std::uint64_t>(1, layout.segment_bytes));
    shape.tile = static_cast<double>(std::max<std::uint64_t>(1, tile_bytes));
    shape.slot = static_cast<double>(std::max<std::uint64_t>(1, layout.slot_bytes));
    shape.slots = std::max<std::uint32_t>(1, layout.slots);
    Workload work = found->work(shape);
    work.held += shape.bytes;
    TUTTI_ASSERT(work.held >= shape.bytes);
    // Values to combine go to a piece of scratch first. It matters where the pages come from.
    const bool all_blocks = collective == Collective::scatter || collective == Collective::scatter_v ||
                            collective == Collective::all_to_all;
    work.buffer = traits_of(collective).combines ? 0 : all_blocks ? shape.n * shape.bytes : shape.bytes;
    return work;
}

}  // namespace tutti::algorithm
