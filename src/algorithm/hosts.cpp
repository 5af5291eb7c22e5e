// Collectives over several hosts: shared memory inside a host, messages between the hosts.
//
// Rails. Where all hosts have equally many ranks, those at the same position of their hosts form a rail; the work
// between hosts is divided among the rails, so that every rank, core and connection has its part.
//   all_reduce, hosts {0 1} {2 3}, slices a b:   0 and 1 reduce a to 0, b to 1 | 0 ↔ 2 all_reduce a, 1 ↔ 3 b | 0 and 1
//   exchange a and b
// Each byte crosses between two hosts once for the host, not once for each of its ranks.
// Leaders. Otherwise, and for few bytes, one rank of each host talks to the others.
//
// Long buffers are cut into blocks, and the phases of neighbouring blocks overlap: while one is on its way between the
// hosts, the next is combined inside them. The rounds of a block's phase are not interleaved with others, so that no
// rank waits for a slot longer than that phase takes.
// Source: the hierarchical collectives of NCCL (rails) and of any MPI (leaders); Thakur, Rabenseifner, Gropp (2005) for
// the phases.
#include "algorithm/generators.hpp"
#include "core/assert.hpp"

#include <algorithm>
#include <array>
#include <functional>

namespace tutti::algorithm {

HostTopology::HostTopology(const std::vector<int>& host_of, Rank me, Rank root) {
    TUTTI_ASSERT(me >= 0 && static_cast<std::size_t>(me) < host_of.size() && root >= 0 &&
                 static_cast<std::size_t>(root) < host_of.size());
    const auto host = [&](Rank rank) { return host_of[static_cast<std::size_t>(rank)]; };
    hosts.resize(static_cast<std::size_t>(*std::ranges::max_element(host_of)) + 1);
    for (Rank rank = 0; rank < static_cast<Rank>(host_of.size()); ++rank)
        hosts[static_cast<std::size_t>(host(rank))].push_back(rank);
    for (const auto& ranks : hosts) leaders.ranks.push_back(host(root) == host(ranks.front()) ? root : ranks.front());
    leading_root = host(root);
    even = std::ranges::all_of(hosts, [&](const auto& ranks) { return ranks.size() == hosts.front().size(); });
    TUTTI_ASSERT(leaders.size() == static_cast<int>(hosts.size()));
    move_to(host_of, me);
}

void HostTopology::move_to(const std::vector<int>& host_of, Rank me) {
    TUTTI_ASSERT(me >= 0 && static_cast<std::size_t>(me) < host_of.size());
    const int host = host_of[static_cast<std::size_t>(me)];
    inside.ranks = hosts[static_cast<std::size_t>(host)];
    const auto position = std::ranges::find(inside.ranks, me) - inside.ranks.begin();
    inside.me = static_cast<int>(position);
    leader = static_cast<int>(std::ranges::find(inside.ranks, leaders.rank(host)) - inside.ranks.begin());
    leaders.me = leads() ? host : -1;
    rail.me = host;
    if (even && position == position_) return;
    position_ = static_cast<int>(position);
    rail.ranks.clear();
    for (const auto& ranks : hosts) {
        if (std::ssize(ranks) <= position) continue;
        rail.ranks.push_back(ranks[static_cast<std::size_t>(position)]);
        if (rail.ranks.back() == me) rail.me = rail.size() - 1;
    }
    TUTTI_ASSERT(leader >= 0 && leader < inside.size() && (!even || rail.size() == leaders.size()));
}

namespace hosts {
namespace {

std::vector<Chunk> pieces_of(Chunk whole, int parts) {
    std::vector<Chunk> pieces;
    for (int i = 0; i < parts; ++i) pieces.push_back(piece_of(whole, parts, i));
    return pieces;
}

// The sum of a host on its leader: in one round where a slot holds everything. Other ranks need a place to work in.
void reduce_inside(Builder& b, const HostTopology& s, const Staging& staging, Chunk input, Chunk output, bool whole) {
    if (s.inside.size() == 1)  // nothing is shared there
        b.copy(output, input);
    else if (whole)
        shared::reduce_one_shot(b, s.inside, staging, s.leader, input, output, false);
    else
        shared::reduce(b, s.inside, staging, s.leader, input, output, false);
}

void broadcast_inside(Builder& b, const HostTopology& s, const Staging& staging, Chunk buffer) {
    if (s.inside.size() > 1) shared::broadcast(b, s.inside, staging, s.leader, buffer);
}

}  // namespace

void all_reduce_rails(Builder& b, const HostTopology& s, const Staging& staging, Chunk input, Chunk output,
                      std::uint64_t message, bool finish) {
    b.not_single_rounding();
    TUTTI_ASSERT(s.even && s.rail.me >= 0 && input.count == output.count && message > 0);
    const int ranks = s.inside.size(), rails = s.rail.size();
    const std::uint64_t block = message * static_cast<std::uint64_t>(ranks) * static_cast<std::uint64_t>(rails);
    const int blocks = block_count(input.count, block);
    TUTTI_ASSERT(blocks >= 1);
    const auto slices = [&](Chunk whole, std::uint64_t k) {
        return pieces_of(piece_of(whole, blocks, static_cast<int>(k)), ranks);
    };
    const auto own = [&](std::uint64_t k) { return slices(output, k)[static_cast<std::size_t>(s.inside.me)]; };
    std::vector<Stage> stages{
        [&](std::uint64_t k) { shared::reduce_scatter(b, s.inside, staging, slices(input, k), own(k), false); }};
    for (int stage = 0; stage < messages::ring_stages(s.rail); ++stage) {
        stages.emplace_back(
            [&, stage](std::uint64_t k) { messages::all_reduce_ring_stage(b, s.rail, own(k), own(k), stage, finish); });
    }
    stages.emplace_back([&](std::uint64_t k) { shared::all_gather(b, s.inside, staging, own(k), slices(output, k)); });
    interleave(static_cast<std::uint64_t>(blocks), stages);
}

void all_reduce_leaders(Builder& b, const HostTopology& s, const Staging& staging, Chunk input, Chunk output,
                        std::uint64_t message, bool exchange, bool finish) {
    b.not_single_rounding();
    TUTTI_ASSERT(input.count == output.count && message > 0);
    const std::uint64_t block =
        exchange ? std::max<std::uint64_t>(1, input.count) : message * static_cast<std::uint64_t>(s.leaders.size());
    const int blocks = block_count(input.count, block);
    const auto part_of = [&](Chunk whole, std::uint64_t k) { return piece_of(whole, blocks, static_cast<int>(k)); };
    const Chunk work = s.leads() || exchange ? Chunk{} : b.scratch(shared::reduce_work(s.inside, staging));
    std::vector<Stage> stages{[&](std::uint64_t k) {
        reduce_inside(b, s, staging, part_of(input, k), s.leads() ? part_of(output, k) : work, exchange);
    }};
    if (exchange) {
        stages.emplace_back([&](std::uint64_t k) {
            if (s.leads()) messages::all_reduce_direct(b, s.leaders, part_of(output, k), part_of(output, k), finish);
        });
    }
    for (int stage = 0; !exchange && stage < messages::ring_stages(s.leaders); ++stage) {
        // Stages without work keep their place only where others of another block come beside them.
        if (blocks == 1 && !(s.leads() && messages::works_in_ring_stage(s.leaders, input.count, stage))) continue;
        stages.emplace_back([&, stage](std::uint64_t k) {
            if (s.leads()) {
                messages::all_reduce_ring_stage(b, s.leaders, part_of(output, k), part_of(output, k), stage, finish);
            }
        });
    }
    stages.emplace_back([&](std::uint64_t k) { broadcast_inside(b, s, staging, part_of(output, k)); });
    interleave(static_cast<std::uint64_t>(blocks), stages);
}

void reduce(Builder& b, const HostTopology& s, const Staging& staging, Chunk input, Chunk output, std::uint64_t message,
            bool finish) {
    b.not_single_rounding();
    TUTTI_ASSERT(message > 0 && s.leading_root >= 0 && s.leading_root < s.leaders.size());
    const int blocks = block_count(input.count, message);
    const auto part_of = [&](Chunk whole, std::uint64_t k) { return piece_of(whole, blocks, static_cast<int>(k)); };
    TUTTI_ASSERT(part_of(input, 0).count >= part_of(input, static_cast<std::uint64_t>(blocks) - 1).count);
    const bool is_root = s.leads() && s.leaders.me == s.leading_root;
    // Leaders but the root keep a few blocks at a time.
    constexpr std::uint64_t kept = 4;
    const std::uint64_t largest = part_of(input, 0).count;
    Chunk work;
    if (s.leads() && !is_root)
        work = b.scratch(kept * largest);
    else if (!s.leads())
        work = b.scratch(shared::reduce_work(s.inside, staging));
    const auto sum = [&](std::uint64_t k) {
        if (is_root) return part_of(output, k);
        return s.leads() ? part(work, k % kept * largest, part_of(input, k).count) : work;
    };
    const std::array<Stage, 2> stages{
        [&](std::uint64_t k) { reduce_inside(b, s, staging, part_of(input, k), sum(k), false); },
        [&](std::uint64_t k) {
            if (s.leads()) messages::reduce_tree(b, s.leaders, 2, s.leading_root, sum(k), sum(k), finish);
        }};
    interleave(static_cast<std::uint64_t>(blocks), stages);
}

void broadcast(Builder& b, const HostTopology& s, const Staging& staging, Chunk buffer, std::uint64_t message) {
    TUTTI_ASSERT(message > 0);
    const int blocks = block_count(buffer.count, message);
    const auto block = [&](std::uint64_t k) { return piece_of(buffer, blocks, static_cast<int>(k)); };
    const std::array<Stage, 2> stages{[&](std::uint64_t k) {
                                          if (s.leads())
                                              messages::broadcast_tree(b, s.leaders, 2, s.leading_root, block(k),
                                                                       buffer.count);
                                      },
                                      [&](std::uint64_t k) { broadcast_inside(b, s, staging, block(k)); }};
    interleave(static_cast<std::uint64_t>(blocks), stages);
}

// A segment of each block of the rail comes over the rail, and the other ranks of the host read it.
void all_gather_rails(Builder& b, const HostTopology& s, const Staging& staging,
                      const std::vector<std::uint64_t>& counts, std::uint64_t message) {
    TUTTI_ASSERT(s.even && s.rail.me >= 0 && message > 0);
    const int segments = block_count(*std::ranges::max_element(counts), message);
    TUTTI_ASSERT(segments >= 1);
    const auto segment = [&](Rank rank, std::uint64_t k) {
        return piece_of(block_of(Buffer::output, counts, rank), segments, static_cast<int>(k));
    };
    const Rank me = s.inside.rank(s.inside.me);
    const auto own = [&](std::uint64_t k) {
        return piece_of({Buffer::input, 0, counts[static_cast<std::size_t>(me)]}, segments, static_cast<int>(k));
    };
    const std::array<Stage, 2> stages{
        [&](std::uint64_t k) {
            const int n = s.rail.size();
            b.copy(segment(me, k), own(k));
            for (int i = 1; i < n; ++i) {
                const Rank to = s.rail.rank((s.rail.me + i) % n), from = s.rail.rank((s.rail.me - i + n) % n);
                b.receive(from, segment(from, k));
                b.send(to, own(k));
            }
        },
        [&](std::uint64_t k) {
            for (int i = 0; i < s.rail.size(); ++i) {  // this host's blocks first: they are there
                const int host = (s.rail.me + i) % s.rail.size();
                std::vector<Chunk> targets;
                for (const Rank rank : s.hosts[static_cast<std::size_t>(host)]) targets.push_back(segment(rank, k));
                shared::all_gather(b, s.inside, staging, targets[static_cast<std::size_t>(s.inside.me)], targets);
            }
        }};
    interleave(static_cast<std::uint64_t>(segments), stages);
}

// The ranks of a host combine the values that each rail has to carry; then the rail's ranks exchange them and combine
// the hosts' parts, in the order of hosts.
void reduce_scatter_rails(Builder& b, const HostTopology& s, const Staging& staging,
                          const std::vector<std::uint64_t>& counts, std::uint64_t message, bool finish) {
    b.not_single_rounding();
    TUTTI_ASSERT(s.even && s.rail.me >= 0 && message > 0);
    const int segments = block_count(*std::ranges::max_element(counts), message);
    const int n = s.rail.size();
    const auto segment = [&](Buffer buffer, Rank rank, std::uint64_t k) {
        const Chunk block = buffer == Buffer::output ? Chunk{buffer, 0, counts[static_cast<std::size_t>(rank)]}
                                                     : block_of(buffer, counts, rank);
        return piece_of(block, segments, static_cast<int>(k));
    };
    // Places for the values that this host has combined, by host, and for those of the other hosts; used again and
    // again.
    constexpr std::uint64_t kept = 4;
    const Rank me = s.rail.rank(s.rail.me);
    std::vector<Chunk> combined, arrived;
    for (const Rank rank : s.rail.ranks) {
        combined.push_back(b.scratch(kept * segment(Buffer::input, rank, 0).count));
        arrived.push_back(b.scratch(rank == me ? 0 : kept * segment(Buffer::input, me, 0).count));
    }
    TUTTI_ASSERT(combined.size() == static_cast<std::size_t>(n) && arrived.size() == combined.size());
    const auto place = [&](const Chunk& places, Rank rank, std::uint64_t k) {
        return part(places, k % kept * segment(Buffer::input, rank, 0).count, segment(Buffer::input, rank, k).count);
    };
    const auto mine = [&](int host, std::uint64_t k) {
        return place(combined[static_cast<std::size_t>(host)], s.rail.rank(host), k);
    };
    const std::array<Stage, 3> stages{
        [&](std::uint64_t k) {
            for (int i = 1; i <= n; ++i) {  // this host's own last: the others' have a way to go
                const int host = (s.rail.me + i) % n;
                std::vector<Chunk> inputs;
                for (const Rank rank : s.hosts[static_cast<std::size_t>(host)])
                    inputs.push_back(segment(Buffer::input, rank, k));
                shared::reduce_scatter(b, s.inside, staging, inputs, mine(host, k), false);
            }
        },
        [&](std::uint64_t k) {
            for (int i = 1; i < n; ++i) {
                const int to = (s.rail.me + i) % n, from = (s.rail.me - i + n) % n;
                b.receive(s.rail.rank(from), place(arrived[static_cast<std::size_t>(from)], me, k));
                b.send(s.rail.rank(to), mine(to, k));
            }
        },
        [&](std::uint64_t k) {
            std::vector<Chunk> sources;
            for (int host = 0; host < n; ++host) {
                sources.push_back(host == s.rail.me ? mine(host, k)
                                                    : place(arrived[static_cast<std::size_t>(host)], me, k));
            }
            b.combine(segment(Buffer::output, me, k), sources, finish);
        }};
    interleave(static_cast<std::uint64_t>(segments), stages);
}

// Everyone of a host tells its leader, the leaders tell each other, and each leader its host.
void barrier(Builder& b, const HostTopology& s) {
    TUTTI_ASSERT(s.inside.me >= 0 && (s.leaders.me >= 0) == s.leads());
    const std::uint32_t round = b.next_round();
    if (s.leads()) {
        for (int i = 0; i < s.inside.size(); ++i) {
            if (i != s.inside.me) b.read(s.inside.rank(i), round, 0, {});
        }
        messages::barrier_dissemination(b, s.leaders);
        if (s.inside.size() > 1) b.publish_signal(round + 1);
    } else {
        b.publish(round, {});
        b.read(s.inside.rank(s.leader), round + 1, 0, {});
    }
    if (s.inside.size() > 1) b.use_rounds(2);
}

}  // namespace hosts
}  // namespace tutti::algorithm
