// The common parts of the collectives through a staging area: blocks cut into tiles, tiles into pieces for slots.
#pragma once

#include "algorithm/generators.hpp"
#include "core/assert.hpp"

#include <algorithm>

namespace tutti::algorithm::shared {

inline std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) {
    TUTTI_ASSERT(b > 0);
    return (a + b - 1) / b;
}

/// Elements before `owner`'s piece in the slot of `writer`, which omits its own piece.
inline std::uint64_t before(const std::vector<std::uint64_t>& pieces, int writer, int owner) {
    TUTTI_ASSERT(owner >= 0 && static_cast<std::size_t>(owner) <= pieces.size());
    std::uint64_t sum = 0;
    for (int i = 0; i < owner; ++i) {
        if (i != writer) sum += pieces[static_cast<std::size_t>(i)];
    }
    return sum;
}

/// Elements of a piece such that n - 1 of them fit into a slot; a multiple of 64 where there is room.
inline std::uint64_t piece_elements(const Staging& staging, int n) {
    TUTTI_ASSERT(staging.slot > 0 && n > 0);
    const std::uint64_t piece =
        std::max<std::uint64_t>(1, staging.slot / static_cast<std::uint64_t>(std::max(1, n - 1)));
    return piece >= 64 ? piece / 64 * 64 : piece;
}

/// Tile `t` of a block that is cut into tiles of `tile` elements; empty beyond its end.
inline Chunk tile_of_block(Chunk block, std::uint64_t tile, std::uint64_t t) {
    TUTTI_ASSERT(tile > 0);
    const std::uint64_t start = std::min(block.count, t * tile);
    return part(block, start, std::min(tile, block.count - start));
}

inline std::uint64_t longest(const std::vector<Chunk>& blocks) {
    TUTTI_ASSERT(!blocks.empty());
    return std::ranges::max_element(blocks, {}, &Chunk::count)->count;
}

/// One rank's values for all ranks in one tile.
struct Tile {
    std::vector<Chunk> mine;            ///< my input, by owner
    std::vector<std::uint64_t> pieces;  ///< counts, by owner
    void add(Chunk piece) {
        mine.push_back(piece);
        pieces.push_back(piece.count);
        TUTTI_ASSERT(mine.size() == pieces.size());
    }
};

inline void publish_pieces(Builder& b, const RankList& s, std::uint32_t round, const Tile& tile) {
    TUTTI_ASSERT(tile.mine.size() == static_cast<std::size_t>(s.size()) && s.me >= 0);
    std::vector<Chunk> out;
    for (int i = 0; i < s.size(); ++i) {
        if (i != s.me) out.push_back(tile.mine[static_cast<std::size_t>(i)]);
    }
    b.publish(round, out);
}

/// The rounds of tiles that take two publications: a question and an answer. Two tiles use four rounds: ask, ask,
/// answer, answer. So an answer comes two rounds after its question, and between two ranks lies in the same memory
/// (Arena::slot).
struct Rounds {
    std::uint32_t first;
    explicit Rounds(Builder& b) {
        b.begin_turn_group();
        first = b.next_round();
    }
    std::uint32_t ask(std::uint64_t tile) const {
        return first + static_cast<std::uint32_t>(4 * (tile / 2) + tile % 2);
    }
    std::uint32_t answer(std::uint64_t tile) const { return ask(tile) + 2; }
    /// Ranks read answers in the order of tiles, and after the questions of the next tile.
    void release(Builder& b, std::uint64_t tile) const { b.release(answer(tile) + 1); }
    static void use(Builder& b, std::uint64_t tiles) {
        b.use_rounds(static_cast<std::uint32_t>(4 * ceil_div(tiles, 2)));
    }
};

}  // namespace tutti::algorithm::shared
