// Collectives through a staging area that the ranks of one host share.
//
// One-shot: everyone publishes its values, everyone combines all of them, in rank order.
//   n = 2, one tile:   rank 0  publish(x0) | out = x0 op [x1]      rank 1  publish(x1) | out = [x0] op x1
//   For one rank alone, the others only publish, and run ahead.
// Two-shot: the values are cut into tiles, a tile into one slice per rank. Everyone asks, that is publishes, the slices
// of the others; the owner combines its own (never staged) with theirs, in rank order, and answers with the result,
// which everyone reads.
//   n = 2, tile t:     rank 0  publish(x0[s1]) | out[s0] = x0[s0] op [x1[s0]] | publish(out[s0]) | out[s1] = [out[s1]]
// Steps of neighbouring tiles are interleaved, so that a rank seldom waits for what has just been published.
// Source: the two-phase reduction of Rabenseifner (2004), with direct access in both phases as in shared-memory MPI
// collectives (Graham and Shipman, 2008).
#include "algorithm/generators.hpp"

#include <algorithm>

namespace tutti::algorithm::shared {
namespace {

std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) {
    return (a + b - 1) / b;
}

// Positions before `owner` in the slot of `writer`, which leaves out its own piece.
std::uint64_t before(const std::vector<std::uint64_t>& pieces, int writer, int owner) {
    std::uint64_t sum = 0;
    for (int i = 0; i < owner; ++i) {
        if (i != writer) sum += pieces[static_cast<std::size_t>(i)];
    }
    return sum;
}

// Elements of a piece such that n - 1 of them fit into a slot; a multiple of 64 where there is room.
std::uint64_t piece_elements(const Staging& staging, int n) {
    const std::uint64_t piece =
        std::max<std::uint64_t>(1, staging.slot / static_cast<std::uint64_t>(std::max(1, n - 1)));
    return piece >= 64 ? piece / 64 * 64 : piece;
}

std::uint64_t longest(const std::vector<Chunk>& blocks) {
    return std::ranges::max_element(blocks, {}, &Chunk::count)->count;
}

// Combines everyone's piece of one tile on its owner. `own(i)`: where my piece for owner i lies.
struct Tile {
    std::vector<Chunk> mine;            // my input, by owner
    std::vector<std::uint64_t> pieces;  // counts, by owner
};

void publish_pieces(Builder& b, const Scope& s, std::uint32_t round, const Tile& tile,
                    schedule::Offer offer = schedule::Offer::none) {
    std::vector<Chunk> out;
    for (int i = 0; i < s.size(); ++i) {
        if (i != s.me) out.push_back(tile.mine[static_cast<std::size_t>(i)]);
    }
    b.publish(round, out, offer);
}

void combine_pieces(Builder& b, const Scope& s, std::uint32_t round, const Tile& tile, Chunk target, bool finish) {
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
    b.read_combine_deliver(round, target, operands, finish);
}

// The rounds of tiles in which ranks ask and answer. Four rounds belong to two tiles: ask, ask, answer, answer. So an
// answer comes two rounds after what it answers, and between two ranks lies in the same memory (Arena::slot).
struct Rounds {
    std::uint32_t first;
    explicit Rounds(Builder& b) {
        b.begin_fours();
        first = b.next_round();
    }
    std::uint32_t ask(std::uint64_t tile) const {
        return first + static_cast<std::uint32_t>(4 * (tile / 2) + tile % 2);
    }
    std::uint32_t answer(std::uint64_t tile) const { return ask(tile) + 2; }
    /// Answers are read in the order of tiles, and after what was asked of the next tile.
    void release(Builder& b, std::uint64_t tile) const { b.release(answer(tile) + 1); }
    static void use(Builder& b, std::uint64_t tiles) {
        b.use_rounds(static_cast<std::uint32_t>(4 * ceil_div(tiles, 2)));
    }
};

// Where the result takes the place of the input, it may be written there by whoever computes it.
schedule::Offer in_place(const Chunk& input, const Chunk& output) {
    return input == output ? schedule::Offer::result : schedule::Offer::none;
}

void read_result(Builder& b, Rank owner, std::uint32_t round, Chunk target, schedule::Offer offered) {
    if (offered == schedule::Offer::result)
        b.read_undelivered(owner, round, 0, target);
    else
        b.read(owner, round, 0, target);
}

}  // namespace

void all_reduce_one_shot(Builder& b, const Scope& s, const Staging& staging, Chunk input, Chunk output, bool finish) {
    const schedule::Offer offer = input == output ? schedule::Offer::copy : schedule::Offer::none;
    const std::uint64_t tiles = ceil_div(input.count, staging.slot);
    const std::uint32_t first = b.next_round();
    const auto tile = [&](Chunk whole, std::uint64_t t) {
        return part(whole, t * staging.slot, std::min(staging.slot, whole.count - t * staging.slot));
    };
    pipeline(
        tiles,
        [&](std::uint64_t t) { b.publish(first + static_cast<std::uint32_t>(t), std::vector{tile(input, t)}, offer); },
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

void all_reduce_two_shot(Builder& b, const Scope& s, const Staging& staging, Chunk input, Chunk output, bool finish) {
    const int n = s.size();
    const std::uint64_t piece = piece_elements(staging, n);
    const std::uint64_t tile_count = piece * static_cast<std::uint64_t>(n);
    const std::uint64_t tiles = ceil_div(input.count, tile_count);
    const Rounds rounds(b);
    const auto slice = [&](Chunk whole, std::uint64_t t, int owner) {
        const std::uint64_t in_tile = std::min(tile_count, whole.count - t * tile_count);
        return piece_of(part(whole, t * tile_count, in_tile), n, owner);
    };
    const auto tile_of = [&](std::uint64_t t) {
        Tile tile;
        for (int i = 0; i < n; ++i) {
            tile.mine.push_back(slice(input, t, i));
            tile.pieces.push_back(tile.mine.back().count);
        }
        return tile;
    };
    pipeline(
        tiles, [&](std::uint64_t t) { publish_pieces(b, s, rounds.ask(t), tile_of(t), in_place(input, output)); },
        [&](std::uint64_t t) {
            combine_pieces(b, s, rounds.ask(t), tile_of(t), slice(output, t, s.me), finish);
            b.publish_undelivered(rounds.answer(t), std::vector{slice(output, t, s.me)});
        },
        [&](std::uint64_t t) {
            for (int i = 1; i < n; ++i) {
                const int owner = (s.me + i) % n;
                read_result(b, s.rank(owner), rounds.answer(t), slice(output, t, owner), in_place(input, output));
            }
            rounds.release(b, t);
        });
    Rounds::use(b, tiles);
}

void reduce_one_shot(Builder& b, const Scope& s, const Staging& staging, int root, Chunk input, Chunk output,
                     bool finish) {
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

std::uint64_t reduce_work(const Scope& s, const Staging& staging) {
    return piece_elements(staging, s.size());
}

void reduce(Builder& b, const Scope& s, const Staging& staging, int root, Chunk input, Chunk output, bool finish) {
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
        for (int i = 0; i < n; ++i) {
            tile.mine.push_back(slice(input, t, i));
            tile.pieces.push_back(tile.mine.back().count);
        }
        return tile;
    };
    const schedule::Offer offer = s.me == root ? in_place(input, output) : schedule::Offer::none;
    const auto target = [&](std::uint64_t t) {
        return s.me == root ? slice(output, t, s.me) : part(output, 0, slice(input, t, s.me).count);
    };
    pipeline(
        tiles, [&](std::uint64_t t) { publish_pieces(b, s, rounds.ask(t), tile_of(t), offer); },
        [&](std::uint64_t t) {
            combine_pieces(b, s, rounds.ask(t), tile_of(t), target(t), finish);
            if (s.me != root) b.publish_undelivered(rounds.answer(t), std::vector{target(t)}, s.rank(root));
        },
        [&](std::uint64_t t) {
            for (int i = 0; s.me == root && i < n; ++i) {
                if (i != root) read_result(b, s.rank(i), rounds.answer(t), slice(output, t, i), offer);
            }
            rounds.release(b, t);
        });
    Rounds::use(b, tiles);
}

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
    const auto tile = [&](Chunk block, std::uint64_t t) {
        const std::uint64_t start = std::min(block.count, t * staging.slot);
        return part(block, start, std::min(staging.slot, block.count - start));
    };
    pipeline(
        tiles, [&](std::uint64_t t) { b.publish(first + static_cast<std::uint32_t>(t), std::vector{tile(own, t)}); },
        [&](std::uint64_t t) {
            b.copy(tile(blocks[static_cast<std::size_t>(s.me)], t), tile(own, t));
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
    const auto tile = [&](Chunk block, std::uint64_t t) {
        const std::uint64_t start = std::min(block.count, t * staging.slot);
        return part(block, start, std::min(staging.slot, block.count - start));
    };
    const Chunk own{Buffer::input, 0, counts[static_cast<std::size_t>(s.me)]};
    for (std::uint64_t t = 0; t < tiles; ++t) {
        const auto round = first + static_cast<std::uint32_t>(t);
        if (s.me != root)
            b.publish(round, std::vector{tile(own, t)});
        else
            b.copy(tile(block_of(Buffer::output, counts, root), t), tile(own, t));
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
    const auto tile = [&](Chunk block, std::uint64_t t) {
        const std::uint64_t start = std::min(block.count, t * staging.slot);
        return part(block, start, std::min(staging.slot, block.count - start));
    };
    const auto tiles_of = [&](std::uint64_t t) {
        Tile result;
        for (int i = 0; i < s.size(); ++i) {
            result.mine.push_back(tile(block_of(Buffer::output, counts, i), t));
            result.pieces.push_back(result.mine.back().count);
        }
        return result;
    };
    const Chunk own{Buffer::input, 0, counts[static_cast<std::size_t>(s.me)]};
    pipeline(
        tiles,
        [&](std::uint64_t t) {
            if (s.me == root) publish_pieces(b, s, rounds.ask(t), tiles_of(t), schedule::Offer::room);
        },
        [&](std::uint64_t t) {
            if (s.me == root) return b.copy(tile(block_of(Buffer::output, counts, root), t), tile(own, t));
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

void scatter(Builder& b, const Scope& s, const Staging& staging, int root, const std::vector<std::uint64_t>& counts) {
    const std::uint64_t piece = piece_elements(staging, s.size());
    const std::uint64_t tiles = ceil_div(*std::ranges::max_element(counts), piece);
    const std::uint32_t first = b.next_round();
    const auto tile = [&](Chunk block, std::uint64_t t) {
        const std::uint64_t start = std::min(block.count, t * piece);
        return part(block, start, std::min(piece, block.count - start));
    };
    const Chunk own{Buffer::output, 0, counts[static_cast<std::size_t>(s.me)]};
    for (std::uint64_t t = 0; t < tiles; ++t) {
        const auto round = first + static_cast<std::uint32_t>(t);
        Tile pieces;
        for (int i = 0; i < s.size(); ++i) {
            pieces.mine.push_back(tile(block_of(Buffer::input, counts, i), t));
            pieces.pieces.push_back(pieces.mine.back().count);
        }
        if (s.me == root) {
            publish_pieces(b, s, round, pieces);
            b.copy(tile(own, t), pieces.mine[static_cast<std::size_t>(root)]);
        } else {
            b.read(s.rank(root), round, before(pieces.pieces, root, s.me), tile(own, t));
        }
        b.release(round + 1);
    }
    b.use_rounds(static_cast<std::uint32_t>(tiles));
}

void reduce_scatter(Builder& b, const Scope& s, const Staging& staging, const std::vector<Chunk>& blocks, Chunk own,
                    bool finish) {
    const std::uint64_t piece = piece_elements(staging, s.size());
    const std::uint64_t tiles = ceil_div(longest(blocks), piece);
    const std::uint32_t first = b.next_round();
    const auto tile = [&](Chunk block, std::uint64_t t) {
        const std::uint64_t start = std::min(block.count, t * piece);
        return part(block, start, std::min(piece, block.count - start));
    };
    const auto tile_of = [&](std::uint64_t t) {
        Tile result;
        for (int i = 0; i < s.size(); ++i) {
            result.mine.push_back(tile(blocks[static_cast<std::size_t>(i)], t));
            result.pieces.push_back(result.mine.back().count);
        }
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
    const std::uint64_t tile = std::max<std::uint64_t>(1, staging.slot / 4);
    const auto tile_of = [&](Chunk whole, std::uint64_t t) {
        const std::uint64_t begin = std::min(whole.count, t * tile);
        return part(whole, begin, std::min(tile, whole.count - begin));
    };
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

void barrier(Builder& b, const Scope& s) {
    const std::uint32_t round = b.next_round();
    b.publish(round, {});
    for (int i = 1; i < s.size(); ++i) b.read(s.rank((s.me + i) % s.size()), round, 0, {});
    b.use_rounds(1);
}

}  // namespace tutti::algorithm::shared
