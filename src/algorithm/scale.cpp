#include "algorithm/scale.hpp"

#include "algorithm/cost.hpp"
#include "core/assert.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace tutti::algorithm {
namespace at_scale {
namespace {

// The variables of the formulas. Times in microseconds, or microseconds a byte.
struct Shape {
    double n = 1, hosts = 1, per_host = 1;   // ranks; hosts; the most ranks of a host
    double bytes = 0;                        // of the buffer, or of the largest block
    double tile = 1, segment = 1;            // of a ring's slices, of long messages
    double message = 0, call = 0, near = 0;  // a short message one way; the cores' part of it; one inside a host
    double send = 0, receive = 0;            // the two parts of `call`
    double stream = 0, card = 0;             // a byte of a message: its core's, and its host's card's
    double copy = 0, sum = 0, cross = 0;     // a byte copied, combined, or read from another core's cache
    double signal = 0;
    bool even = false;               // rails
    const Layout* inside = nullptr;  // the ranks of one host
    const CostModel* costs = nullptr;

    double inside_us(Collective collective, std::string_view algorithm, double block) const {
        if (per_host < 2) return 0;
        return predicted_us(*inside, collective, algorithm, static_cast<std::uint64_t>(block),
                            static_cast<std::uint64_t>(tile), *costs)
            .value();
    }
    // A byte between hosts where `ranks` of each host send at once.
    // A core sends its bytes and receives those of others.
    double byte_us(double ranks) const { return std::max(2 * stream, ranks * card); }
    // Messages to and from `others` ranks at once: the first is on its way while the core sends the others.
    double direct_us(double others, double message_bytes, double beside) const {
        const double latency = message - call;
        return others * (call + message_bytes * byte_us(beside)) + std::max(0.0, latency - (others - 1) * call / 2) +
               announced(message_bytes);
    }
    double levels(double of) const { return std::ceil(std::log2(of)); }
    // Of a long message, which is announced and waits for its receive.
    double announced(double message_bytes) const {
        return message_bytes > longest_eager_bytes(message - call) ? 2 * message : 0;
    }
};

using Formula = double (*)(const Shape&);

// Rounds of a power of two of ranks, lower distances inside a host. Ranks beyond it fold.
struct Doubling {
    double far = 0, near = 0, folded = 0;
    explicit Doubling(const Shape& s) {
        const double all = std::floor(std::log2(s.n));
        near = std::floor(std::log2(s.per_host));
        far = all - near;
        folded = std::exp2(all) < s.n ? 2 : 0;
    }
};

// An all_reduce of `bytes` round `ranks` ranks, on each host of which `beside` do the same.
double ring_us(const Shape& s, double ranks, double bytes, double beside) {
    const double slice = bytes / ranks, steps = 2 * (ranks - 1);
    return steps * (s.message + s.announced(std::min(slice, s.tile)) + slice * (s.byte_us(beside) + s.sum / 2));
}

double circulant_us(const Shape& s, double ranks, double bytes, double beside) {
    const double rounds = s.levels(ranks), moved = bytes * (ranks - 1) / ranks;
    return rounds * s.message + s.announced(bytes / 2) + moved * s.byte_us(beside) + bytes * s.copy;
}

double all_reduce_inside(const Shape& s) {
    return s.inside_us(Collective::reduce_scatter, "shared", s.bytes / s.per_host) +
           s.inside_us(Collective::all_gather, "shared", s.bytes / s.per_host);
}

double all_reduce_hierarchical(const Shape& s) {
    const double inside =
        s.inside_us(Collective::reduce, "two_shot", s.bytes) + s.inside_us(Collective::broadcast, "shared", s.bytes);
    if (s.bytes * s.hosts <= 65536) {  // Context::exchange()
        const double others = s.hosts - 1;
        return inside + s.direct_us(others, s.bytes, 1) + others * s.bytes * s.sum;
    }
    return inside + ring_us(s, s.hosts, s.bytes, 1);
}
double all_reduce_rails(const Shape& s) {
    return all_reduce_inside(s) + ring_us(s, s.hosts, s.bytes / s.per_host, s.per_host);
}
double all_reduce_circulant(const Shape& s) {
    if (!s.even) return 2 * circulant_us(s, s.n, s.bytes, s.per_host) + s.bytes * s.sum;
    const double slice = s.bytes / s.per_host;
    const double between = 2 * circulant_us(s, s.hosts, slice, s.per_host) + slice * s.sum,
                 inside = all_reduce_inside(s);
    const double blocks = std::max(1.0, std::round(slice / s.segment));
    return std::max(between, inside) + std::min(between, inside) / blocks;
}
double all_reduce_doubling(const Shape& s) {
    const Doubling d(s);
    return (d.far + d.folded / 2) * (s.message + s.announced(s.bytes) + s.bytes * s.byte_us(s.per_host)) +
           (d.near + d.folded / 2) * (s.near + s.bytes * (2 * s.copy + s.cross)) +
           (d.far + d.near + d.folded / 2) * s.bytes * s.sum;
}
double all_reduce_halving(const Shape& s) {
    const Doubling d(s);
    return (2 * d.far + d.folded / 2) * s.message + (2 * d.near + d.folded / 2) * s.near +
           2 * s.announced(s.bytes / 2) + 2 * s.bytes * (s.byte_us(s.per_host) + s.sum / 2) +
           d.folded * s.bytes * (2 * s.copy + s.cross);
}
double all_reduce_ring(const Shape& s) {
    return ring_us(s, s.n, s.bytes, 1);
}
double all_reduce_direct(const Shape& s) {
    const double others = s.n - 1;
    return s.direct_us(others, s.bytes, s.per_host) + others * s.bytes * s.sum;
}

// Blocks of `s.bytes` bytes from here on. All blocks of a rail come to each rank of it, and go round inside the host.
double gather_inside(const Shape& s) {
    return s.inside_us(Collective::all_gather, "shared", s.bytes * s.hosts) + (s.hosts - 1) * s.signal;
}
double gather_rails(const Shape& s) {
    const double others = s.hosts - 1;
    return s.direct_us(others, s.bytes, s.per_host) + gather_inside(s);
}
double gather_circulant(const Shape& s) {
    if (!s.even) return circulant_us(s, s.n, s.bytes * s.n, s.per_host) + s.bytes * s.n * s.copy;
    return circulant_us(s, s.hosts, s.bytes * s.hosts, s.per_host) + gather_inside(s);
}
double gather_bruck(const Shape& s) {
    return s.levels(s.n) * (s.message + s.announced(s.bytes)) + (s.n - 1) * (s.call + s.bytes * s.byte_us(s.per_host));
}
double gather_doubling(const Shape& s) {
    const Doubling d(s);
    return (d.far + d.folded / 2) * s.message + (d.near + d.folded / 2) * s.near + s.announced(s.bytes * s.n / 2) +
           (s.n - 1) * s.bytes * (1 + d.folded / 2) * s.byte_us(s.per_host);
}
double gather_ring(const Shape& s) {
    return (s.n - 1) * (s.message + s.announced(s.bytes) + s.bytes * s.byte_us(1));
}
double gather_direct(const Shape& s) {
    return s.direct_us(s.n - 1, s.bytes, s.per_host);
}

double scatter_inside(const Shape& s) {
    return s.inside_us(Collective::reduce_scatter, "shared", s.bytes * s.hosts) + (s.hosts - 1) * s.signal;
}
double scatter_rails(const Shape& s) {
    const double others = s.hosts - 1;
    return s.direct_us(others, s.bytes, s.per_host) + s.hosts * s.bytes * s.sum / 3 + scatter_inside(s);
}
double scatter_circulant(const Shape& s) {
    if (!s.even) return circulant_us(s, s.n, s.bytes * s.n, s.per_host) + s.bytes * s.n * (s.copy + s.sum);
    return circulant_us(s, s.hosts, s.bytes * s.hosts, s.per_host) + s.hosts * s.bytes * s.sum + scatter_inside(s);
}
double scatter_halving(const Shape& s) {
    const Doubling d(s);
    return (d.far + d.folded / 2) * s.message + (d.near + d.folded / 2) * s.near + s.announced(s.bytes * s.n / 2) +
           (s.n - 1) * s.bytes * ((1 + d.folded / 2) * s.byte_us(s.per_host) + s.sum);
}
double scatter_ring(const Shape& s) {
    return (s.n - 1) * (s.message + s.announced(s.bytes) + s.bytes * (s.byte_us(1) + s.sum));
}
double scatter_direct(const Shape& s) {
    return s.direct_us(s.n - 1, s.bytes, s.per_host) + (s.n - 1) * s.bytes * s.sum / 3;
}

double exchange_pairwise(const Shape& s) {
    return s.direct_us(s.n - s.per_host, s.bytes, s.per_host) +
           (s.per_host - 1) * (s.near + s.bytes * (2 * s.copy + s.cross));
}
double exchange_bruck(const Shape& s) {
    const double passed = s.n / 2 * s.bytes;
    return s.levels(s.n) * (s.message + s.announced(passed) + passed * (s.byte_us(s.per_host) + 2 * s.copy)) +
           2 * s.n * s.bytes * s.copy;
}

double scan_doubling(const Shape& s) {
    const double near = std::floor(std::log2(s.per_host)), far = s.levels(s.n) - near;
    return far * (s.message + s.announced(s.bytes) + s.bytes * s.byte_us(s.per_host)) +
           near * (s.near + s.bytes * (2 * s.copy + s.cross)) + 2 * (far + near) * s.bytes * s.sum;
}
double scan_chain(const Shape& s) {
    const double tile = std::min(s.bytes, s.tile), far = s.hosts - 1, near = s.n - s.hosts;
    return far * (s.message + tile * (s.stream + s.sum)) + near * (s.near + tile * (2 * s.copy + s.cross + s.sum)) +
           s.bytes * (s.byte_us(1) + s.sum);
}
double scan_direct(const Shape& s) {
    return s.direct_us(s.n - 1, s.bytes, s.per_host) + (s.n - 1) * s.bytes * s.sum;
}

// A tree of radix `radix` over `of` ranks or hosts: the levels on its longest path, of which some lie inside a host,
// and the further children at these. The highest level has as many as are left.
struct Levels {
    double far = 0, near = 0, far_others = 0, near_others = 0;
    Levels(const Shape& s, double of, double radix) {
        for (double below = 1; below < of; below *= radix) {
            const bool inside = of > s.hosts && below * radix <= s.per_host;
            (inside ? near : far) += 1;
            (inside ? near_others : far_others) += std::min(radix, std::ceil(of / below)) - 2;
        }
    }
};
// A long buffer goes in parts: how many, and their bytes.
struct Pipeline {
    double count = 1, bytes = 0;
    Pipeline(double all, double part) : count(std::max(1.0, std::ceil(all / part))), bytes(all / count) {}
};

// A parent sends to its children one after the other, and so it does with the next part.
double broadcast_tree(const Shape& s, double of, double radix, double part) {
    const Levels l(s, of, radix);
    const Pipeline p(s.bytes, part);
    const double far = s.send + p.bytes * s.stream, near = s.near / 3 + p.bytes * s.copy;
    return l.far * (s.message + s.announced(p.bytes) + p.bytes * s.stream) + l.far_others * far +
           l.near * (s.near + p.bytes * (2 * s.copy + s.cross)) + l.near_others * near +
           (p.count - 1) * ((l.far + l.far_others) * far + (l.near + l.near_others) * near);
}
double broadcast_hierarchical(const Shape& s) {
    const double part = Pipeline(s.bytes, 2 * s.tile).bytes;
    return broadcast_tree(s, s.hosts, 2, 2 * s.tile) + s.inside_us(Collective::broadcast, "shared", part);
}
double broadcast_knomial(const Shape& s) {
    return broadcast_tree(s, s.n, 4, s.segment);
}
double broadcast_binomial(const Shape& s) {
    return broadcast_tree(s, s.n, 2, s.segment);
}
double broadcast_chain(const Shape& s) {
    const Pipeline p(s.bytes, s.segment);
    return (s.hosts - 1) * (s.message + s.announced(p.bytes) + p.bytes * s.stream) +
           (s.n - s.hosts) * (s.near + p.bytes * (2 * s.copy + s.cross)) +
           (p.count - 1) * (s.call + p.bytes * s.byte_us(1));
}

// A parent combines what its children send, one after the other.
double reduce_tree(const Shape& s, double of, double radix, double part) {
    const Levels l(s, of, radix);
    const Pipeline p(s.bytes, part);
    const double far = s.receive + p.bytes * (s.stream + s.sum),
                 near = s.near / 3 + p.bytes * (s.copy + s.cross + s.sum);
    return l.far * (s.message + s.announced(p.bytes) + p.bytes * (s.stream + s.sum)) + l.far_others * far +
           l.near * (s.near + p.bytes * (2 * s.copy + s.cross + s.sum)) + l.near_others * near +
           (p.count - 1) * ((l.far + l.far_others) * far + (l.near + l.near_others) * near);
}
double reduce_hierarchical(const Shape& s) {
    const Pipeline p(s.bytes, 2 * s.tile);
    return reduce_tree(s, s.hosts, 2, 2 * s.tile) + p.count * s.inside_us(Collective::reduce, "two_shot", p.bytes);
}
double reduce_knomial(const Shape& s) {
    return reduce_tree(s, s.n, 4, s.bytes + 1);
}
double reduce_binomial(const Shape& s) {
    return reduce_tree(s, s.n, 2, s.bytes + 1);
}
double reduce_direct(const Shape& s) {
    return s.message + s.announced(s.bytes) + (s.n - 1) * (s.receive + s.bytes * (s.stream + s.sum));
}

// All blocks come to the root's card at once, and then its core takes them. In a tree the root's first child passes on
// half of them, one at a time.
double gather_to_root(const Shape& s) {
    return s.message + s.announced(s.bytes) + (s.n - 1) * (s.receive + s.bytes * (s.stream + s.card));
}
double gather_binomial(const Shape& s) {
    return std::max(s.levels(s.n) * s.message, s.message + s.n / 2 * (s.call + 2 * s.bytes * s.stream)) +
           s.announced(s.bytes);
}
double scatter_from_root(const Shape& s) {
    return s.message + s.announced(s.bytes) + (s.n - 1) * (s.send + s.bytes * s.stream);
}
double scatter_binomial(const Shape& s) {
    return scatter_from_root(s) + (s.levels(s.n) - 1) * s.message;
}

struct Row {
    Collective collective;
    std::string_view algorithm;
    Formula us;
};
const Row rows[] = {
    {Collective::all_reduce, "hierarchical", all_reduce_hierarchical},
    {Collective::all_reduce, "rails", all_reduce_rails},
    {Collective::all_reduce, "circulant", all_reduce_circulant},
    {Collective::all_reduce, "recursive_doubling", all_reduce_doubling},
    {Collective::all_reduce, "recursive_halving", all_reduce_halving},
    {Collective::all_reduce, "ring", all_reduce_ring},
    {Collective::all_reduce, "direct", all_reduce_direct},
    {Collective::all_gather, "rails", gather_rails},
    {Collective::all_gather, "circulant", gather_circulant},
    {Collective::all_gather, "bruck", gather_bruck},
    {Collective::all_gather, "recursive_doubling", gather_doubling},
    {Collective::all_gather, "ring", gather_ring},
    {Collective::all_gather, "direct", gather_direct},
    {Collective::reduce_scatter, "rails", scatter_rails},
    {Collective::reduce_scatter, "circulant", scatter_circulant},
    {Collective::reduce_scatter, "recursive_halving", scatter_halving},
    {Collective::reduce_scatter, "ring", scatter_ring},
    {Collective::reduce_scatter, "direct", scatter_direct},
    {Collective::all_to_all, "pairwise", exchange_pairwise},
    {Collective::all_to_all, "bruck", exchange_bruck},
    {Collective::scan, "recursive_doubling", scan_doubling},
    {Collective::scan, "chain", scan_chain},
    {Collective::scan, "direct", scan_direct},
    {Collective::exscan, "recursive_doubling", scan_doubling},
    {Collective::exscan, "chain", scan_chain},
    {Collective::exscan, "direct", scan_direct},
    {Collective::broadcast, "hierarchical", broadcast_hierarchical},
    {Collective::broadcast, "knomial", broadcast_knomial},
    {Collective::broadcast, "binomial", broadcast_binomial},
    {Collective::broadcast, "chain", broadcast_chain},
    {Collective::reduce, "hierarchical", reduce_hierarchical},
    {Collective::reduce, "knomial", reduce_knomial},
    {Collective::reduce, "binomial", reduce_binomial},
    {Collective::reduce, "direct", reduce_direct},
    {Collective::gather, "binomial", gather_binomial},
    {Collective::gather, "direct", gather_to_root},
    {Collective::scatter, "binomial", scatter_binomial},
    {Collective::scatter, "direct", scatter_from_root},
};

}  // namespace
}  // namespace at_scale

bool has_many_hosts(const Layout& layout) {
    return !layout.host_of.empty() && std::ranges::max(layout.host_of) + 1 >= many_hosts_from;
}

bool is_chosen_at_scale(const Layout& layout) {
    return layout.machines >= many_hosts_from && has_many_hosts(layout);
}

CostModel costs_at_scale(const Layout& layout) {
    CostModel costs = layout.tuning.costs.value_or(CostModel{});
    if (!layout.tuning.costs)
        costs.cores = std::max(costs.cores, std::ceil(static_cast<double>(layout.size()) / layout.machines));
    return costs;
}

std::optional<double> at_scale_us(const Context& context, std::string_view algorithm, const CostModel& costs) {
    const Layout& layout = context.layout;
    const Request& request = context.request;
    TUTTI_ASSERT(has_many_hosts(layout));
    const auto row = std::ranges::find_if(at_scale::rows, [&](const at_scale::Row& r) {
        return r.collective == request.collective && r.algorithm == algorithm;
    });
    if (row == std::end(at_scale::rows)) return std::nullopt;
    const bool of_blocks = request.collective == Collective::gather || request.collective == Collective::scatter;
    if (of_blocks && layout.size() > most_at_root) return std::nullopt;
    const HostTopology& topology = context.topology();
    std::size_t most = 1;
    for (const auto& ranks : topology.hosts) most = std::max(most, ranks.size());

    Layout inside{.host_of = std::vector<int>(most, 0), .shared_memory = layout.shared_memory};
    inside.slot_bytes = layout.slot_bytes;
    inside.slots = layout.slots;
    inside.segment_bytes = layout.segment_bytes;
    at_scale::Shape s;
    s.n = layout.size();
    s.hosts = static_cast<double>(topology.hosts.size());
    s.per_host = static_cast<double>(most);
    const auto element = static_cast<double>(request.element_bytes);
    s.bytes = static_cast<double>(decisive_count(request)) * element;
    s.tile = static_cast<double>(context.tile()) * element;
    s.segment = static_cast<double>(context.segment()) * element;
    s.message = costs.tcp_us;
    s.send = costs.tcp_send_us;
    s.receive = costs.tcp_receive_us;
    s.call = s.send + s.receive;
    s.stream = 1 / (costs.tcp_gbps * 1e3);
    s.card = s.stream / card_streams;
    const bool blocks = traits_of(request.collective).has_blocks() || traits_of(request.collective).exchanges();
    const Rates rates = rates_of(2 * s.bytes * (blocks ? s.n : 1), inside, costs);
    s.copy = rates.copy_us;
    s.sum = rates.sum_us;
    s.cross = rates.cross_us;
    s.signal = rates.signal_us;
    const MessageCosts near = message_costs(rates, 0, true, false, costs);
    s.near = layout.shared_memory ? near.send_us + near.receive_us + near.latency_us : s.message;
    s.even = context.rails();
    s.inside = &inside;
    s.costs = &costs;
    const double us = row->us(s);
    TUTTI_ASSERT(us >= 0);
    return us;
}

}  // namespace tutti::algorithm
