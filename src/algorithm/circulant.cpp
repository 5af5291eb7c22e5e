// Exchanges along a circulant graph: log2(n) rounds for any number of ranks, in which all ranks do the same.
//
// Each rank sees the blocks in its own order: R[i] is the block of the rank i behind it. A reduce_scatter halves what a
// rank still works on, R[0] … R[end - 1]: the upper half goes to the rank `half` behind, for which it is the lower one;
// at the end R[0] is complete. An all_gather is the reverse.
//   n = 5, R: 0 1 2 3 4   end 5, half 3: 3 4 go to the rank 3 behind | end 3, half 2: 2 goes 2 behind | end 2: 1 goes 1
//   behind
// A block leaves a rank once, so n - 1 of n are sent, as in the ring, which takes n - 1 rounds. Recursive halving takes
// as few, but two more where n is no power of two.
// Source: Träff, "Optimal, Non-pipelined Reduce-scatter and Allreduce Algorithms" (2024).
#include "algorithm/generators.hpp"
#include "core/assert.hpp"

#include <array>

namespace tutti::algorithm {
namespace {

using Counts = std::vector<std::uint64_t>;

// A rank's blocks in its own order, one after the other.
class Rotated {
 public:
    Rotated(Builder& b, const RankList& s, const Counts& counts) {
        TUTTI_ASSERT(counts.size() == static_cast<std::size_t>(s.size()) && s.me >= 0);
        for (int i = 0; i < s.size(); ++i)
            begins_.push_back(begins_.back() + counts[static_cast<std::size_t>((s.me + i) % s.size())]);
        place_ = b.scratch(begins_.back());
    }
    Chunk of(int from, int to) const {
        TUTTI_ASSERT(0 <= from && from <= to && static_cast<std::size_t>(to) < begins_.size());
        const std::uint64_t begin = begins_[static_cast<std::size_t>(from)];
        return part(place_, begin, begins_[static_cast<std::size_t>(to)] - begin);
    }
    // `whole` holds the blocks in the order of ranks: two runs of blocks that are runs in both orders. Rank 0 could do
    // with one, but takes as many steps as the others.
    std::array<std::pair<Chunk, Chunk>, 2> runs(const RankList& s, Chunk whole) const {
        const int first = s.me == 0 ? 1 : s.size() - s.me;
        const Chunk mine = of(0, first), rest = of(first, s.size());
        TUTTI_ASSERT(whole.count == mine.count + rest.count);
        if (s.me == 0)
            return {std::pair{mine, part(whole, 0, mine.count)}, {rest, part(whole, mine.count, rest.count)}};
        return {std::pair{mine, part(whole, rest.count, mine.count)}, {rest, part(whole, 0, rest.count)}};
    }

 private:
    std::vector<std::uint64_t> begins_{0};
    Chunk place_;
};

// (half, end) of the rounds of a reduce_scatter.
std::vector<std::pair<int, int>> rounds_of(int n) {
    std::vector<std::pair<int, int>> rounds;
    for (int end = n; end > 1; end = (end + 1) / 2) rounds.emplace_back((end + 1) / 2, end);
    return rounds;
}

void reduce_scatter_rounds(Builder& b, const RankList& s, const Rotated& blocks, bool finish) {
    const int n = s.size();
    for (const auto& [half, end] : rounds_of(n)) {
        b.send(s.rank((s.me + half) % n), blocks.of(half, end));
        const Chunk kept = blocks.of(0, end - half);
        b.receive_combine(s.rank((s.me - half + n) % n), kept, kept, false, finish && half == 1);
    }
}

void all_gather_rounds(Builder& b, const RankList& s, const Rotated& blocks) {
    const int n = s.size();
    const auto rounds = rounds_of(n);
    for (auto round = rounds.rbegin(); round != rounds.rend(); ++round) {
        const auto [half, end] = *round;
        b.receive(s.rank((s.me + half) % n), blocks.of(half, end));
        b.send(s.rank((s.me - half + n) % n), blocks.of(0, end - half));
    }
}

Counts counts_of_rail(const HostTopology& s, const Counts& counts) {
    Counts result;
    for (const Rank rank : s.rail.ranks) result.push_back(counts[static_cast<std::size_t>(rank)]);
    return result;
}

std::vector<Chunk> blocks_of_host(const HostTopology& s, int host, Buffer buffer, const Counts& counts) {
    std::vector<Chunk> blocks;
    for (const Rank rank : s.hosts[static_cast<std::size_t>(host)]) blocks.push_back(block_of(buffer, counts, rank));
    return blocks;
}

}  // namespace

namespace messages {

void all_reduce_circulant(Builder& b, const RankList& s, Chunk input, Chunk output, bool finish) {
    TUTTI_ASSERT(input.count == output.count);
    if (s.size() == 1) return b.combine(output, std::vector{input}, finish);
    if (s.size() > 2) b.not_single_rounding();
    Counts counts;
    for (int i = 0; i < s.size(); ++i) counts.push_back(piece_of(input, s.size(), i).count);
    const Rotated blocks(b, s, counts);
    for (const auto& [mine, whole] : blocks.runs(s, input)) b.copy(mine, whole);
    reduce_scatter_rounds(b, s, blocks, finish);
    all_gather_rounds(b, s, blocks);
    for (const auto& [mine, whole] : blocks.runs(s, output)) b.copy(whole, mine);
}

void reduce_scatter_circulant(Builder& b, const RankList& s, const Counts& counts, bool finish) {
    const Chunk output{Buffer::output, 0, counts[static_cast<std::size_t>(s.me)]};
    const Rotated blocks(b, s, counts);
    const Chunk whole{Buffer::input, 0, blocks.of(0, s.size()).count};
    if (s.size() == 1) return b.combine(output, std::vector{whole}, finish);
    if (s.size() > 2) b.not_single_rounding();
    for (const auto& [mine, part_of_whole] : blocks.runs(s, whole)) b.copy(mine, part_of_whole);
    reduce_scatter_rounds(b, s, blocks, finish);
    b.copy(output, blocks.of(0, 1));
}

void all_gather_circulant(Builder& b, const RankList& s, const Counts& counts) {
    const Rotated blocks(b, s, counts);
    b.copy(blocks.of(0, 1), {Buffer::input, 0, counts[static_cast<std::size_t>(s.me)]});
    all_gather_rounds(b, s, blocks);
    const Chunk whole{Buffer::output, 0, blocks.of(0, s.size()).count};
    for (const auto& [mine, part_of_whole] : blocks.runs(s, whole)) b.copy(part_of_whole, mine);
}

}  // namespace messages

namespace hosts {

void all_reduce_circulant(Builder& b, const HostTopology& s, const Staging& staging, Chunk input, Chunk output,
                          std::uint64_t message, bool finish) {
    b.not_single_rounding();
    TUTTI_ASSERT(s.even && s.rail.me >= 0 && input.count == output.count && message > 0);
    const int ranks = s.inside.size();
    const std::uint64_t block = message * static_cast<std::uint64_t>(ranks);
    const int blocks = block_count(input.count, block);
    const auto slices = [&](Chunk whole, std::uint64_t k) {
        std::vector<Chunk> pieces;
        for (int i = 0; i < ranks; ++i)
            pieces.push_back(piece_of(piece_of(whole, blocks, static_cast<int>(k)), ranks, i));
        return pieces;
    };
    const auto own = [&](std::uint64_t k) { return slices(output, k)[static_cast<std::size_t>(s.inside.me)]; };
    pipeline(
        static_cast<std::uint64_t>(blocks),
        [&](std::uint64_t k) { shared::reduce_scatter(b, s.inside, staging, slices(input, k), own(k), false); },
        [&](std::uint64_t k) { messages::all_reduce_circulant(b, s.rail, own(k), own(k), finish); },
        [&](std::uint64_t k) { shared::all_gather(b, s.inside, staging, own(k), slices(output, k)); });
}

void reduce_scatter_circulant(Builder& b, const HostTopology& s, const Staging& staging, const Counts& counts,
                              bool finish) {
    b.not_single_rounding();
    TUTTI_ASSERT(s.even && s.rail.me >= 0 && s.rail.size() > 1);
    const Rotated blocks(b, s.rail, counts_of_rail(s, counts));
    for (int i = 0; i < s.rail.size(); ++i) {
        shared::reduce_scatter(b, s.inside, staging,
                               blocks_of_host(s, (s.rail.me + i) % s.rail.size(), Buffer::input, counts),
                               blocks.of(i, i + 1), false);
    }
    reduce_scatter_rounds(b, s.rail, blocks, finish);
    b.copy({Buffer::output, 0, blocks.of(0, 1).count}, blocks.of(0, 1));
}

void all_gather_circulant(Builder& b, const HostTopology& s, const Staging& staging, const Counts& counts) {
    TUTTI_ASSERT(s.even && s.rail.me >= 0);
    const Rotated blocks(b, s.rail, counts_of_rail(s, counts));
    b.copy(blocks.of(0, 1), {Buffer::input, 0, blocks.of(0, 1).count});
    all_gather_rounds(b, s.rail, blocks);
    for (int i = 0; i < s.rail.size(); ++i) {
        shared::all_gather(b, s.inside, staging, blocks.of(i, i + 1),
                           blocks_of_host(s, (s.rail.me + i) % s.rail.size(), Buffer::output, counts));
    }
}

}  // namespace hosts
}  // namespace tutti::algorithm
