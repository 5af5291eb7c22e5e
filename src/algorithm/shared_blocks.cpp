// Collectives that only move blocks, through a staging area that the ranks of one host share.
#include "algorithm/tiles.hpp"
#include "core/assert.hpp"

namespace tutti::algorithm::shared {

void broadcast(Builder& b, const RankList& s, const Staging& staging, int root, Chunk buffer) {
    TUTTI_ASSERT(staging.slot > 0 && root >= 0 && root < s.size());
    const std::uint64_t tiles = ceil_div(buffer.count, staging.slot);
    const std::uint32_t first = b.next_round();
    for (std::uint64_t t = 0; t < tiles; ++t) {
        const auto round = first + static_cast<std::uint32_t>(t);
        const Chunk tile = part(buffer, t * staging.slot, std::min(staging.slot, buffer.count - t * staging.slot));
        if (s.me == root)
            b.publish(round, std::vector{tile});
        else
            b.read(s.rank(root), round, 0, tile);
        b.release(round + 1);
    }
    b.use_rounds(static_cast<std::uint32_t>(tiles));
}

void all_gather(Builder& b, const RankList& s, const Staging& staging, Chunk own, const std::vector<Chunk>& blocks) {
    TUTTI_ASSERT(blocks.size() == static_cast<std::size_t>(s.size()) &&
                 own.count == blocks[static_cast<std::size_t>(s.me)].count);
    const std::uint64_t tiles = ceil_div(longest(blocks), staging.slot);
    const std::uint32_t first = b.next_round();
    const auto tile = [&](Chunk block, std::uint64_t t) { return tile_of_block(block, staging.slot, t); };
    pipeline(
        tiles, [&](std::uint64_t t) { b.publish(first + static_cast<std::uint32_t>(t), std::vector{tile(own, t)}); },
        [&](std::uint64_t t) {
            b.copy(tile(blocks[static_cast<std::size_t>(s.me)], t), tile(own, t), own.count);
            for (int i = 1; i < s.size(); ++i) {
                const int peer = (s.me + i) % s.size();
                b.read(s.rank(peer), first + static_cast<std::uint32_t>(t), 0,
                       tile(blocks[static_cast<std::size_t>(peer)], t));
            }
            b.release(first + static_cast<std::uint32_t>(t) + 1);
        });
    b.use_rounds(static_cast<std::uint32_t>(tiles));
}

void gather(Builder& b, const RankList& s, const Staging& staging, int root, const std::vector<std::uint64_t>& counts) {
    TUTTI_ASSERT(counts.size() == static_cast<std::size_t>(s.size()) && staging.slot > 0 && root >= 0 &&
                 root < s.size());
    const std::uint64_t tiles = ceil_div(*std::ranges::max_element(counts), staging.slot);
    const std::uint32_t first = b.next_round();
    const auto tile = [&](Chunk block, std::uint64_t t) { return tile_of_block(block, staging.slot, t); };
    const Chunk own{Buffer::input, 0, counts[static_cast<std::size_t>(s.me)]};
    for (std::uint64_t t = 0; t < tiles; ++t) {
        const auto round = first + static_cast<std::uint32_t>(t);
        if (s.me != root)
            b.publish(round, std::vector{tile(own, t)});
        else
            b.copy(tile(block_of(Buffer::output, counts, root), t), tile(own, t), own.count);
        for (int i = 0; s.me == root && i < s.size(); ++i) {
            if (i != root) b.read(s.rank(i), round, 0, tile(block_of(Buffer::output, counts, i), t));
        }
        b.release(round + 1);
    }
    b.use_rounds(static_cast<std::uint32_t>(tiles));
}

void scatter(Builder& b, const RankList& s, const Staging& staging, int root,
             const std::vector<std::uint64_t>& counts) {
    TUTTI_ASSERT(counts.size() == static_cast<std::size_t>(s.size()) && root >= 0 && root < s.size());
    const std::uint64_t piece = piece_elements(staging, s.size());
    const std::uint64_t tiles = ceil_div(*std::ranges::max_element(counts), piece);
    const std::uint32_t first = b.next_round();
    const auto tile = [&](Chunk block, std::uint64_t t) { return tile_of_block(block, piece, t); };
    const Chunk own{Buffer::output, 0, counts[static_cast<std::size_t>(s.me)]};
    for (std::uint64_t t = 0; t < tiles; ++t) {
        const auto round = first + static_cast<std::uint32_t>(t);
        Tile pieces;
        for (int i = 0; i < s.size(); ++i) pieces.add(tile(block_of(Buffer::input, counts, i), t));
        if (s.me == root) {
            publish_pieces(b, s, round, pieces);
            b.copy(tile(own, t), pieces.mine[static_cast<std::size_t>(root)], own.count);
        } else {
            b.read(s.rank(root), round, before(pieces.pieces, root, s.me), tile(own, t));
        }
        b.release(round + 1);
    }
    b.use_rounds(static_cast<std::uint32_t>(tiles));
}

// Blocks are cut into tiles. In round t(n-1) + i-1 everyone publishes tile t of its block for the rank at distance i.
// How many rounds there are follows from the largest block; those for which a pair has nothing left are left out.
//   n = 2:   rank 0  publish(x0[b1]) | out[0] = x0[b0] | out[1] = [x1[b0]]
void all_to_all(Builder& b, const RankList& s, const Staging& staging, const Request& request) {
    const int n = s.size();
    TUTTI_ASSERT(request.send_counts.size() == static_cast<std::size_t>(n) &&
                 request.receive_counts.size() == static_cast<std::size_t>(n));
    const auto distances = static_cast<std::uint64_t>(n - 1);
    const auto block = [](Buffer buffer, const auto& offsets, const auto& counts, int i) {
        return Chunk{buffer, offsets[static_cast<std::size_t>(i)], counts[static_cast<std::size_t>(i)]};
    };
    const auto sent = [&](int i) { return block(Buffer::input, request.send_offsets, request.send_counts, i); };
    const auto received = [&](int i) {
        return block(Buffer::output, request.receive_offsets, request.receive_counts, i);
    };
    TUTTI_ASSERT(sent(s.me).count == received(s.me).count);
    const std::uint64_t tile = std::max<std::uint64_t>(1, staging.slot / 2);
    const auto tile_of = [&](Chunk whole, std::uint64_t t) { return tile_of_block(whole, tile, t); };
    const std::uint64_t rounds = ceil_div(request.largest_count.value_or(0), tile) * distances;
    const std::uint32_t first = b.next_round();
    pipeline(
        rounds,
        [&](std::uint64_t r) {
            const int to = (s.me + 1 + static_cast<int>(r % distances)) % n;
            const Chunk chunk = tile_of(sent(to), r / distances);
            if (chunk.count > 0) b.publish(first + static_cast<std::uint32_t>(r), std::vector{chunk});
            if (r == 0) b.copy(received(s.me), sent(s.me));
        },
        [&](std::uint64_t r) {
            const int from = (s.me + n - 1 - static_cast<int>(r % distances)) % n;
            const Chunk chunk = tile_of(received(from), r / distances);
            const auto round = first + static_cast<std::uint32_t>(r);
            if (chunk.count > 0) b.read(s.rank(from), round, 0, chunk);
            b.release(round + 1);
        });
    if (rounds == 0) b.copy(received(s.me), sent(s.me));
    b.use_rounds(static_cast<std::uint32_t>(rounds));
}

// Everyone publishes its blocks for the others, one after the other, and reads its own of each.
void all_to_all_even(Builder& b, const RankList& s, const Request& request) {
    TUTTI_ASSERT(request.send_offsets.size() == static_cast<std::size_t>(s.size()) &&
                 request.largest_count.has_value());
    const std::uint64_t count = request.largest_count.value_or(0);
    const auto block = [&](Buffer buffer, const auto& offsets, int i) {
        return Chunk{buffer, offsets[static_cast<std::size_t>(i)], count};
    };
    std::vector<Chunk> others;
    for (int i = 0; i < s.size(); ++i) {
        if (i != s.me) others.push_back(block(Buffer::input, request.send_offsets, i));
    }
    TUTTI_ASSERT(others.size() + 1 == static_cast<std::size_t>(s.size()));
    const std::uint32_t round = b.next_round();
    b.publish(round, others);
    b.copy(block(Buffer::output, request.receive_offsets, s.me), block(Buffer::input, request.send_offsets, s.me));
    for (int i = 0; i < s.size(); ++i) {
        if (i == s.me) continue;
        const auto before = static_cast<std::uint64_t>(s.me - (i < s.me ? 1 : 0));
        b.read(s.rank(i), round, before * count, block(Buffer::output, request.receive_offsets, i));
    }
    b.use_rounds(1);
}

// A gather_v, in which each rank publishes its block for the root, or a scatter_v, in which the root publishes all.
void rooted_exchange_even(Builder& b, const RankList& s, const Request& request) {
    TUTTI_ASSERT(request.send_offsets.size() == static_cast<std::size_t>(s.size()) &&
                 request.largest_count.has_value());
    const std::uint64_t count = request.largest_count.value_or(0);
    const auto block = [&](Buffer buffer, const auto& offsets, int i) {
        return Chunk{buffer, offsets[static_cast<std::size_t>(i)], count};
    };
    const bool gathers = request.collective == Collective::gather_v, is_root = s.me == request.root;
    std::vector<Chunk> others;
    for (int i = 0; i < s.size(); ++i) {
        if (i != s.me && (gathers ? i == request.root : is_root))
            others.push_back(block(Buffer::input, request.send_offsets, i));
    }
    const std::uint32_t round = b.next_round();
    if (!others.empty()) b.publish(round, others);
    if (is_root)
        b.copy(block(Buffer::output, request.receive_offsets, s.me), block(Buffer::input, request.send_offsets, s.me));
    for (int i = 0; i < s.size(); ++i) {
        if (i == s.me || !(gathers ? is_root : i == request.root)) continue;
        const auto before = gathers ? std::uint64_t{0} : static_cast<std::uint64_t>(s.me - (i < s.me ? 1 : 0));
        b.read(s.rank(i), round, before * count, block(Buffer::output, request.receive_offsets, i));
    }
    b.release(round + 1);
    b.use_rounds(1);
}

}  // namespace tutti::algorithm::shared
