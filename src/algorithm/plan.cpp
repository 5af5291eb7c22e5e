// plan(): the table of algorithms, the rules that choose, and the composition over hosts.
//
// The rules are a table read from top to bottom; the first row whose algorithm can serve the request and whose limits
// hold is taken. TUTTI_ALGORITHM (parsed by parse_override) puts a name before the table.
#include "algorithm/plan.hpp"

#include "algorithm/generators.hpp"
#include "algorithm/select.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
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
    Scope members(const std::function<bool(Rank)>& belongs) const {
        Scope scope;
        scope.me = -1;
        for (const Rank rank : all.ranks) {
            if (!belongs(rank)) continue;
            if (rank == request.rank) scope.me = scope.size();
            scope.ranks.push_back(rank);
        }
        return scope;
    }
    int host(Rank rank) const { return layout.host_of[static_cast<std::size_t>(rank)]; }
    Scope my_host() const {
        return members([&](Rank r) { return host(r) == host(request.rank); });
    }
    /// The root leads its host, else the lowest rank.
    Rank leader(int of_host, Rank root) const {
        if (host(root) == of_host) return root;
        return static_cast<Rank>(std::ranges::find(layout.host_of, of_host) - layout.host_of.begin());
    }
    Scope leaders(Rank root) const {
        return members([&](Rank r) { return leader(host(r), root) == r; });
    }
};

int position(const Scope& scope, Rank rank) {
    return static_cast<int>(std::ranges::find(scope.ranks, rank) - scope.ranks.begin());
}

// Inside the hosts by shared memory, between their leaders by messages, inside again.
void hierarchical(Builder& b, const Context& c) {
    const Request& q = c.request;
    const Rank root = q.collective == Collective::broadcast || q.collective == Collective::reduce ? q.root : 0;
    const Scope host = c.my_host(), leaders = c.leaders(root);
    const int local_root = position(host, c.leader(c.host(q.rank), root));
    const bool leads = host.me == local_root;
    // Hosts with one rank have nothing to share; every rank of a host agrees on that.
    const bool local = host.size() > 1;
    switch (q.collective) {
        case Collective::all_reduce:
        case Collective::reduce: {
            Chunk sum = q.collective == Collective::all_reduce || q.rank == root ? c.output() : Chunk{};
            if (leads && sum.count != q.count) sum = b.scratch(q.count);
            if (local) {
                shared::reduce(b, host, c.staging, local_root, c.input(), leads ? sum : Chunk{}, false);
                b.settle();
            } else {
                b.copy(sum, c.input());
            }
            b.not_single_rounding();
            if (leads) {
                if (q.collective == Collective::all_reduce) {
                    if (q.count * q.element_bytes <= 4096)
                        messages::all_reduce_direct(b, leaders, sum, c.output(), true);
                    else
                        messages::all_reduce_ring(b, leaders, sum, c.output(), c.tile(), true);
                } else {
                    messages::reduce_tree(b, leaders, 2, position(leaders, root), sum,
                                          q.rank == root ? c.output() : sum, true);
                }
            }
            if (local && q.collective == Collective::all_reduce)
                shared::broadcast(b, host, c.staging, local_root, c.output());
            break;
        }
        case Collective::broadcast:
            if (leads) messages::broadcast_tree(b, leaders, 2, position(leaders, root), c.output(), c.segment());
            if (local) shared::broadcast(b, host, c.staging, local_root, c.output());
            break;
        default: break;
    }
}

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

constexpr std::uint64_t any_size = ~std::uint64_t{0};
constexpr int any_ranks = 1 << 30;

bool always(const Context&) {
    return true;
}
bool shares(const Context& c) {
    return c.shares();
}
bool shares_for_both(const Context& c) {
    return c.shares() && c.staging.slots >= Staging::slots_for_both;
}

// Rows of one collective are in order of preference.
const Algorithm table[] = {
    {"one_shot", Collective::all_reduce, true, true, shares,
     [](Builder& b, const Context& c) {
         shared::all_reduce_one_shot(b, c.all, c.staging, c.input(), c.output(), true);
     },
     8192, any_ranks, "few bytes between ranks that share memory: everyone reads everyone once"},
    {"two_shot", Collective::all_reduce, true, true, shares,
     [](Builder& b, const Context& c) {
         shared::all_reduce_two_shot(b, c.all, c.staging, c.input(), c.output(), true);
     },
     any_size, any_ranks, "shared memory: each rank combines one slice in one pass over all inputs"},
    {"hierarchical", Collective::all_reduce, false, false, [](const Context& c) { return c.hierarchical(); },
     hierarchical, any_size, any_ranks, "several ranks on a host: only one of them talks to the other hosts"},
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

    {"two_shot", Collective::reduce, true, true, shares,
     [](Builder& b, const Context& c) {
         shared::reduce(b, c.all, c.staging, c.request.root, c.input(), c.output(), true);
     },
     any_size, any_ranks, "shared memory: each rank combines one slice, the root collects them"},
    {"hierarchical", Collective::reduce, false, false, [](const Context& c) { return c.hierarchical(); }, hierarchical,
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
     [](Builder& b, const Context& c) { shared::broadcast(b, c.all, c.staging, c.request.root, c.output()); },
     std::uint64_t{256} << 10, any_ranks, "shared memory: the root writes once, everyone reads"},
    {"shared_both", Collective::broadcast, true, true, shares_for_both,
     [](Builder& b, const Context& c) { shared::broadcast_both(b, c.all, c.staging, c.request.root, c.output()); },
     any_size, any_ranks,
     "shared memory, many bytes: the root writes a part where there is room, everyone reads the rest"},
    {"hierarchical", Collective::broadcast, true, true, [](const Context& c) { return c.hierarchical(); }, hierarchical,
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

    {"shared", Collective::all_gather, true, true, shares,
     [](Builder& b, const Context& c) { shared::all_gather(b, c.all, c.staging, c.request.counts); }, any_size,
     any_ranks, "shared memory: each rank writes its block once, everyone reads"},
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
     std::uint64_t{128} << 10, any_ranks, "shared memory: each rank writes its block once, the root reads"},
    {"shared_both", Collective::gather, true, true, shares_for_both,
     [](Builder& b, const Context& c) { shared::gather_both(b, c.all, c.staging, c.request.root, c.request.counts); },
     any_size, any_ranks, "shared memory, many bytes: each rank writes its block to the root where there is room"},
    {"binomial", Collective::gather, true, true, always,
     [](Builder& b, const Context& c) { messages::gather_tree(b, c.all, 2, c.request.root, c.request.counts); }, 4096,
     any_ranks, "few bytes: a tree of depth log2(n)"},
    {"direct", Collective::gather, true, true, always,
     [](Builder& b, const Context& c) { messages::gather_direct(b, c.all, c.request.root, c.request.counts); },
     any_size, any_ranks, "every block goes straight to the root"},

    {"shared", Collective::scatter, true, true, shares,
     [](Builder& b, const Context& c) { shared::scatter(b, c.all, c.staging, c.request.root, c.request.counts); },
     any_size, any_ranks, "shared memory: the root writes once, each rank reads its block"},
    {"binomial", Collective::scatter, true, true, always,
     [](Builder& b, const Context& c) { messages::scatter_tree(b, c.all, 2, c.request.root, c.request.counts); }, 4096,
     any_ranks, "few bytes: a tree of depth log2(n)"},
    {"direct", Collective::scatter, true, true, always,
     [](Builder& b, const Context& c) { messages::scatter_direct(b, c.all, c.request.root, c.request.counts); },
     any_size, any_ranks, "every block goes straight from the root"},

    {"shared", Collective::reduce_scatter, true, true, shares,
     [](Builder& b, const Context& c) { shared::reduce_scatter(b, c.all, c.staging, c.request.counts); }, any_size,
     any_ranks, "shared memory: each rank combines its block in one pass over all inputs"},
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

    {"pairwise", Collective::all_to_all, true, true, always,
     [](Builder& b, const Context& c) { messages::all_to_all_pairwise(b, c.all, c.request); }, any_size, any_ranks,
     "every block goes straight to its rank, each rank starting with another"},

    {"shared", Collective::barrier, true, true, shares, [](Builder& b, const Context& c) { shared::barrier(b, c.all); },
     any_size, any_ranks, "shared memory: everyone sees everyone arrive"},
    {"dissemination", Collective::barrier, true, true, always,
     [](Builder& b, const Context& c) { messages::barrier_dissemination(b, c.all); }, any_size, any_ranks,
     "log2(n) rounds of signals"},
};

std::uint64_t decisive_bytes(const Request& q) {
    switch (q.collective) {
        case Collective::all_reduce:
        case Collective::reduce:
        case Collective::broadcast: return q.count * q.element_bytes;
        case Collective::all_to_all:
        case Collective::barrier: return 0;
        default: return q.counts.empty() ? 0 : *std::ranges::max_element(q.counts) * q.element_bytes;
    }
}

bool can_serve(const Algorithm& a, const Context& c) {
    const Request& q = c.request;
    return a.collective == q.collective && a.serves(c) && (!q.single_rounding || a.single_rounding) &&
           (!q.rank_order || a.rank_order);
}

const Algorithm& find(const Context& c, std::string* reason) {
    const Request& q = c.request;
    const std::uint64_t bytes = decisive_bytes(q);
    if (q.algorithm) {
        for (const Algorithm& a : table) {
            if (a.name != *q.algorithm || !can_serve(a, c)) continue;
            if (reason != nullptr) *reason = "it was asked for by name";
            return a;
        }
        throw InvalidArgument(fmt::format("algorithm \"{}\" cannot serve this {}: expected one of {}", *q.algorithm,
                                          to_string(q.collective), fmt::join(applicable(c.layout, q), ", ")));
    }
    for (const Algorithm& a : table) {
        if (!can_serve(a, c) || bytes > a.preferred_bytes || c.layout.size() > a.preferred_ranks) continue;
        if (reason != nullptr) *reason = fmt::format("{} ({} bytes, {} ranks)", a.reason, bytes, c.layout.size());
        return a;
    }
    throw InternalError(fmt::format("no algorithm for {}", to_string(q.collective)));
}

}  // namespace

schedule::Schedule plan(const Layout& layout, const Request& request) {
    const Context context(layout, request);
    const Algorithm& algorithm = find(context, nullptr);
    Builder builder{std::string(algorithm.name)};
    algorithm.generate(builder, context);
    return std::move(builder).finish();
}

Choice choose(const Layout& layout, const Request& request) {
    Choice choice;
    choice.algorithm = find(Context(layout, request), &choice.reason).name;
    return choice;
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

std::optional<std::string> parse_override(std::string_view text, Collective collective) {
    std::optional<std::string> result;
    while (!text.empty()) {
        const std::string_view item = text.substr(0, text.find(','));
        text.remove_prefix(std::min(text.size(), item.size() + 1));
        const std::size_t equal = item.find('=');
        const std::string_view name = equal == std::string_view::npos ? item : item.substr(equal + 1);
        std::vector<std::string_view> known;
        for (const Algorithm& a : table) {
            if (std::ranges::find(known, a.name) == known.end()) known.push_back(a.name);
        }
        if (std::ranges::find(known, name) == known.end()) {
            throw InvalidArgument(fmt::format("TUTTI_ALGORITHM: \"{}\" is no algorithm: expected one of {}", name,
                                              fmt::join(known, ", ")));
        }
        if (equal == std::string_view::npos) {
            // Without a collective, only where it exists.
            const bool exists = std::ranges::any_of(
                table, [&](const Algorithm& a) { return a.name == name && a.collective == collective; });
            if (exists) result = std::string(name);
        } else if (item.substr(0, equal) == to_string(collective)) {
            result = std::string(name);
        }
    }
    return result;
}

std::string describe_table() {
    std::string text =
        fmt::format("{:<15} {:<19} {:>12} {:>7}  {}\n", "collective", "algorithm", "up to bytes", "ranks", "why");
    for (const Algorithm& a : table) {
        text += fmt::format("{:<15} {:<19} {:>12} {:>7}  {}\n", to_string(a.collective), a.name,
                            a.preferred_bytes == any_size ? "any" : std::to_string(a.preferred_bytes),
                            a.preferred_ranks == any_ranks ? "any" : std::to_string(a.preferred_ranks), a.reason);
    }
    return text;
}

}  // namespace tutti::algorithm
