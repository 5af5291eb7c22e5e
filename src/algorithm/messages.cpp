// Collectives over messages, for ranks that share no memory (and for collectives that a staging area cannot serve).
//
// Sources: ring, Rabenseifner's two phases and recursive doubling: Thakur, Rabenseifner, Gropp, "Optimization of
// Collective Communication Operations in MPICH" (2005); Bruck et al. (1997); dissemination barrier: Hensgen, Finkel,
// Manber (1988); binomial trees: any MPI.
#include "algorithm/generators.hpp"
#include "core/assert.hpp"

#include <algorithm>
#include <array>

namespace tutti::algorithm::messages {
namespace {

constexpr std::uint64_t ring_slices_under_way = 8;  // on each link: 1 MB

// combine() of all ranks' values in rank order; `others[i]` is where rank i's arrived, mine is `own`.
void combine_all(Builder& b, const RankList& s, Chunk target, Chunk own, const std::vector<Chunk>& others,
                 bool finish) {
    std::vector<Chunk> sources;
    for (int i = 0; i < s.size(); ++i) sources.push_back(i == s.me ? own : others[static_cast<std::size_t>(i)]);
    TUTTI_ASSERT(sources.size() == others.size());
    b.combine(target, sources, finish);
}

// The blocks of an exchange.
Chunk block_to(const Request& q, int peer) {
    const auto k = static_cast<std::size_t>(peer);
    return {Buffer::input, q.send_offsets[k], q.send_counts[k]};
}
Chunk block_from(const Request& q, int peer) {
    const auto k = static_cast<std::size_t>(peer);
    return {Buffer::output, q.receive_offsets[k], q.receive_counts[k]};
}

int real_log2(int n) {
    TUTTI_ASSERT(n >= 1);
    int log = 0;
    while ((1 << (log + 1)) <= n) ++log;
    return log;
}

}  // namespace

// Everyone sends everything to everyone.   rank 0: x0 →, ← x1 x2 …, out = x0 op x1 op x2 …
void all_reduce_direct(Builder& b, const RankList& s, Chunk input, Chunk output, bool finish) {
    TUTTI_ASSERT(input.count == output.count && s.me >= 0 && s.me < s.size());
    std::vector<Chunk> others(static_cast<std::size_t>(s.size()));
    for (int i = 1; i < s.size(); ++i) {
        const int to = (s.me + i) % s.size(), from = (s.me - i + s.size()) % s.size();
        others[static_cast<std::size_t>(from)] = b.scratch(input.count);
        b.receive(s.rank(from), others[static_cast<std::size_t>(from)]);
        b.send(s.rank(to), input);
    }
    combine_all(b, s, output, input, others, finish);
}

// Slice i belongs to rank i: everyone sends it there; the owner combines in rank order and sends the result to all.
void all_reduce_two_shot(Builder& b, const RankList& s, Chunk input, Chunk output, bool finish) {
    TUTTI_ASSERT(input.count == output.count && s.me >= 0 && s.me < s.size());
    const int n = s.size();
    const Chunk own = piece_of(input, n, s.me);
    std::vector<Chunk> others(static_cast<std::size_t>(n));
    for (int i = 1; i < n; ++i) {
        const int to = (s.me + i) % n, from = (s.me - i + n) % n;
        others[static_cast<std::size_t>(from)] = b.scratch(own.count);
        b.receive(s.rank(from), others[static_cast<std::size_t>(from)]);
        b.send(s.rank(to), piece_of(input, n, to));
    }
    combine_all(b, s, piece_of(output, n, s.me), own, others, finish);
    for (int i = 1; i < n; ++i) {
        const int to = (s.me + i) % n, from = (s.me - i + n) % n;
        b.receive(s.rank(from), piece_of(output, n, from));
        b.send(s.rank(to), piece_of(output, n, s.me));
    }
}

// n-1 stages in which slices collect values on their way round, n-1 in which results go round.
//   n = 3, slice by rank after stage k (o: own, number: contributions)    stage 1: 2 at me-1   stage 2: 3 at me-2
// Long buffers go round in blocks of n slices, each block one stage behind the one before it, so that a slice is sent
// on, and overwritten by the result, while it is still in the cache, and every link always has something to carry.
//   stage of block   0 1 2      tick 0: 0    tick 1: 1 0    tick 2: 2 1 0    …
// Where there are few stages, several blocks lie between two of them: a long way has to be filled.
void all_reduce_ring(Builder& b, const RankList& s, Chunk input, Chunk output, std::uint64_t segment, bool finish) {
    TUTTI_ASSERT(input.count == output.count && segment > 0);
    const int n = s.size();
    if (n == 1) return b.combine(output, std::vector{input}, finish);
    b.not_single_rounding();
    const std::uint64_t block = segment * static_cast<std::uint64_t>(n);
    const std::uint64_t blocks = std::max<std::uint64_t>(1, (input.count + block - 1) / block);
    TUTTI_ASSERT(blocks * block >= input.count);
    std::vector<Stage> stages;
    for (int stage = 0; stage < ring_stages(s); ++stage) {
        stages.emplace_back([&, stage](std::uint64_t k) {
            const auto of_block = [&](Chunk whole) {
                return part(whole, k * block, std::min(block, whole.count - k * block));
            };
            all_reduce_ring_stage(b, s, of_block(input), of_block(output), stage, finish);
        });
    }
    interleave(blocks, stages, std::max<std::uint64_t>(1, ring_slices_under_way / stages.size()));
}

void all_reduce_ring_stage(Builder& b, const RankList& s, Chunk input, Chunk output, int stage, bool finish) {
    TUTTI_ASSERT(stage >= 0 && stage < ring_stages(s) && input.count == output.count);
    const int n = s.size();
    const Rank right = s.rank((s.me + 1) % n), left = s.rank((s.me - 1 + n) % n);
    const auto slice = [&](Chunk whole, int index) { return piece_of(whole, n, ((index % n) + n) % n); };
    if (stage < n - 1) {
        b.send(right, slice(stage == 0 ? input : output, s.me - stage));
        b.receive_combine(left, slice(output, s.me - stage - 1), slice(input, s.me - stage - 1), true,
                          finish && stage == n - 2);
    } else {
        const int turn = stage - (n - 1);
        b.send(right, slice(output, s.me + 1 - turn));
        b.receive(left, slice(output, s.me - turn));
    }
}

// log2(n) exchanges of everything with the rank at distance 1, 2, 4 …; operands are ordered by rank, so that all ranks
// compute the same bits. Ranks beyond the largest power of two first give their values to a partner.
void all_reduce_recursive_doubling(Builder& b, const RankList& s, Chunk input, Chunk output, bool finish) {
    TUTTI_ASSERT(input.count == output.count && s.me >= 0 && s.me < s.size());
    const int n = s.size();
    const int power = 1 << real_log2(n), extra = n - power;
    TUTTI_ASSERT(power <= n && extra >= 0 && extra < power);
    if (n == 1) return b.combine(output, std::vector{input}, finish);
    if (n > 2) b.not_single_rounding();
    // The first 2*extra ranks pair up: odd ones give to even ones. Position among the power-of-two many that remain:
    const bool gives = s.me < 2 * extra && s.me % 2 == 1;
    if (gives) {
        b.send(s.rank(s.me - 1), input);
        b.receive(s.rank(s.me - 1), output);
        return;
    }
    const auto real = [&](int virtual_rank) { return virtual_rank < extra ? 2 * virtual_rank : virtual_rank + extra; };
    const int me = s.me < 2 * extra ? s.me / 2 : s.me - extra;
    TUTTI_ASSERT(gives || (me >= 0 && me < power));
    Chunk current = input;
    if (s.me < 2 * extra) {
        b.receive_combine(s.rank(s.me + 1), output, input, false, finish && power == 1);
        current = output;
    }
    const Chunk arrived = b.scratch(input.count), held = b.scratch(input.count);
    for (int distance = 1; distance < power; distance *= 2) {
        const int partner = me ^ distance;
        const Rank peer = s.rank(real(partner));
        b.receive(peer, arrived);
        b.send(peer, current);
        const bool last = distance * 2 == power;
        const Chunk next = last || current == held ? output : held;
        b.combine(next, partner < me ? std::vector{arrived, current} : std::vector{current, arrived}, finish && last);
        current = next;
    }
    if (s.me < 2 * extra) b.send(s.rank(s.me + 1), output);
}

void reduce_direct(Builder& b, const RankList& s, int root, Chunk input, Chunk output, bool finish) {
    TUTTI_ASSERT(root >= 0 && root < s.size());
    if (s.me != root) return b.send(s.rank(root), input);
    std::vector<Chunk> others(static_cast<std::size_t>(s.size()));
    for (int i = 0; i < s.size(); ++i) {
        if (i == root) continue;
        others[static_cast<std::size_t>(i)] = b.scratch(input.count);
        b.receive(s.rank(i), others[static_cast<std::size_t>(i)]);
    }
    combine_all(b, s, output, input, others, finish);
}

// Segments run down the line root, root+1, …: for long messages every link carries everything once.
void broadcast_chain(Builder& b, const RankList& s, int root, Chunk buffer, std::uint64_t segment) {
    TUTTI_ASSERT(root >= 0 && root < s.size() && segment > 0);
    const int n = s.size(), me = (s.me - root + n) % n;
    const auto real = [&](int relative) { return s.rank((relative + root) % n); };
    for (std::uint64_t at = 0; at < buffer.count; at += segment) {
        const Chunk c = part(buffer, at, std::min(segment, buffer.count - at));
        if (me > 0) b.receive(real(me - 1), c);
        if (me + 1 < n) b.send(real(me + 1), c);
    }
}

void all_gather_direct(Builder& b, const RankList& s, const std::vector<std::uint64_t>& counts) {
    TUTTI_ASSERT(counts.size() == static_cast<std::size_t>(s.size()));
    const int n = s.size();
    const Chunk own{Buffer::input, 0, counts[static_cast<std::size_t>(s.me)]};
    for (int i = 1; i < n; ++i) {
        const int to = (s.me + i) % n, from = (s.me - i + n) % n;
        b.receive(s.rank(from), block_of(Buffer::output, counts, from));
        b.send(s.rank(to), own);
    }
    b.copy(block_of(Buffer::output, counts, s.me), own);
}

void all_gather_ring(Builder& b, const RankList& s, const std::vector<std::uint64_t>& counts) {
    TUTTI_ASSERT(counts.size() == static_cast<std::size_t>(s.size()));
    const int n = s.size();
    const Chunk own{Buffer::input, 0, counts[static_cast<std::size_t>(s.me)]};
    b.copy(block_of(Buffer::output, counts, s.me), own);
    for (int k = 0; k < n - 1; ++k) {
        const int sent = (s.me - k + n) % n, got = (s.me - k - 1 + n) % n;
        b.send(s.rank((s.me + 1) % n), k == 0 ? own : block_of(Buffer::output, counts, sent));
        b.receive(s.rank((s.me - 1 + n) % n), block_of(Buffer::output, counts, got));
    }
}

// ceil(log2 n) steps: with distance d, a rank sends the d blocks it has to rank me-d and gets those of me+d.
void all_gather_bruck(Builder& b, const RankList& s, const std::vector<std::uint64_t>& counts) {
    TUTTI_ASSERT(counts.size() == static_cast<std::size_t>(s.size()));
    const int n = s.size();
    b.copy(block_of(Buffer::output, counts, s.me), {Buffer::input, 0, counts[static_cast<std::size_t>(s.me)]});
    for (int distance = 1; distance < n; distance *= 2) {
        const int blocks = std::min(distance, n - distance);
        for (int i = 0; i < blocks; ++i) {
            b.send(s.rank((s.me - distance + n) % n), block_of(Buffer::output, counts, (s.me + i) % n));
            b.receive(s.rank((s.me + distance) % n), block_of(Buffer::output, counts, (s.me + distance + i) % n));
        }
    }
}

void gather_direct(Builder& b, const RankList& s, int root, const std::vector<std::uint64_t>& counts) {
    TUTTI_ASSERT(counts.size() == static_cast<std::size_t>(s.size()) && root >= 0 && root < s.size());
    const Chunk own{Buffer::input, 0, counts[static_cast<std::size_t>(s.me)]};
    if (s.me != root) return b.send(s.rank(root), own);
    b.copy(block_of(Buffer::output, counts, root), own);
    for (int i = 0; i < s.size(); ++i) {
        if (i != root) b.receive(s.rank(i), block_of(Buffer::output, counts, i));
    }
}

void scatter_direct(Builder& b, const RankList& s, int root, const std::vector<std::uint64_t>& counts) {
    TUTTI_ASSERT(counts.size() == static_cast<std::size_t>(s.size()) && root >= 0 && root < s.size());
    const Chunk own{Buffer::output, 0, counts[static_cast<std::size_t>(s.me)]};
    if (s.me != root) return b.receive(s.rank(root), own);
    for (int i = 0; i < s.size(); ++i) {
        if (i != root) b.send(s.rank(i), block_of(Buffer::input, counts, i));
    }
    b.copy(own, block_of(Buffer::input, counts, root));  // while the others read theirs
}

void reduce_scatter_direct(Builder& b, const RankList& s, const std::vector<std::uint64_t>& counts) {
    TUTTI_ASSERT(counts.size() == static_cast<std::size_t>(s.size()));
    const int n = s.size();
    const std::uint64_t count = counts[static_cast<std::size_t>(s.me)];
    std::vector<Chunk> others(static_cast<std::size_t>(n));
    for (int i = 1; i < n; ++i) {
        const int to = (s.me + i) % n, from = (s.me - i + n) % n;
        others[static_cast<std::size_t>(from)] = b.scratch(count);
        b.receive(s.rank(from), others[static_cast<std::size_t>(from)]);
        b.send(s.rank(to), block_of(Buffer::input, counts, to));
    }
    combine_all(b, s, {Buffer::output, 0, count}, block_of(Buffer::input, counts, s.me), others, true);
}

void reduce_scatter_ring(Builder& b, const RankList& s, const std::vector<std::uint64_t>& counts) {
    TUTTI_ASSERT(counts.size() == static_cast<std::size_t>(s.size()));
    const int n = s.size();
    const Chunk output{Buffer::output, 0, counts[static_cast<std::size_t>(s.me)]};
    if (n == 1) return b.combine(output, std::vector{block_of(Buffer::input, counts, 0)}, true);
    if (n > 2) b.not_single_rounding();
    // Block b starts at rank b+1 and ends at its owner after n-1 hops.
    Chunk current = block_of(Buffer::input, counts, (s.me - 1 + n) % n);
    for (int k = 0; k < n - 1; ++k) {
        b.send(s.rank((s.me + 1) % n), current);
        const int index = (s.me - k - 2 + 2 * n) % n;
        const Chunk own = block_of(Buffer::input, counts, index);
        const bool last = k == n - 2;
        const Chunk target = last ? output : b.scratch(own.count);
        b.receive_combine(s.rank((s.me - 1 + n) % n), target, own, true, last);
        current = target;
    }
}

// Rank i sends to i + 1, i + 2 and so on, and receives from i - 1, i - 2. With many elements, not all are under way at
// once: they would fill the sockets' buffers of all ranks, and no cache would hold them.
void all_to_all_pairwise(Builder& b, const RankList& s, const Request& q, std::uint64_t under_way_max) {
    const int n = s.size();
    TUTTI_ASSERT(q.send_counts.size() == static_cast<std::size_t>(n) &&
                 q.receive_counts.size() == static_cast<std::size_t>(n));
    TUTTI_ASSERT(q.send_offsets.size() == static_cast<std::size_t>(n) &&
                 q.receive_offsets.size() == static_cast<std::size_t>(n));
    const auto out = [&](int i) { return block_to(q, i); };
    const auto in = [&](int i) { return block_from(q, i); };
    b.copy(in(s.me), out(s.me));
    TUTTI_ASSERT(q.send_counts[static_cast<std::size_t>(s.me)] == q.receive_counts[static_cast<std::size_t>(s.me)]);
    struct Pair {
        std::int64_t send = -1, receive = -1;
        std::uint64_t sent = 0;
    };
    std::vector<Pair> pairs{{}};  // the first is none
    std::size_t over = 0;         // the last of those that have to be over
    std::uint64_t under_way = 0;
    for (int i = 1; i < n; ++i) {
        const int to = (s.me + i) % n, from = (s.me - i + n) % n;
        Pair pair{.sent = out(to).count};
        b.receive(s.rank(from), in(from));
        if (in(from).count > 0) pair.receive = b.last_step();
        under_way += pair.sent;
        while (under_way > under_way_max && over + 1 < pairs.size()) under_way -= pairs[++over].sent;
        b.send(s.rank(to), out(to), std::array{pairs[over].send, pairs[over].receive});
        if (pair.sent > 0) pair.send = b.last_step();
        pairs.push_back(pair);
        TUTTI_ASSERT(pairs.size() == static_cast<std::size_t>(i) + 1);
    }
}

// Empty blocks, as all between two other ranks, and those that the root sends in a gather_v, take no step.
void rooted_exchange(Builder& b, const RankList& s, const Request& q) {
    TUTTI_ASSERT(q.root >= 0 && q.root < s.size());
    TUTTI_ASSERT(q.send_counts.size() == static_cast<std::size_t>(s.size()) &&
                 q.receive_counts.size() == q.send_counts.size());
    for (int peer = 0; peer < s.size(); ++peer) {
        if (peer == s.me || (peer != q.root && s.me != q.root)) continue;
        b.receive(s.rank(peer), block_from(q, peer));
        b.send(s.rank(peer), block_to(q, peer));
    }
    if (s.me == q.root) b.copy(block_from(q, s.me), block_to(q, s.me));  // while the others read theirs
}

// Blocks of equal size in few messages, each of several blocks (Bruck et al., 1997). A block is known by its distance:
// how far its target lies behind its source. Step k takes every block that has bit k in its distance 2^k ranks on, so
// after ceil(log2 n) steps all are there. Arriving blocks take the places of those that left: the block that a rank has
// at a distance in the end came that far.
//
//   distances at hand on each of 5 ranks:   0 1 2 3 4
//   step 0, one rank on:                      1   3
//   step 1, two ranks on:                       2 3
//   step 2, four ranks on:                          4
void all_to_all_bruck(Builder& b, const RankList& s, const Request& q) {
    const int n = s.size();
    TUTTI_ASSERT(q.send_offsets.size() == static_cast<std::size_t>(n) &&
                 q.receive_offsets.size() == static_cast<std::size_t>(n));
    const std::uint64_t count = q.largest_count.value_or(0);
    std::vector<Chunk> at;  // by distance
    for (int distance = 0; distance < n; ++distance)
        at.push_back({Buffer::input, q.send_offsets[static_cast<std::size_t>((s.me + distance) % n)], count});
    for (int step = 1; step < n; step *= 2) {
        std::vector<std::size_t> leaving;
        for (int distance = step; distance < n; ++distance) {
            if ((distance & step) != 0) leaving.push_back(static_cast<std::size_t>(distance));
        }
        TUTTI_ASSERT(!leaving.empty());
        const Chunk sent = b.scratch(leaving.size() * count), got = b.scratch(leaving.size() * count);
        for (std::size_t i = 0; i < leaving.size(); ++i) b.copy(part(sent, i * count, count), at[leaving[i]]);
        b.send(s.rank((s.me + step) % n), sent);
        b.receive(s.rank((s.me - step + n) % n), got);
        for (std::size_t i = 0; i < leaving.size(); ++i) at[leaving[i]] = part(got, i * count, count);
    }
    TUTTI_ASSERT(at.size() == static_cast<std::size_t>(n));
    for (int distance = 0; distance < n; ++distance) {
        const auto from = static_cast<std::size_t>((s.me - distance + n) % n);
        b.copy({Buffer::output, q.receive_offsets[from], count}, at[static_cast<std::size_t>(distance)]);
    }
}

// In step k everyone tells the rank at distance 2^k that it, and all it has heard of, have entered.
void barrier_dissemination(Builder& b, const RankList& s) {
    TUTTI_ASSERT(s.me >= 0 && s.me < s.size());
    const int n = s.size();
    for (int distance = 1; distance < n; distance *= 2) {
        b.send_signal(s.rank((s.me + distance) % n));
        b.receive_signal(s.rank((s.me - distance + n) % n));
    }
}

}  // namespace tutti::algorithm::messages
