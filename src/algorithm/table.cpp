#include "algorithm/table.hpp"

#include "algorithm/scale.hpp"
#include "algorithm/slots.hpp"
#include "schedule/slots.hpp"

#include <algorithm>

namespace tutti::algorithm {
namespace {

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
bool many_hosts(const Context& c) {
    return has_many_hosts(c.layout);
}
void all_reduce_leaders(Builder& b, const Context& c) {
    hosts::all_reduce_leaders(b, c.topology(), c.staging, c.input(), c.output(), c.tile(), c.exchange(), true);
}
bool shares_known_blocks(const Context& c) {
    return c.shares() && c.request.largest_count.has_value();
}
// All ranks reach each other's buffers, if these lie in memory that all map.
bool maps(const Context& c) {
    return c.shares() && c.request.symmetric && !c.request.staged;
}
// The kernel copies from one rank to another.
bool copies_once(const Context& c) {
    return c.shares() && c.layout.pulls;
}
bool reaches(const Context& c) {
    return copies_once(c) && !c.request.staged;
}
bool only_stages_known_blocks(const Context& c) {
    return shares_known_blocks(c) && !c.layout.pulls;
}

// With fewer ranks it would take as many messages.
bool passes_blocks_on(const Context& c) {
    return c.request.even && c.all.size() > 3;
}

template <bool maps>
void broadcast_in_place(Builder& b, const Context& c) {
    in_place::broadcast(b, c.all, c.request.root, c.output(), maps);
}
template <bool maps>
void gather_in_place(Builder& b, const Context& c) {
    in_place::gather(b, c.all, c.request.root, c.request.counts, maps);
}
void shared_broadcast(Builder& b, const Context& c) {
    shared::broadcast(b, c.all, c.staging, c.request.root, c.output());
}
void shared_gather(Builder& b, const Context& c) {
    shared::gather(b, c.all, c.staging, c.request.root, c.request.counts);
}
void shared_all_gather(Builder& b, const Context& c) {
    shared::all_gather(b, c.all, c.staging, {Buffer::input, 0, c.request.counts[static_cast<std::size_t>(c.all.me)]},
                       blocks_of(Buffer::output, c.request.counts));
}
void two_shot_all_reduce(Builder& b, const Context& c) {
    shared::all_reduce_two_shot(b, c.all, c.staging, c.input(), c.output(), true);
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
void direct_all_gather(Builder& b, const Context& c) {
    messages::all_gather_direct(b, c.all, c.request.counts);
}
void direct_scatter(Builder& b, const Context& c) {
    messages::scatter_direct(b, c.all, c.request.root, c.request.counts);
}
void shared_scatter(Builder& b, const Context& c) {
    shared::scatter(b, c.all, c.staging, c.request.root, c.request.counts);
}

// A slot holds the rank's contribution, and blocks are equally long.
bool fits_slot(const Context& c) {
    const Request& q = c.request;
    if (!c.shares() || q.scheduled) return false;
    if (traits_of(q.collective).exchanges() && !(q.even && q.largest_count)) return false;
    if (std::ranges::adjacent_find(q.counts, std::ranges::not_equal_to{}) != q.counts.end()) return false;
    return decisive_count(q) * q.element_bytes <= schedule::longest_in_slot(q.collective, c.layout.size());
}

// Such a call does the work of one round of the staging area, with all of a rank's contribution in it.
template <void (*generate)(Builder&, const Context&)>
void through_slots(Builder& b, const Context& c) {
    Context whole = c;
    whole.staging.slot = std::uint64_t{1} << 40;
    generate(b, whole);
    b.in_slots();
}
void one_shot_all_reduce(Builder& b, const Context& c) {
    shared::all_reduce_one_shot(b, c.all, c.staging, c.input(), c.output(), true);
}
void one_shot_reduce(Builder& b, const Context& c) {
    shared::reduce_one_shot(b, c.all, c.staging, c.request.root, c.input(), c.output(), true);
}
void shared_barrier(Builder& b, const Context& c) {
    shared::barrier(b, c.all);
}
void even_all_to_all(Builder& b, const Context& c) {
    shared::all_to_all_even(b, c.all, c.request);
}
void even_rooted_exchange(Builder& b, const Context& c) {
    shared::rooted_exchange_even(b, c.all, c.request);
}
void rooted_exchange(Builder& b, const Context& c) {
    messages::rooted_exchange(b, c.all, c.request);
}
constexpr std::string_view why_rooted_exchange =
    "only the root knows all lengths, so no other rank could pass blocks on";
constexpr std::string_view why_slots =
    "one host, and a rank's part fits into its slot: each writes its own, and reads the others'";

template <Prefix prefix>
void shared_scan(Builder& b, const Context& c) {
    shared::scan(b, c.all, c.staging, c.input(), c.output(), prefix);
}
template <Prefix prefix>
void direct_scan(Builder& b, const Context& c) {
    messages::scan_direct(b, c.all, c.input(), c.output(), prefix);
}
template <Prefix prefix>
void doubling_scan(Builder& b, const Context& c) {
    messages::scan_recursive_doubling(b, c.all, c.input(), c.output(), prefix);
}
template <Prefix prefix>
void chain_scan(Builder& b, const Context& c) {
    messages::scan_chain(b, c.all, c.input(), c.output(), c.tile(), prefix);
}
constexpr std::string_view why_shared_scan =
    "shared memory: each rank writes once, and reads those before it in one pass";
constexpr std::string_view why_direct_scan = "few bytes, few ranks: each rank sends to all behind it";
constexpr std::string_view why_doubling_scan = "few bytes: log2(n) steps, each twice as far on";
constexpr std::string_view why_chain_scan = "many bytes: segments run down the line of ranks, which combine them";
constexpr std::string_view why_direct_scan_of_any = "one rounding is asked for";

constexpr std::string_view why_circulant = "many hosts: log2 of their number rounds between them";

constexpr std::string_view why_two_legs = "quantised: a value is rounded twice, however many ranks there are";

const Algorithm table[] = {
    {in_slots, Collective::all_reduce, true, true, fits_slot, through_slots<one_shot_all_reduce>, any_size, any_ranks, why_slots},
    {"in_place", Collective::all_reduce, true, true, maps,
     [](Builder& b, const Context& c) {
         in_place::all_reduce(b, c.all, c.input(), c.output(), c.request.in_place);
     },
     any_size, any_ranks,
     "symmetric memory: each rank combines one slice where it lies in all buffers, and writes the result there"},
    {"one_shot", Collective::all_reduce, true, true, shares, one_shot_all_reduce, 8192, any_ranks, "few bytes between ranks that share memory: everyone reads everyone once"},
    {"two_shot", Collective::all_reduce, true, true, shares, two_shot_all_reduce, any_size, any_ranks,
     "shared memory: each rank combines one slice in one pass over all inputs"},
    {"hierarchical", Collective::all_reduce, false, false, hierarchical, all_reduce_leaders, 131072, any_ranks,
     "several ranks on a host, few bytes: only one of them talks to the other hosts"},
    {"rails", Collective::all_reduce, false, false, rails,
     [](Builder& b, const Context& c) {
         hosts::all_reduce_rails(b, c.topology(), c.staging, c.input(), c.output(), c.tile(), true);
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
    {"circulant", Collective::all_reduce, false, false, many_hosts,
     [](Builder& b, const Context& c) {
         if (c.rails())
             hosts::all_reduce_circulant(b, c.topology(), c.staging, c.input(), c.output(), c.segment(), true);
         else
             messages::all_reduce_circulant(b, c.all, c.input(), c.output(), true);
     },
     0, any_ranks, why_circulant},
    {"two_shot_messages", Collective::all_reduce, true, true, always,
     [](Builder& b, const Context& c) { messages::all_reduce_two_shot(b, c.all, c.input(), c.output(), true); },
     any_size, any_ranks, "one rounding, or the order of ranks, is asked for"},
    {"two_legs", Collective::all_reduce, false, true, always, messages::two_legs, any_size, any_ranks, why_two_legs, true},

    {in_slots, Collective::reduce, true, true, fits_slot, through_slots<one_shot_reduce>, any_size, any_ranks, why_slots},
    {"in_place", Collective::reduce, true, true, maps,
     [](Builder& b, const Context& c) {
         in_place::reduce(b, c.all, c.request.root, c.input(), c.output(), c.request.in_place);
     },
     any_size, any_ranks,
     "symmetric memory: each rank combines one slice where it lies in all buffers, and writes it into the root's"},
    {"one_shot", Collective::reduce, true, true, shares, one_shot_reduce, 0, any_ranks, "few ranks that share memory: the root reads everyone once, the others run ahead"},
    {"two_shot", Collective::reduce, true, true, shares, two_shot_reduce, any_size, any_ranks,
     "shared memory: each rank combines one slice, the root collects them"},
    {"hierarchical", Collective::reduce, false, false, hierarchical,
     [](Builder& b, const Context& c) {
         hosts::reduce(b, c.topology(), c.staging, c.input(), c.output(), 2 * c.tile(), true);
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

    {in_slots, Collective::broadcast, true, true, fits_slot, through_slots<shared_broadcast>, any_size, any_ranks, why_slots},
    {"in_place", Collective::broadcast, true, true, maps, broadcast_in_place<true>, any_size, any_ranks, "symmetric memory: the root writes a part into the others' memory, they read the rest from its own"},
    {"shared", Collective::broadcast, true, true, shares, shared_broadcast, 65536, any_ranks,
     "shared memory: the root writes once, everyone reads"},
    {"single_copy", Collective::broadcast, true, true, reaches, broadcast_in_place<false>, any_size, any_ranks, "many bytes: the root writes a part into the others' memory, they read the rest from its own"},
    {"shared", Collective::broadcast, true, true, shares, shared_broadcast, any_size, any_ranks,
     "shared memory: the root writes once, everyone reads"},
    {"hierarchical", Collective::broadcast, true, true, hierarchical,
     [](Builder& b, const Context& c) { hosts::broadcast(b, c.topology(), c.staging, c.output(), 2 * c.tile()); },
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

    {in_slots, Collective::all_gather, true, true, fits_slot, through_slots<shared_all_gather>, any_size, any_ranks, why_slots},
    {"in_place", Collective::all_gather, true, true, maps, [](Builder& b, const Context& c) { in_place::all_gather(b, c.all, c.request.counts); }, any_size, any_ranks, "symmetric memory: everyone reads the blocks where they lie"},
    {"shared", Collective::all_gather, true, true, shares, shared_all_gather, 65536, any_ranks,
     "shared memory: each rank writes its block once, everyone reads"},
    {"direct", Collective::all_gather, true, true, copies_once, direct_all_gather, any_size, any_ranks,
     "many bytes: everyone reads the blocks where they lie in the others' memory"},
    {"shared", Collective::all_gather, true, true, shares, shared_all_gather, any_size, any_ranks,
     "shared memory: each rank writes its block once, everyone reads"},
    {"rails", Collective::all_gather, true, true, rails,
     [](Builder& b, const Context& c) {
         hosts::all_gather_rails(b, c.topology(), c.staging, c.request.counts, c.tile());
     },
     any_size, any_ranks, "as many ranks on each host: a block comes to each host once"},
    {"direct", Collective::all_gather, true, true, always, direct_all_gather, any_size, 8, "few ranks: one exchange"},
    {"bruck", Collective::all_gather, true, true, always,
     [](Builder& b, const Context& c) { messages::all_gather_bruck(b, c.all, c.request.counts); }, 16384, any_ranks,
     "few bytes: log2(n) steps"},
    {"recursive_doubling", Collective::all_gather, true, true, always,
     [](Builder& b, const Context& c) { messages::all_gather_recursive_doubling(b, c.all, c.request.counts); }, 65536,
     any_ranks, "more bytes: log2(n) exchanges without moving blocks at the end"},
    {"ring", Collective::all_gather, true, true, always,
     [](Builder& b, const Context& c) { messages::all_gather_ring(b, c.all, c.request.counts); }, any_size, any_ranks,
     "many bytes: blocks go round"},
    {"circulant", Collective::all_gather, true, true, many_hosts,
     [](Builder& b, const Context& c) {
         if (c.rails())
             hosts::all_gather_circulant(b, c.topology(), c.staging, c.request.counts);
         else
             messages::all_gather_circulant(b, c.all, c.request.counts);
     },
     0, any_ranks, why_circulant},
    {"two_legs", Collective::all_gather, false, true, always, messages::two_legs, any_size, any_ranks, why_two_legs, true},

    {in_slots, Collective::gather, true, true, fits_slot, through_slots<shared_gather>, any_size, any_ranks, why_slots},
    {"in_place", Collective::gather, true, true, maps, gather_in_place<true>, any_size, any_ranks, "symmetric memory: each rank writes most of its block to the root, which reads the rest"},
    {"shared", Collective::gather, true, true, shares, shared_gather, std::uint64_t{4} << 20, any_ranks,
     "shared memory: each rank writes its block once, the root reads"},
    {"single_copy", Collective::gather, true, true, reaches, gather_in_place<false>, any_size, any_ranks, "many bytes: each rank writes most of its block to the root, which reads the rest"},
    {"shared", Collective::gather, true, true, shares, shared_gather, any_size, any_ranks,
     "shared memory: each rank writes its block once, the root reads"},
    {"binomial", Collective::gather, true, true, always,
     [](Builder& b, const Context& c) { messages::gather_tree(b, c.all, 2, c.request.root, c.request.counts); }, 4096,
     any_ranks, "few bytes: a tree of depth log2(n)"},
    {"direct", Collective::gather, true, true, always,
     [](Builder& b, const Context& c) { messages::gather_direct(b, c.all, c.request.root, c.request.counts); },
     any_size, any_ranks, "every block goes straight to the root"},

    {in_slots, Collective::scatter, true, true, fits_slot, through_slots<shared_scatter>, any_size, any_ranks, why_slots},
    {"in_place", Collective::scatter, true, true, maps, [](Builder& b, const Context& c) { in_place::scatter(b, c.all, c.request.root, c.request.counts); }, any_size, any_ranks, "symmetric memory: each rank reads its block where it lies"},
    {"shared", Collective::scatter, true, true, shares, shared_scatter, 65536, any_ranks,
     "shared memory: the root writes once, each rank reads its block"},
    {"direct", Collective::scatter, true, true, copies_once, direct_scatter, any_size, any_ranks,
     "many bytes: each rank reads its block where it lies in the root's memory"},
    {"shared", Collective::scatter, true, true, shares, shared_scatter, any_size, any_ranks,
     "shared memory: the root writes once, each rank reads its block"},
    {"binomial", Collective::scatter, true, true, always,
     [](Builder& b, const Context& c) { messages::scatter_tree(b, c.all, 2, c.request.root, c.request.counts); }, 4096,
     any_ranks, "few bytes: a tree of depth log2(n)"},
    {"direct", Collective::scatter, true, true, always, direct_scatter, any_size, any_ranks,
     "every block goes straight from the root"},

    {in_slots, Collective::reduce_scatter, true, true, fits_slot, through_slots<shared_reduce_scatter>, any_size, any_ranks, why_slots},
    {"in_place", Collective::reduce_scatter, true, true, maps,
     [](Builder& b, const Context& c) { in_place::reduce_scatter(b, c.all, c.request.counts); }, any_size, any_ranks,
     "symmetric memory: each rank combines its block where it lies in all buffers"},
    {"shared", Collective::reduce_scatter, true, true, shares, shared_reduce_scatter, any_size, any_ranks,
     "shared memory: each rank combines its block in one pass over all inputs"},
    {"rails", Collective::reduce_scatter, false, false, rails,
     [](Builder& b,
        const Context& c) { hosts::reduce_scatter_rails(b, c.topology(), c.staging, c.request.counts, c.tile(), true); },
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
    {"circulant", Collective::reduce_scatter, false, false, many_hosts,
     [](Builder& b, const Context& c) {
         if (c.rails())
             hosts::reduce_scatter_circulant(b, c.topology(), c.staging, c.request.counts, true);
         else
             messages::reduce_scatter_circulant(b, c.all, c.request.counts, true);
     },
     0, any_ranks, why_circulant},
    {"direct", Collective::reduce_scatter, true, true, always,
     [](Builder& b, const Context& c) { messages::reduce_scatter_direct(b, c.all, c.request.counts); }, any_size,
     any_ranks, "one rounding, or the order of ranks, is asked for"},
    {"two_legs", Collective::reduce_scatter, false, true, always, messages::two_legs, any_size, any_ranks, why_two_legs, true},

    {in_slots, Collective::all_to_all, true, true, fits_slot, through_slots<even_all_to_all>, any_size, any_ranks, why_slots},
    {"shared", Collective::all_to_all, true, true, shares_known_blocks, shared_all_to_all, 32768, any_ranks,
     "shared memory, blocks that stay in the cache: everyone publishes its blocks, everyone reads its own"},
    {"shared", Collective::all_to_all, true, true, only_stages_known_blocks, shared_all_to_all, 262144, 2,
     "shared memory, two ranks: they take turns with the same places, which stay in the cache"},
    {"bruck", Collective::all_to_all, true, true, passes_blocks_on,
     [](Builder& b, const Context& c) { messages::all_to_all_bruck(b, c.all, c.request); }, 256, any_ranks,
     "few bytes: blocks are passed on, many in a message, in log2(n) steps"},
    {"pairwise", Collective::all_to_all, true, true, always,
     [](Builder& b, const Context& c) {
         // In shared memory a rank copies one long message at a time anyway.
         messages::all_to_all_pairwise(b, c.all, c.request, c.shares() ? any_size : c.segment());
     },
     any_size, any_ranks,
     "every block goes straight to its rank, each rank starting with another"},

    {in_slots, Collective::gather_v, true, true, fits_slot, through_slots<even_rooted_exchange>, any_size, any_ranks, why_slots},
    {"direct", Collective::gather_v, true, true, always, rooted_exchange, any_size, any_ranks, why_rooted_exchange},

    {in_slots, Collective::scatter_v, true, true, fits_slot, through_slots<even_rooted_exchange>, any_size, any_ranks, why_slots},
    {"direct", Collective::scatter_v, true, true, always, rooted_exchange, any_size, any_ranks, why_rooted_exchange},

    {in_slots, Collective::barrier, true, true, fits_slot, through_slots<shared_barrier>, any_size, any_ranks, why_slots},
    {"shared", Collective::barrier, true, true, shares, shared_barrier, any_size, any_ranks, "shared memory: everyone sees everyone arrive"},
    {"hierarchical", Collective::barrier, true, true, hierarchical,
     [](Builder& b, const Context& c) { hosts::barrier(b, c.topology()); }, any_size, any_ranks,
     "several ranks on a host: only one of them talks to the other hosts"},
    {"dissemination", Collective::barrier, true, true, always,
     [](Builder& b, const Context& c) { messages::barrier_dissemination(b, c.all); }, any_size, any_ranks,
     "log2(n) rounds of signals"},

    {in_slots, Collective::scan, true, true, fits_slot, through_slots<shared_scan<Prefix::inclusive>>, any_size, any_ranks, why_slots},
    {"shared", Collective::scan, true, true, shares, shared_scan<Prefix::inclusive>, 65536, any_ranks, why_shared_scan},
    {"direct", Collective::scan, true, true, always, direct_scan<Prefix::inclusive>, 4096, 4, why_direct_scan},
    {"recursive_doubling", Collective::scan, false, false, always, doubling_scan<Prefix::inclusive>, 65536, any_ranks, why_doubling_scan},
    {"chain", Collective::scan, false, true, always, chain_scan<Prefix::inclusive>, any_size, any_ranks, why_chain_scan},
    {"shared", Collective::scan, true, true, shares, shared_scan<Prefix::inclusive>, any_size, any_ranks, why_shared_scan},
    {"direct", Collective::scan, true, true, always, direct_scan<Prefix::inclusive>, any_size, any_ranks, why_direct_scan_of_any},

    {in_slots, Collective::exscan, true, true, fits_slot, through_slots<shared_scan<Prefix::exclusive>>, any_size, any_ranks, why_slots},
    {"shared", Collective::exscan, true, true, shares, shared_scan<Prefix::exclusive>, 65536, any_ranks, why_shared_scan},
    {"direct", Collective::exscan, true, true, always, direct_scan<Prefix::exclusive>, 4096, 4, why_direct_scan},
    {"recursive_doubling", Collective::exscan, false, false, always, doubling_scan<Prefix::exclusive>, 65536, any_ranks, why_doubling_scan},
    {"chain", Collective::exscan, false, true, always, chain_scan<Prefix::exclusive>, any_size, any_ranks, why_chain_scan},
    {"shared", Collective::exscan, true, true, shares, shared_scan<Prefix::exclusive>, any_size, any_ranks, why_shared_scan},
    {"direct", Collective::exscan, true, true, always, direct_scan<Prefix::exclusive>, any_size, any_ranks, why_direct_scan_of_any},
};

}  // namespace

std::uint64_t decisive_count(const Request& request) {
    const CollectiveTraits& traits = traits_of(request.collective);
    if (traits.has_blocks()) return request.counts.empty() ? 0 : *std::ranges::max_element(request.counts);
    if (traits.input == CollectiveTraits::Extent::exchanged) return request.largest_count.value_or(0);
    return traits.input == CollectiveTraits::Extent::whole ? request.count : 0;
}

std::span<const Algorithm> algorithms() {
    return table;
}

}  // namespace tutti::algorithm
