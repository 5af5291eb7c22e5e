// Reductions through a staging area that the ranks of one host share (and their barrier).
//
// One-shot: everyone publishes its values, everyone combines all of them, in rank order.
//   n = 2, one tile:   rank 0  publish(x0) | out = x0 op [x1]      rank 1  publish(x1) | out = [x0] op x1
//   For one rank alone, the others only publish, and run ahead.
// Two-shot: the values are cut into tiles, a tile into one slice per rank. Everyone asks, that is publishes, the slices
// of the others; the owner combines its own (never staged) with theirs, in rank order, and answers with the result,
// which everyone reads.
//   n = 2, tile t:     rank 0  publish(x0[s1]) | out[s0] = x0[s0] op [x1[s0]] | publish(out[s0]) | out[s1] = [out[s1]]
// Steps of neighbouring tiles are interleaved, so that a rank seldom waits for a publication that has just been made.
// Source: the two-phase reduction of Rabenseifner (2004), with direct access in both phases as in shared-memory MPI
// collectives (Graham and Shipman, 2008).
#include "algorithm/tiles.hpp"
#include "core/assert.hpp"

namespace tutti::algorithm::shared {
namespace {

void combine_pieces(Builder& b, const RankList& s, std::uint32_t round, const Tile& tile, Chunk target, bool finish) {
    TUTTI_ASSERT(tile.pieces.size() == static_cast<std::size_t>(s.size()) &&
                 target.count == tile.pieces[static_cast<std::size_t>(s.me)]);
    std::vector<Operand> operands;
    for (int i = 0; i < s.size(); ++i) {
        if (i == s.me) {
            operands.push_back({.chunk = tile.mine[static_cast<std::size_t>(i)]});
        } else {
            operands.push_back({.peer = s.rank(i),
                                .chunk = {.count = tile.pieces[static_cast<std::size_t>(s.me)]},
                                .slot_offset = before(tile.pieces, i, s.me)});
        }
    }
    b.read_combine(round, target, operands, finish);
}

}  // namespace

void all_reduce_one_shot(Builder& b, const RankList& s, const Staging& staging, Chunk input, Chunk output,
                         bool finish) {
    TUTTI_ASSERT(staging.slot > 0 && input.count == output.count);
    const std::uint64_t tiles = ceil_div(input.count, staging.slot);
    const std::uint32_t first = b.next_round();
    const auto tile = [&](Chunk whole, std::uint64_t t) {
        return part(whole, t * staging.slot, std::min(staging.slot, whole.count - t * staging.slot));
    };
    pipeline(
        tiles, [&](std::uint64_t t) { b.publish(first + static_cast<std::uint32_t>(t), std::vector{tile(input, t)}); },
        [&](std::uint64_t t) {
            const auto round = first + static_cast<std::uint32_t>(t);
            std::vector<Operand> operands;
            for (int i = 0; i < s.size(); ++i) {
                if (i == s.me)
                    operands.push_back({.chunk = tile(input, t)});
                else
                    operands.push_back({.peer = s.rank(i), .chunk = {.count = tile(input, t).count}});
            }
            b.read_combine(round, tile(output, t), operands, finish);
            b.release(round + 1);
        });
    b.use_rounds(static_cast<std::uint32_t>(tiles));
}

void all_reduce_two_shot(Builder& b, const RankList& s, const Staging& staging, Chunk input, Chunk output,
                         bool finish) {
    TUTTI_ASSERT(staging.slot > 0 && input.count == output.count);
    const int n = s.size();
    const std::uint64_t piece = piece_elements(staging, n);
    const std::uint64_t tile_count = piece * static_cast<std::uint64_t>(n);
    const std::uint64_t tiles = ceil_div(input.count, tile_count);
    TUTTI_ASSERT(tiles * tile_count >= input.count);
    const Rounds rounds(b);
    const auto slice = [&](Chunk whole, std::uint64_t t, int owner) {
        const std::uint64_t in_tile = std::min(tile_count, whole.count - t * tile_count);
        return piece_of(part(whole, t * tile_count, in_tile), n, owner);
    };
    const auto tile_of = [&](std::uint64_t t) {
        Tile tile;
        for (int i = 0; i < n; ++i) tile.add(slice(input, t, i));
        return tile;
    };
    pipeline(
        tiles, [&](std::uint64_t t) { publish_pieces(b, s, rounds.ask(t), tile_of(t)); },
        [&](std::uint64_t t) {
            combine_pieces(b, s, rounds.ask(t), tile_of(t), slice(output, t, s.me), finish);
            b.publish(rounds.answer(t), std::vector{slice(output, t, s.me)});
        },
        [&](std::uint64_t t) {
            for (int i = 1; i < n; ++i) {
                const int owner = (s.me + i) % n;
                b.read(s.rank(owner), rounds.answer(t), 0, slice(output, t, owner));
            }
            rounds.release(b, t);
        });
    Rounds::use(b, tiles);
}

void reduce_one_shot(Builder& b, const RankList& s, const Staging& staging, int root, Chunk input, Chunk output,
                     bool finish) {
    TUTTI_ASSERT(staging.slot > 0 && root >= 0 && root < s.size());
    const std::uint64_t tiles = ceil_div(input.count, staging.slot);
    const std::uint32_t first = b.next_round();
    for (std::uint64_t t = 0; t < tiles; ++t) {
        const auto round = first + static_cast<std::uint32_t>(t);
        const auto tile = [&](Chunk whole) {
            return part(whole, t * staging.slot, std::min(staging.slot, whole.count - t * staging.slot));
        };
        if (s.me != root) {
            b.publish(round, std::vector{tile(input)});
        } else {
            std::vector<Operand> operands;
            for (int i = 0; i < s.size(); ++i) {
                if (i == root)
                    operands.push_back({.chunk = tile(input)});
                else
                    operands.push_back({.peer = s.rank(i), .chunk = {.count = tile(input).count}});
            }
            b.read_combine(round, tile(output), operands, finish);
        }
        b.release(round + 1);
    }
    b.use_rounds(static_cast<std::uint32_t>(tiles));
}

std::uint64_t reduce_work(const RankList& s, const Staging& staging) {
    TUTTI_ASSERT(staging.slot > 0);
    return piece_elements(staging, s.size());
}

void reduce(Builder& b, const RankList& s, const Staging& staging, int root, Chunk input, Chunk output, bool finish) {
    TUTTI_ASSERT(staging.slot > 0 && root >= 0 && root < s.size() && (s.me != root || input.count == output.count));
    const int n = s.size();
    const std::uint64_t piece = piece_elements(staging, n);
    const std::uint64_t tile_count = piece * static_cast<std::uint64_t>(n);
    const std::uint64_t tiles = ceil_div(input.count, tile_count);
    const Rounds rounds(b);
    const auto slice = [&](Chunk whole, std::uint64_t t, int owner) {
        const std::uint64_t in_tile = std::min(tile_count, input.count - t * tile_count);
        return piece_of(part(whole, t * tile_count, in_tile), n, owner);
    };
    const auto tile_of = [&](std::uint64_t t) {
        Tile tile;
        for (int i = 0; i < n; ++i) tile.add(slice(input, t, i));
        return tile;
    };
    const auto target = [&](std::uint64_t t) {
        return s.me == root ? slice(output, t, s.me) : part(output, 0, slice(input, t, s.me).count);
    };
    pipeline(
        tiles, [&](std::uint64_t t) { publish_pieces(b, s, rounds.ask(t), tile_of(t)); },
        [&](std::uint64_t t) {
            combine_pieces(b, s, rounds.ask(t), tile_of(t), target(t), finish);
            if (s.me != root) b.publish(rounds.answer(t), std::vector{target(t)});
        },
        [&](std::uint64_t t) {
            for (int i = 0; s.me == root && i < n; ++i) {
                if (i != root) b.read(s.rank(i), rounds.answer(t), 0, slice(output, t, i));
            }
            rounds.release(b, t);
        });
    Rounds::use(b, tiles);
}

void reduce_scatter(Builder& b, const RankList& s, const Staging& staging, const std::vector<Chunk>& blocks, Chunk own,
                    bool finish) {
    TUTTI_ASSERT(blocks.size() == static_cast<std::size_t>(s.size()) &&
                 own.count == blocks[static_cast<std::size_t>(s.me)].count);
    const std::uint64_t piece = piece_elements(staging, s.size());
    const std::uint64_t tiles = ceil_div(longest(blocks), piece);
    TUTTI_ASSERT(tiles * piece >= longest(blocks));
    const std::uint32_t first = b.next_round();
    const auto tile = [&](Chunk block, std::uint64_t t) { return tile_of_block(block, piece, t); };
    const auto tile_of = [&](std::uint64_t t) {
        Tile result;
        for (int i = 0; i < s.size(); ++i) result.add(tile(blocks[static_cast<std::size_t>(i)], t));
        return result;
    };
    pipeline(
        tiles, [&](std::uint64_t t) { publish_pieces(b, s, first + static_cast<std::uint32_t>(t), tile_of(t)); },
        [&](std::uint64_t t) {
            const auto round = first + static_cast<std::uint32_t>(t);
            combine_pieces(b, s, round, tile_of(t), tile(own, t), finish);
            b.release(round + 1);
        });
    b.use_rounds(static_cast<std::uint32_t>(tiles));
}

void barrier(Builder& b, const RankList& s) {
    TUTTI_ASSERT(s.me >= 0 && s.me < s.size());
    const std::uint32_t round = b.next_round();
    b.publish(round, {});
    for (int i = 1; i < s.size(); ++i) b.read(s.rank((s.me + i) % s.size()), round, 0, {});
    b.use_rounds(1);
}

}  // namespace tutti::algorithm::shared
