// Collectives that only move blocks, through a staging area that the ranks of one host share.
#include "algorithm/tiles.hpp"

namespace tutti::algorithm::shared {

void broadcast(Builder& b, const Scope& s, const Staging& staging, int root, Chunk buffer) {
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

// Both sides copy: readers offer room for one of n slices of each tile, into which the root writes; they read the rest.
// Round 4t: the rest; 4t+1: the offers; 4t+2: the first slice, for those that could offer nothing in place. The root
// may write nothing, and then waits for no offer (Schedule::either_way), so what it publishes lies elsewhere
// (Arena::slot).
//   n = 2, tile t:   root  publish(x[s1]) | [offer] = x[s0]        other  offer(x[s0]) | x[s1] = [x[s1]]
void broadcast_both(Builder& b, const Scope& s, const Staging& staging, int root, Chunk buffer) {
    const int n = s.size();
    const std::uint64_t tile_count = staging.slot + staging.slot / static_cast<std::uint64_t>(std::max(1, n - 1));
    const std::uint64_t tiles = ceil_div(buffer.count, tile_count);
    b.begin_fours();
    const std::uint32_t first = b.next_round();
    const auto round = [&](std::uint64_t t) { return first + 4 * static_cast<std::uint32_t>(t); };
    const auto tile = [&](std::uint64_t t) {
        return part(buffer, t * tile_count, std::min(tile_count, buffer.count - t * tile_count));
    };
    const auto slice = [&](std::uint64_t t) { return piece_of(tile(t), n, 0); };
    const auto rest = [&](std::uint64_t t) { return part(tile(t), slice(t).count, tile(t).count - slice(t).count); };
    // Two tiles take all slots, so one ends before the next but one begins.
    pipeline(
        tiles,
        [&](std::uint64_t t) {
            if (s.me != root) b.publish(round(t) + 1, std::vector{slice(t)}, schedule::Offer::room);
        },
        [&](std::uint64_t t) {
            if (s.me == root) {
                b.publish(round(t), std::vector{rest(t)});
                for (int i = 1; i < n; ++i) b.write(s.rank((root + i) % n), round(t) + 1, 0, slice(t));
                b.publish_undelivered(round(t) + 2, std::vector{slice(t)});
            } else {
                b.read(s.rank(root), round(t), 0, rest(t));
                b.read_undelivered(s.rank(root), round(t) + 2, 0, slice(t));
            }
            b.release(round(t) + 4);
        });
    b.use_rounds(4 * static_cast<std::uint32_t>(tiles));
}

void all_gather(Builder& b, const Scope& s, const Staging& staging, Chunk own, const std::vector<Chunk>& blocks) {
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

void gather(Builder& b, const Scope& s, const Staging& staging, int root, const std::vector<std::uint64_t>& counts) {
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

// Everybody writes its own block, where the root offers room for it; the answer is the block, if there was no room.
void gather_both(Builder& b, const Scope& s, const Staging& staging, int root,
                 const std::vector<std::uint64_t>& counts) {
    const std::uint64_t tiles = ceil_div(*std::ranges::max_element(counts), staging.slot);
    const Rounds rounds(b);
    const auto tile = [&](Chunk block, std::uint64_t t) { return tile_of_block(block, staging.slot, t); };
    const auto tiles_of = [&](std::uint64_t t) {
        Tile result;
        for (int i = 0; i < s.size(); ++i) result.add(tile(block_of(Buffer::output, counts, i), t));
        return result;
    };
    const Chunk own{Buffer::input, 0, counts[static_cast<std::size_t>(s.me)]};
    pipeline(
        tiles,
        [&](std::uint64_t t) {
            if (s.me == root) publish_pieces(b, s, rounds.ask(t), tiles_of(t), schedule::Offer::room);
        },
        [&](std::uint64_t t) {
            if (s.me == root) return b.copy(tile(block_of(Buffer::output, counts, root), t), tile(own, t), own.count);
            b.write(s.rank(root), rounds.ask(t), before(tiles_of(t).pieces, root, s.me), tile(own, t));
            b.publish_undelivered(rounds.answer(t), std::vector{tile(own, t)}, s.rank(root));
        },
        [&](std::uint64_t t) {
            for (int i = 0; s.me == root && i < s.size(); ++i) {
                if (i != root)
                    b.read_undelivered(s.rank(i), rounds.answer(t), 0, tile(block_of(Buffer::output, counts, i), t));
            }
            rounds.release(b, t);
        });
    Rounds::use(b, tiles);
}

// Each rank writes most of its block to the root, if there is room for it; the root reads the rest, while it copies its
// own: so that both sides take as long, where the kernel copies between ranks at some third of the speed. Rounds and
// order as in broadcast_both.
//   n = 2, tile t:   root   offer(out[s1]) | out[0] = x0 | out[r1] = [x1[r1]]
//                    other  publish(x1[r1]) | [offer] = x1[s1]
void gather_split(Builder& b, const Scope& s, const Staging& staging, int root,
                  const std::vector<std::uint64_t>& counts) {
    const std::uint64_t tiles = ceil_div(*std::ranges::max_element(counts), staging.slot);
    b.begin_fours();
    const std::uint32_t first = b.next_round();
    const auto round = [&](std::uint64_t t) { return first + 4 * static_cast<std::uint32_t>(t); };
    const auto tile = [&](Chunk block, std::uint64_t t) { return tile_of_block(block, staging.slot, t); };
    const auto rest = [&](Chunk block, std::uint64_t t) {
        const Chunk whole = tile(block, t);
        return part(whole, 0, whole.count * 5 / (8 * static_cast<std::uint64_t>(s.size())));
    };
    const auto slice = [&](Chunk block, std::uint64_t t) {
        const std::uint64_t before = rest(block, t).count;
        return part(tile(block, t), before, tile(block, t).count - before);
    };
    const auto slices = [&](std::uint64_t t) {
        Tile result;
        for (int i = 0; i < s.size(); ++i) result.add(slice(block_of(Buffer::output, counts, i), t));
        return result;
    };
    const Chunk own{Buffer::input, 0, counts[static_cast<std::size_t>(s.me)]};
    pipeline(
        tiles,
        [&](std::uint64_t t) {
            if (s.me == root)
                publish_pieces(b, s, round(t) + 1, slices(t), schedule::Offer::room);
            else
                b.publish(round(t), std::vector{rest(own, t)});
        },
        [&](std::uint64_t t) {
            if (s.me != root) {
                b.write(s.rank(root), round(t) + 1, before(slices(t).pieces, root, s.me), slice(own, t));
                b.publish_undelivered(round(t) + 2, std::vector{slice(own, t)}, s.rank(root));
            } else {
                b.copy(tile(block_of(Buffer::output, counts, root), t), tile(own, t), own.count);
                for (int i = 0; i < s.size(); ++i) {
                    if (i != root) b.read(s.rank(i), round(t), 0, rest(block_of(Buffer::output, counts, i), t));
                }
                for (int i = 0; i < s.size(); ++i) {
                    if (i != root)
                        b.read_undelivered(s.rank(i), round(t) + 2, 0, slice(block_of(Buffer::output, counts, i), t));
                }
            }
            b.release(round(t) + 4);
        });
    b.use_rounds(4 * static_cast<std::uint32_t>(tiles));
}

void scatter(Builder& b, const Scope& s, const Staging& staging, int root, const std::vector<std::uint64_t>& counts) {
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
void all_to_all(Builder& b, const Scope& s, const Staging& staging, const Request& request) {
    const int n = s.size();
    const auto distances = static_cast<std::uint64_t>(n - 1);
    const auto block = [](Buffer buffer, const auto& offsets, const auto& counts, int i) {
        return Chunk{buffer, offsets[static_cast<std::size_t>(i)], counts[static_cast<std::size_t>(i)]};
    };
    const auto sent = [&](int i) { return block(Buffer::input, request.send_offsets, request.send_counts, i); };
    const auto received = [&](int i) {
        return block(Buffer::output, request.receive_offsets, request.receive_counts, i);
    };
    const std::uint64_t tile = std::max<std::uint64_t>(1, staging.slot / 2);
    const auto tile_of = [&](Chunk whole, std::uint64_t t) { return tile_of_block(whole, tile, t); };
    const std::uint64_t rounds = ceil_div(request.largest_count.value_or(0), tile) * distances;
    const std::uint32_t first = b.next_round();
    pipeline(
        rounds,
        [&](std::uint64_t r) {
            const int to = (s.me + 1 + static_cast<int>(r % distances)) % n;
            const Chunk chunk = tile_of(sent(to), r / distances);
            if (chunk.count > 0)
                b.publish(first + static_cast<std::uint32_t>(r), std::vector{chunk}, schedule::Offer::none, s.rank(to));
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

}  // namespace tutti::algorithm::shared
