// plan(): the table of algorithms, the rules that choose, and the composition over hosts.
//
// The table is read from top to bottom: the first row whose algorithm can serve the request and whose limits hold is
// taken. Before it come a name (Request::algorithm), the rules of Tuning, and, where the machine has been measured, the
// formulas of cost.hpp.
#include "algorithm/plan.hpp"

#include "algorithm/cost.hpp"
#include "algorithm/generators.hpp"
#include "algorithm/select.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

namespace tutti::algorithm {
namespace {

struct Context {
    const Layout& layout;
    const Request& request;
    Scope all;
    Staging staging;

    Context(const Layout& l, const Request& q) : layout(l), request(q) {
        all.ranks.resize(static_cast<std::size_t>(l.size()));
        std::iota(all.ranks.begin(), all.ranks.end(), 0);
        all.me = q.rank;
        staging = {l.slot_bytes / std::max<std::uint64_t>(1, q.element_bytes), l.slots};
    }
    bool one_host() const {
        return std::ranges::all_of(layout.host_of, [&](int h) { return h == layout.host_of.front(); });
    }
    bool shares() const { return layout.shared_memory && one_host() && staging.slot >= 1; }
    std::uint64_t segment() const {
        return std::max<std::uint64_t>(1, layout.segment_bytes / std::max<std::uint64_t>(1, request.element_bytes));
    }
    /// A slice of the ring: two of the kernel's packets of 64 KB, with room for their headers. What is under way then
    /// stays in the cache, and no message ends in a packet of a few bytes.
    std::uint64_t tile() const {
        return std::min<std::uint64_t>(
            segment(),
            std::max<std::uint64_t>(1, (std::uint64_t{126} << 10) / std::max<std::uint64_t>(1, request.element_bytes)));
    }
    Chunk output() const { return {Buffer::output, 0, request.count}; }
    Chunk input() const { return {request.in_place ? Buffer::output : Buffer::input, 0, request.count}; }
    /// Several ranks share memory on at least one of several hosts.
    bool hierarchical() const {
        if (!layout.shared_memory || one_host() || staging.slot < 1) return false;
        std::vector<int> hosts = layout.host_of;
        std::ranges::sort(hosts);
        return std::ranges::adjacent_find(hosts) != hosts.end();
    }
    Spread spread() const {
        const bool rooted = request.collective == Collective::broadcast || request.collective == Collective::reduce;
        return {layout.host_of, request.rank, rooted ? request.root : 0};
    }
    /// Few enough bytes for leaders to send each other everything.
    bool exchange() const {
        return request.count <= staging.slot && request.count * request.element_bytes * spread().hosts.size() <= 65536;
    }
    bool rails() const { return hierarchical() && spread().even; }
};

struct Algorithm {
    std::string_view name;
    Collective collective;
    bool single_rounding;  ///< each element comes out of one combining step
    bool rank_order;       ///< combined in the order of ranks
    bool (*serves)(const Context&);
    void (*generate)(Builder&, const Context&);
    std::uint64_t preferred_bytes;  ///< chosen up to this size (of count, or of the largest block), 0: never by size
    int preferred_ranks;            ///< and up to this many ranks
    std::string_view reason;
};

bool always(const Context&) {
    return true;
}
bool shares(const Context& c) {
    return c.shares();
}
bool hierarchical(const Context& c) {
    return c.hierarchical();
}
bool rails(const Context& c) {
    return c.rails();
}
void all_reduce_leaders(Builder& b, const Context& c) {
    hosts::all_reduce_leaders(b, c.spread(), c.staging, c.input(), c.output(), c.tile(), c.exchange(), true);
}
bool shares_known_blocks(const Context& c) {
    return c.shares() && c.request.largest_count.has_value();
}
bool shares_for_both(const Context& c) {
    return c.shares() && c.staging.slots >= Staging::slots_for_both;
}

// The kernel copies from one rank to another.
bool copies_once(const Context& c) {
    return c.shares() && c.layout.pulls;
}
bool copies_once_for_both(const Context& c) {
    return shares_for_both(c) && c.layout.pulls;
}

bool pair_copies_once(const Context& c) {
    return copies_once(c) && c.all.size() == 2;
}
bool only_stages_known_blocks(const Context& c) {
    return shares_known_blocks(c) && !c.layout.pulls;
}
bool pair_copies_known_blocks_once(const Context& c) {
    return pair_copies_once(c) && c.request.largest_count.has_value();
}

// What is staged, or published by address.
template <void (*generate)(Builder&, const Context&)>
void by_address(Builder& b, const Context& c) {
    generate(b, c);
    b.name_by_address();
}
void broadcast_both(Builder& b, const Context& c) {
    shared::broadcast_both(b, c.all, c.staging, c.request.root, c.output());
}
void broadcast_either_way(Builder& b, const Context& c) {
    by_address<broadcast_both>(b, c);
    b.either_way(c.request.collective, c.request.count, c.request.root);
}
void shared_all_gather(Builder& b, const Context& c) {
    shared::all_gather(b, c.all, c.staging, {Buffer::input, 0, c.request.counts[static_cast<std::size_t>(c.all.me)]},
                       blocks_of(Buffer::output, c.request.counts));
}
void all_gather_either_way(Builder& b, const Context& c) {
    by_address<shared_all_gather>(b, c);
    b.either_way(c.request.collective, *std::ranges::max_element(c.request.counts), schedule::everyone);
}
void gather_split(Builder& b, const Context& c) {
    shared::gather_split(b, c.all, c.staging, c.request.root, c.request.counts);
}
void gather_both(Builder& b, const Context& c) {
    shared::gather_both(b, c.all, c.staging, c.request.root, c.request.counts);
}
void two_shot_all_reduce(Builder& b, const Context& c) {
    shared::all_reduce_two_shot(b, c.all, c.staging, c.input(), c.output(), true);
}
void all_reduce_either_way(Builder& b, const Context& c) {
    by_address<two_shot_all_reduce>(b, c);
    b.either_way(c.request.collective, c.request.count, schedule::everyone);
}
void two_shot_reduce(Builder& b, const Context& c) {
    const bool is_root = c.request.rank == c.request.root;
    const Chunk target = is_root ? c.output() : b.scratch(shared::reduce_work(c.all, c.staging));
    shared::reduce(b, c.all, c.staging, c.request.root, c.input(), target, true);
}
void shared_reduce_scatter(Builder& b, const Context& c) {
    shared::reduce_scatter(b, c.all, c.staging, blocks_of(Buffer::input, c.request.counts),
                           {Buffer::output, 0, c.request.counts[static_cast<std::size_t>(c.all.me)]}, true);
}
void shared_all_to_all(Builder& b, const Context& c) {
    shared::all_to_all(b, c.all, c.staging, c.request);
}
void reduce_scatter_either_way(Builder& b, const Context& c) {
    by_address<shared_reduce_scatter>(b, c);
    b.either_way(c.request.collective, *std::ranges::max_element(c.request.counts), schedule::everyone);
}
void all_to_all_either_way(Builder& b, const Context& c) {
    by_address<shared_all_to_all>(b, c);
    b.either_way(c.request.collective, *c.request.largest_count, schedule::everyone);
}
void shared_scatter(Builder& b, const Context& c) {
    shared::scatter(b, c.all, c.staging, c.request.root, c.request.counts);
}
void scatter_either_way(Builder& b, const Context& c) {
    by_address<shared_scatter>(b, c);
    b.either_way(c.request.collective, *std::ranges::max_element(c.request.counts), c.request.root);
}

// Rows of one collective are in order of preference.
const Algorithm table[] = {
    {"one_shot", Collective::all_reduce, true, true, shares,
     [](Builder& b, const Context& c) {
         shared::all_reduce_one_shot(b, c.all, c.staging, c.input(), c.output(), true);
     },
     8192, any_ranks, "few bytes between ranks that share memory: everyone reads everyone once"},
    {"single_copy", Collective::all_reduce, true, true, copies_once, by_address<two_shot_all_reduce>, 0, any_ranks,
     "many bytes: each rank combines one slice where it lies in the others' memory, and writes the result there"},
    {"adaptive", Collective::all_reduce, true, true, pair_copies_once, all_reduce_either_way, 0, 2,
     "two ranks, many bytes: as single_copy or as two_shot, whichever took less lately"},
    {"two_shot", Collective::all_reduce, true, true, shares, two_shot_all_reduce, any_size, any_ranks,
     "shared memory: each rank combines one slice in one pass over all inputs"},
    {"hierarchical", Collective::all_reduce, false, false, hierarchical, all_reduce_leaders, 131072, any_ranks,
     "several ranks on a host, few bytes: only one of them talks to the other hosts"},
    {"rails", Collective::all_reduce, false, false, rails,
     [](Builder& b, const Context& c) {
         hosts::all_reduce_rails(b, c.spread(), c.staging, c.input(), c.output(), c.tile(), true);
     },
     any_size, any_ranks, "as many ranks on each host: each talks to its counterparts, with a slice of its own"},
    {"hierarchical", Collective::all_reduce, false, false, hierarchical, all_reduce_leaders, any_size, any_ranks,
     "several ranks on a host: only one of them talks to the other hosts"},
    {"direct", Collective::all_reduce, true, true, always,
     [](Builder& b, const Context& c) { messages::all_reduce_direct(b, c.all, c.input(), c.output(), true); }, 16384, 8,
     "few bytes, few ranks: one exchange"},
    {"recursive_doubling", Collective::all_reduce, false, false, always,
     [](Builder& b, const Context& c) {
         messages::all_reduce_recursive_doubling(b, c.all, c.input(), c.output(), true);
     },
     16384, any_ranks, "few bytes: log2(n) exchanges"},
    {"recursive_halving", Collective::all_reduce, false, false, always,
     [](Builder& b, const Context& c) {
         messages::all_reduce_recursive_halving(b, c.all, c.input(), c.output(), true);
     },
     262144, any_ranks, "more bytes: 2 log2(n) exchanges of ever smaller parts"},
    {"ring", Collective::all_reduce, false, false, always,
     [](Builder& b, const Context& c) { messages::all_reduce_ring(b, c.all, c.input(), c.output(), c.tile(), true); },
     any_size, any_ranks, "many bytes: every link carries 2(n-1)/n of them"},
    {"two_shot_messages", Collective::all_reduce, true, true, always,
     [](Builder& b, const Context& c) { messages::all_reduce_two_shot(b, c.all, c.input(), c.output(), true); },
     any_size, any_ranks, "one rounding, or the order of ranks, is asked for"},

    {"one_shot", Collective::reduce, true, true, shares,
     [](Builder& b, const Context& c) {
         shared::reduce_one_shot(b, c.all, c.staging, c.request.root, c.input(), c.output(), true);
     },
     0, any_ranks, "few ranks that share memory: the root reads everyone once, the others run ahead"},
    {"single_copy", Collective::reduce, true, true, copies_once, by_address<two_shot_reduce>, 0, any_ranks,
     "many bytes: each rank combines one slice where it lies in the others' memory, and writes it into the root's"},
    {"two_shot", Collective::reduce, true, true, shares, two_shot_reduce, any_size, any_ranks,
     "shared memory: each rank combines one slice, the root collects them"},
    {"hierarchical", Collective::reduce, false, false, hierarchical,
     [](Builder& b, const Context& c) {
         hosts::reduce(b, c.spread(), c.staging, c.input(), c.output(), 2 * c.tile(), true);
     },
     any_size, any_ranks, "several ranks on a host: only one of them talks to the other hosts"},
    {"knomial", Collective::reduce, false, false, always,
     [](Builder& b, const Context& c) {
         messages::reduce_tree(b, c.all, 4, c.request.root, c.input(), c.output(), true);
     },
     8192, any_ranks, "few bytes: a tree of radix 4, of depth log4(n)"},
    {"binomial", Collective::reduce, false, false, always,
     [](Builder& b, const Context& c) {
         messages::reduce_tree(b, c.all, 2, c.request.root, c.input(), c.output(), true);
     },
     any_size, any_ranks, "a tree of depth log2(n)"},
    {"direct", Collective::reduce, true, true, always,
     [](Builder& b, const Context& c) {
         messages::reduce_direct(b, c.all, c.request.root, c.input(), c.output(), true);
     },
     any_size, any_ranks, "one rounding, or the order of ranks, is asked for"},

    {"shared", Collective::broadcast, true, true, shares,
     [](Builder& b, const Context& c) { shared::broadcast(b, c.all, c.staging, c.request.root, c.output()); }, 65536,
     any_ranks, "shared memory: the root writes once, everyone reads"},
    {"adaptive", Collective::broadcast, true, true, copies_once_for_both, broadcast_either_way, 0, any_ranks,
     "many bytes: as single_copy or as shared_both, whichever took less lately"},
    {"single_copy", Collective::broadcast, true, true, copies_once_for_both, by_address<broadcast_both>, any_size,
     any_ranks, "many bytes: the root writes a part into the others' memory, they read the rest from its own"},
    {"shared_both", Collective::broadcast, true, true, shares_for_both, broadcast_both, any_size, any_ranks,
     "shared memory, many bytes: the root writes a part where there is room, everyone reads the rest"},
    {"hierarchical", Collective::broadcast, true, true, hierarchical,
     [](Builder& b, const Context& c) { hosts::broadcast(b, c.spread(), c.staging, c.output(), 2 * c.tile()); },
     any_size, any_ranks, "several ranks on a host: only one of them talks to the other hosts"},
    {"knomial", Collective::broadcast, true, true, always,
     [](Builder& b, const Context& c) {
         messages::broadcast_tree(b, c.all, 4, c.request.root, c.output(), c.segment());
     },
     8192, any_ranks, "few bytes: a tree of radix 4, of depth log4(n)"},
    {"binomial", Collective::broadcast, true, true, always,
     [](Builder& b, const Context& c) {
         messages::broadcast_tree(b, c.all, 2, c.request.root, c.output(), c.segment());
     },
     std::uint64_t{4} << 20, any_ranks, "a tree of depth log2(n)"},
    {"chain", Collective::broadcast, true, true, always,
     [](Builder& b, const Context& c) { messages::broadcast_chain(b, c.all, c.request.root, c.output(), c.segment()); },
     any_size, any_ranks, "many bytes: segments run down a line of ranks"},

    {"shared", Collective::all_gather, true, true, shares, shared_all_gather, 65536, any_ranks,
     "shared memory: each rank writes its block once, everyone reads"},
    {"adaptive", Collective::all_gather, true, true, copies_once, all_gather_either_way, 0, any_ranks,
     "many bytes: as single_copy or as shared, whichever took less lately"},
    {"single_copy", Collective::all_gather, true, true, copies_once, by_address<shared_all_gather>, any_size, any_ranks,
     "many bytes: everyone reads the blocks where they lie in the others' memory"},
    {"shared", Collective::all_gather, true, true, shares, shared_all_gather, any_size, any_ranks,
     "shared memory: each rank writes its block once, everyone reads"},
    {"rails", Collective::all_gather, true, true, rails,
     [](Builder& b, const Context& c) {
         hosts::all_gather_rails(b, c.spread(), c.staging, c.request.counts, c.tile());
     },
     any_size, any_ranks, "as many ranks on each host: a block comes to each host once"},
    {"direct", Collective::all_gather, true, true, always,
     [](Builder& b, const Context& c) { messages::all_gather_direct(b, c.all, c.request.counts); }, any_size, 8,
     "few ranks: one exchange"},
    {"bruck", Collective::all_gather, true, true, always,
     [](Builder& b, const Context& c) { messages::all_gather_bruck(b, c.all, c.request.counts); }, 16384, any_ranks,
     "few bytes: log2(n) steps"},
    {"recursive_doubling", Collective::all_gather, true, true, always,
     [](Builder& b, const Context& c) { messages::all_gather_recursive_doubling(b, c.all, c.request.counts); }, 65536,
     any_ranks, "more bytes: log2(n) exchanges without moving blocks at the end"},
    {"ring", Collective::all_gather, true, true, always,
     [](Builder& b, const Context& c) { messages::all_gather_ring(b, c.all, c.request.counts); }, any_size, any_ranks,
     "many bytes: blocks go round"},

    {"shared", Collective::gather, true, true, shares,
     [](Builder& b, const Context& c) { shared::gather(b, c.all, c.staging, c.request.root, c.request.counts); },
     std::uint64_t{4} << 20, any_ranks, "shared memory: each rank writes its block once, the root reads"},
    {"single_copy", Collective::gather, true, true, copies_once_for_both, by_address<gather_split>, any_size, any_ranks,
     "many bytes: each rank writes most of its block to the root, which reads the rest"},
    {"shared_both", Collective::gather, true, true, shares_for_both, gather_both, any_size, any_ranks,
     "shared memory, many bytes: each rank writes its block to the root where there is room"},
    {"binomial", Collective::gather, true, true, always,
     [](Builder& b, const Context& c) { messages::gather_tree(b, c.all, 2, c.request.root, c.request.counts); }, 4096,
     any_ranks, "few bytes: a tree of depth log2(n)"},
    {"direct", Collective::gather, true, true, always,
     [](Builder& b, const Context& c) { messages::gather_direct(b, c.all, c.request.root, c.request.counts); },
     any_size, any_ranks, "every block goes straight to the root"},

    {"shared", Collective::scatter, true, true, shares, shared_scatter, 65536, any_ranks,
     "shared memory: the root writes once, each rank reads its block"},
    {"adaptive", Collective::scatter, true, true, copies_once, scatter_either_way, 0, any_ranks,
     "many bytes: as single_copy or as shared, whichever took less lately"},
    {"single_copy", Collective::scatter, true, true, copies_once, by_address<shared_scatter>, any_size, any_ranks,
     "many bytes: each rank reads its block where it lies in the root's memory"},
    {"shared", Collective::scatter, true, true, shares, shared_scatter, any_size, any_ranks,
     "shared memory: the root writes once, each rank reads its block"},
    {"binomial", Collective::scatter, true, true, always,
     [](Builder& b, const Context& c) { messages::scatter_tree(b, c.all, 2, c.request.root, c.request.counts); }, 4096,
     any_ranks, "few bytes: a tree of depth log2(n)"},
    {"direct", Collective::scatter, true, true, always,
     [](Builder& b, const Context& c) { messages::scatter_direct(b, c.all, c.request.root, c.request.counts); },
     any_size, any_ranks, "every block goes straight from the root"},

    {"adaptive", Collective::reduce_scatter, true, true, pair_copies_once, reduce_scatter_either_way, 0, 2,
     "two ranks, many bytes: as single_copy or as shared, whichever took less lately"},
    {"single_copy", Collective::reduce_scatter, true, true, copies_once, by_address<shared_reduce_scatter>, 0,
     any_ranks, "many bytes: each rank combines its block where it lies in the others' memory"},
    {"shared", Collective::reduce_scatter, true, true, shares, shared_reduce_scatter, any_size, any_ranks,
     "shared memory: each rank combines its block in one pass over all inputs"},
    {"rails", Collective::reduce_scatter, false, false, rails,
     [](Builder& b,
        const Context& c) { hosts::reduce_scatter_rails(b, c.spread(), c.staging, c.request.counts, c.tile(), true); },
     any_size, any_ranks, "as many ranks on each host: what is combined inside leaves each host once"},
    {"direct", Collective::reduce_scatter, true, true, always,
     [](Builder& b, const Context& c) { messages::reduce_scatter_direct(b, c.all, c.request.counts); }, any_size, 8,
     "few ranks: one exchange, one pass over all inputs"},
    {"recursive_halving", Collective::reduce_scatter, false, false, always,
     [](Builder& b, const Context& c) { messages::reduce_scatter_recursive_halving(b, c.all, c.request.counts, true); },
     65536, any_ranks, "many ranks, few bytes: log2(n) exchanges of ever smaller parts"},
    {"ring", Collective::reduce_scatter, false, false, always,
     [](Builder& b, const Context& c) { messages::reduce_scatter_ring(b, c.all, c.request.counts); }, any_size,
     any_ranks, "many ranks: partial results go round"},
    {"direct", Collective::reduce_scatter, true, true, always,
     [](Builder& b, const Context& c) { messages::reduce_scatter_direct(b, c.all, c.request.counts); }, any_size,
     any_ranks, "one rounding, or the order of ranks, is asked for"},

    {"shared", Collective::all_to_all, true, true, shares_known_blocks, shared_all_to_all, 32768, any_ranks,
     "shared memory, blocks that stay in the cache: everyone publishes its blocks, everyone reads its own"},
    {"adaptive", Collective::all_to_all, true, true, pair_copies_known_blocks_once, all_to_all_either_way, 131072, 2,
     "two ranks: blocks are read where they lie in the other's memory, or as shared, whichever took less lately"},
    {"shared", Collective::all_to_all, true, true, only_stages_known_blocks, shared_all_to_all, 262144, 2,
     "shared memory, two ranks: they take turns with the same places, which stay in the cache"},
    {"pairwise", Collective::all_to_all, true, true, always,
     [](Builder& b, const Context& c) { messages::all_to_all_pairwise(b, c.all, c.request); }, any_size, any_ranks,
     "every block goes straight to its rank, each rank starting with another"},

    {"shared", Collective::barrier, true, true, shares, [](Builder& b, const Context& c) { shared::barrier(b, c.all); },
     any_size, any_ranks, "shared memory: everyone sees everyone arrive"},
    {"hierarchical", Collective::barrier, true, true, hierarchical,
     [](Builder& b, const Context& c) { hosts::barrier(b, c.spread()); }, any_size, any_ranks,
     "several ranks on a host: only one of them talks to the other hosts"},
    {"dissemination", Collective::barrier, true, true, always,
     [](Builder& b, const Context& c) { messages::barrier_dissemination(b, c.all); }, any_size, any_ranks,
     "log2(n) rounds of signals"},
};

std::uint64_t decisive_bytes(const Request& q) {
    switch (q.collective) {
        case Collective::all_reduce:
        case Collective::reduce:
        case Collective::broadcast: return q.count * q.element_bytes;
        case Collective::all_to_all: return q.largest_count.value_or(0) * q.element_bytes;
        case Collective::barrier: return 0;
        default: return q.counts.empty() ? 0 : *std::ranges::max_element(q.counts) * q.element_bytes;
    }
}

bool can_serve(const Algorithm& a, const Context& c) {
    const Request& q = c.request;
    return a.collective == q.collective && a.serves(c) && (!q.single_rounding || a.single_rounding) &&
           (!q.rank_order || a.rank_order);
}

std::string sized(const Context& c) {
    return fmt::format("{} bytes, {} ranks", decisive_bytes(c.request), c.layout.size());
}

/// A row, and why.
struct Found {
    const Algorithm* row = nullptr;
    std::string reason;
};

Found by_name(const Context& c) {
    for (const Algorithm& a : table) {
        if (a.name == *c.request.algorithm && can_serve(a, c)) return {&a, "it was asked for by name"};
    }
    throw InvalidArgument(fmt::format("algorithm \"{}\" cannot serve this {}: expected one of {}", *c.request.algorithm,
                                      to_string(c.request.collective),
                                      fmt::join(applicable(c.layout, c.request), ", ")));
}

Found by_rule(const Context& c) {
    const std::uint64_t bytes = decisive_bytes(c.request);
    for (const Rule& rule : c.layout.tuning.rules) {
        if (rule.collective != c.request.collective || bytes > rule.up_to_bytes || c.layout.size() > rule.up_to_ranks)
            continue;
        for (const Algorithm& a : table) {
            if (a.name == rule.algorithm && can_serve(a, c))
                return {&a, fmt::format("TUTTI_TUNE says so ({})", sized(c))};
        }
    }
    return {};
}

Found by_limits(const Context& c) {
    const std::uint64_t bytes = decisive_bytes(c.request);
    for (const Algorithm& a : table) {
        if (can_serve(a, c) && bytes <= a.preferred_bytes && c.layout.size() <= a.preferred_ranks)
            return {&a, fmt::format("{} ({})", a.reason, sized(c))};
    }
    throw InternalError(fmt::format("no algorithm for {}", to_string(c.request.collective)));
}

// By formula. The limits' choice stays where it has no formula.
Found by_cost(const Context& c, const CostModel& costs, const Found& usual) {
    const auto price = [&](const Algorithm& a) {
        return predicted_us(c.layout, a.collective, a.name, decisive_bytes(c.request),
                            c.tile() * c.request.element_bytes, costs);
    };
    const auto usual_us = price(*usual.row);
    if (!usual_us) return usual;
    const Algorithm* best = usual.row;
    double best_us = *usual_us;
    for (const Algorithm& a : table) {
        if (!can_serve(a, c)) continue;
        if (const auto us = price(a); us && *us < best_us) {
            best = &a;
            best_us = *us;
        }
    }
    if (best == usual.row) return usual;
    return {best, fmt::format("{:.1f} us by the numbers of this machine, against {:.1f} us of {} ({})", best_us,
                              *usual_us, usual.row->name, sized(c))};
}

Found find(const Context& c) {
    if (c.request.algorithm) return by_name(c);
    if (Found found = by_rule(c); found.row != nullptr) return found;
    Found usual = by_limits(c);
    return c.layout.tuning.costs && !c.request.symmetric ? by_cost(c, *c.layout.tuning.costs, usual) : usual;
}

}  // namespace

schedule::Schedule plan(const Layout& layout, const Request& request) {
    const Context context(layout, request);
    const Algorithm& algorithm = *find(context).row;
    Builder builder{std::string(algorithm.name)};
    algorithm.generate(builder, context);
    schedule::Schedule schedule = std::move(builder).finish();
    // Messages between hosts come between the phases, and may change what near ranks would still read in place.
    if (!context.one_host()) std::ranges::fill(schedule.published_end, 0);
    return schedule;
}

Choice choose(const Layout& layout, const Request& request) {
    const Found found = find(Context(layout, request));
    return {std::string(found.row->name), found.reason};
}

std::vector<Estimate> estimates(const Layout& layout, const Request& request, const CostModel& costs) {
    const Context context(layout, request);
    std::vector<Estimate> result;
    for (const std::string& name : applicable(layout, request)) {
        result.push_back({name, predicted_us(layout, request.collective, name, decisive_bytes(request),
                                             context.tile() * request.element_bytes, costs)});
    }
    return result;
}

std::vector<std::string> applicable(const Layout& layout, const Request& request) {
    const Context context(layout, request);
    std::vector<std::string> names;
    for (const Algorithm& a : table) {
        if (!can_serve(a, context) || std::ranges::find(names, a.name) != names.end()) continue;
        names.emplace_back(a.name);
    }
    return names;
}

std::vector<std::string> algorithm_names(std::optional<Collective> collective) {
    std::vector<std::string> names;
    for (const Algorithm& a : table) {
        if (collective && a.collective != *collective) continue;
        if (std::ranges::find(names, a.name) == names.end()) names.emplace_back(a.name);
    }
    return names;
}

std::string describe_table(const std::vector<Rule>& rules) {
    std::string text = table_line("collective", "algorithm", "up to bytes", "ranks", "why");
    const auto add = [&](Collective collective, std::string_view name, std::uint64_t bytes, int ranks,
                         std::string_view why) {
        text += table_line(to_string(collective), name, bytes == any_size ? "any" : std::to_string(bytes),
                           ranks == any_ranks ? "any" : std::to_string(ranks), why);
    };
    for (const Rule& r : rules) add(r.collective, r.algorithm, r.up_to_bytes, r.up_to_ranks, "TUTTI_TUNE says so");
    for (const Algorithm& a : table) add(a.collective, a.name, a.preferred_bytes, a.preferred_ranks, a.reason);
    return text;
}

}  // namespace tutti::algorithm
