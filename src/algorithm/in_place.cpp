// Collectives in place: ranks of one host that reach each other's buffers, by symmetric memory or by calls of the
// kernel. They meet once, and no value passes through the staging area.
//
// Reductions: each rank combines one slice of all inputs in one pass, in rank order, and puts the result where it
// belongs on all ranks: 4 bytes move for each byte of two ranks, where the staging area takes 8.
//   n = 2:   rank 0   meet | out[s0] of both = x0[s0] op x1[s0] | settle
// Broadcast and gather: both sides copy, since one core does not use up the memory's bandwidth.
// Source: the two-phase reduction of Rabenseifner (2004) with direct access, as in XPMEM-based collectives (Hashmi et
// al., 2018).
#include "algorithm/tiles.hpp"
#include "core/assert.hpp"

#include <vector>

namespace tutti::algorithm::in_place {
namespace {

// The chunk of every rank's input, in rank order.
std::vector<Operand> of_all(const RankList& s, Chunk own, Chunk others) {
    std::vector<Operand> operands;
    for (int i = 0; i < s.size(); ++i) {
        if (i == s.me)
            operands.push_back({.chunk = own});
        else
            operands.push_back({.peer = s.rank(i), .chunk = others});
    }
    TUTTI_ASSERT(operands.size() == static_cast<std::size_t>(s.size()));
    return operands;
}

Chunk input_of(Chunk chunk) {
    return {Buffer::input, chunk.offset, chunk.count};
}

}  // namespace

void all_reduce(Builder& b, const RankList& s, Chunk input, Chunk output, bool in_place) {
    TUTTI_ASSERT(input.count == output.count && in_place == (input.buffer == Buffer::output));
    if (in_place) b.input_is_output();
    b.meet(std::vector{input, output}, true);
    const Chunk mine = piece_of(output, s.size(), s.me), from = piece_of(input, s.size(), s.me);
    b.combine_in_place(-1, mine, of_all(s, from, input_of(from)), true, true);
}

void reduce(Builder& b, const RankList& s, int root, Chunk input, Chunk output, bool in_place) {
    TUTTI_ASSERT(root >= 0 && root < s.size());
    const bool is_root = s.me == root;
    if (in_place && is_root) b.input_is_output();
    b.meet(is_root ? std::vector{input, output} : std::vector{input}, true);
    const Chunk from = piece_of(input, s.size(), s.me);
    const Chunk to{Buffer::output, from.offset, from.count};
    b.combine_in_place(is_root ? -1 : s.rank(root), to, of_all(s, from, input_of(from)), false, true);
}

void reduce_scatter(Builder& b, const RankList& s, const std::vector<std::uint64_t>& counts) {
    TUTTI_ASSERT(counts.size() == static_cast<std::size_t>(s.size()));
    b.meet(blocks_of(Buffer::input, counts), true);
    const Chunk block = block_of(Buffer::input, counts, s.me);
    b.combine_in_place(-1, {Buffer::output, 0, block.count}, of_all(s, block, block), false, true);
}

// The root writes one of n pieces into all others' buffers; they read the rest.
void broadcast(Builder& b, const RankList& s, int root, Chunk buffer, bool maps) {
    TUTTI_ASSERT(root >= 0 && root < s.size());
    b.meet(std::vector{buffer}, maps);
    const Chunk written = piece_of(buffer, s.size(), 0);
    const Chunk read = part(buffer, written.count, buffer.count - written.count);
    TUTTI_ASSERT(written.count + read.count == buffer.count);
    if (s.me != root) return b.get(s.rank(root), read, read);
    for (int i = 1; i < s.size(); ++i) b.put(s.rank((root + i) % s.size()), written, written);
}

// Each rank writes most of its block to the root; the root reads the rest, and copies its own: so that both sides take
// as long, where the kernel copies between ranks at some third of the speed.
void gather(Builder& b, const RankList& s, int root, const std::vector<std::uint64_t>& counts, bool maps) {
    TUTTI_ASSERT(counts.size() == static_cast<std::size_t>(s.size()) && root >= 0 && root < s.size());
    const Chunk own{Buffer::input, 0, counts[static_cast<std::size_t>(s.me)]};
    const auto to_read = [&](Chunk block) {
        return part(block, 0, block.count * 5 / (8 * static_cast<std::uint64_t>(s.size())));
    };
    const auto to_write = [&](Chunk block) {
        const std::uint64_t before = to_read(block).count;
        return part(block, before, block.count - before);
    };
    const auto block = [&](int i) { return block_of(Buffer::output, counts, i); };
    b.meet(s.me == root ? blocks_of(Buffer::output, counts) : std::vector{to_read(own)}, maps);
    if (s.me != root) return b.put(s.rank(root), to_write(block(s.me)), to_write(own));
    b.copy(block(root), own, own.count);
    for (int i = 0; i < s.size(); ++i) {
        if (i == root) continue;
        const Chunk there{Buffer::input, 0, counts[static_cast<std::size_t>(i)]};
        b.get(s.rank(i), to_read(block(i)), to_read(there));
    }
}

void all_gather(Builder& b, const RankList& s, const std::vector<std::uint64_t>& counts) {
    TUTTI_ASSERT(counts.size() == static_cast<std::size_t>(s.size()));
    const Chunk own{Buffer::input, 0, counts[static_cast<std::size_t>(s.me)]};
    b.meet(std::vector{own}, true);
    b.copy(block_of(Buffer::output, counts, s.me), own, own.count);
    for (int i = 1; i < s.size(); ++i) {
        const int peer = (s.me + i) % s.size();
        const Chunk block = block_of(Buffer::output, counts, peer);
        b.get(s.rank(peer), block, {Buffer::input, 0, block.count});
    }
}

void scatter(Builder& b, const RankList& s, int root, const std::vector<std::uint64_t>& counts) {
    TUTTI_ASSERT(counts.size() == static_cast<std::size_t>(s.size()) && root >= 0 && root < s.size());
    const Chunk own{Buffer::output, 0, counts[static_cast<std::size_t>(s.me)]};
    b.meet(s.me == root ? blocks_of(Buffer::input, counts) : std::vector<Chunk>{}, true);
    const Chunk block = block_of(Buffer::input, counts, s.me);
    if (s.me == root)
        b.copy(own, block, own.count);
    else
        b.get(s.rank(root), own, block);
}

}  // namespace tutti::algorithm::in_place
