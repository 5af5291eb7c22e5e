// Recursive halving and doubling: exchanges with the ranks at distance 1, 2, 4, …; any number of ranks.
//
//   halving, n = 4, blocks that a rank still works on     start abcd    distance 2: ab ab cd cd    distance 1: a b c d
//   doubling, n = 4, blocks that a rank has               start a b c d    distance 1: ab ab cd cd    distance 2: abcd
//
// n = 2^k + e: the first 2e ranks pair up; the odd one hands its values to the even one, which acts for both, and gets
// its part of the result at the end. The remaining 2^k "actors" keep the order of ranks, so an actor's share is a run
// of neighbouring ranks. Two partners combine in the same order, lower rank first, so that all compute the same bits.
// Cost: k exchanges of 1/2, 1/4, … of the bytes (+ 2 for the folded).
// Source: Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in MPICH" (2005).
#include "algorithm/generators.hpp"
#include "core/assert.hpp"

namespace tutti::algorithm::messages {
namespace {

using Chunks = std::vector<Chunk>;
using Counts = std::vector<std::uint64_t>;

const Chunk& at(const Chunks& chunks, int index) {
    TUTTI_ASSERT(index >= 0 && static_cast<std::size_t>(index) < chunks.size());
    return chunks[static_cast<std::size_t>(index)];
}

// The ranks that act, and those for which they act.
struct Fold {
    int power = 1, extra = 0;
    bool folded = false;  ///< I gave my part to the rank before me
    bool pair = false;    ///< I act for two
    int me = 0;           ///< my number among the actors

    explicit Fold(const RankList& s) {
        while (power * 2 <= s.size()) power *= 2;
        extra = s.size() - power;
        folded = s.me < 2 * extra && s.me % 2 == 1;
        pair = s.me < 2 * extra && s.me % 2 == 0;
        me = s.me < 2 * extra ? s.me / 2 : s.me - extra;
        TUTTI_ASSERT(power >= 1 && extra >= 0 && extra < power && (folded || (me >= 0 && me < power)));
    }
    /// An actor's position; it acts for the positions up to the next actor's.
    int position(int actor) const {
        TUTTI_ASSERT(actor >= 0 && actor < power);
        return actor < extra ? 2 * actor : actor + extra;
    }
};

// The blocks of actors [from, to) as one chunk: they lie one after the other.
Chunk span_of(const Chunks& blocks, const Fold& fold, int from, int to) {
    TUTTI_ASSERT(from >= 0 && from < to && to <= fold.power);
    const int end = to < fold.power ? fold.position(to) : static_cast<int>(blocks.size());
    Chunk result = at(blocks, fold.position(from));
    for (int i = fold.position(from) + 1; i < end; ++i) result.count += at(blocks, i).count;
    return result;
}

// Each actor ends with the complete values of its span in `work`; `input` is where its own values lie, unless they have
// been combined into `work` already.
void halve(Builder& b, const RankList& s, const Fold& fold, const Chunks& input, const Chunks& work, bool in_work,
           bool finish) {
    TUTTI_ASSERT(!fold.folded && input.size() == work.size());
    const Chunks* source = in_work ? &work : &input;
    int from = 0, to = fold.power;
    for (int distance = fold.power / 2; distance >= 1; distance /= 2) {
        const int partner = fold.me ^ distance, middle = (from + to) / 2;
        const bool lower = fold.me < partner;
        const Rank peer = s.rank(fold.position(partner));
        const int kept_from = lower ? from : middle, kept_to = lower ? middle : to;
        const int given_from = lower ? middle : from, given_to = lower ? to : middle;
        b.send(peer, span_of(*source, fold, given_from, given_to));
        b.receive_combine(peer, span_of(work, fold, kept_from, kept_to), span_of(*source, fold, kept_from, kept_to),
                          !lower, finish && distance == 1);
        from = kept_from;
        to = kept_to;
        source = &work;
    }
    TUTTI_ASSERT(to - from == 1 && from == fold.me);
}

// The reverse: each actor starts with its span and ends with all.
void double_up(Builder& b, const RankList& s, const Fold& fold, const Chunks& blocks) {
    TUTTI_ASSERT(!fold.folded && !blocks.empty());
    for (int distance = 1; distance < fold.power; distance *= 2) {
        const int partner = fold.me ^ distance;
        const Rank peer = s.rank(fold.position(partner));
        const int mine = fold.me & ~(distance - 1), theirs = partner & ~(distance - 1);
        b.receive(peer, span_of(blocks, fold, theirs, theirs + distance));
        b.send(peer, span_of(blocks, fold, mine, mine + distance));
    }
}

std::uint64_t total_of(const Chunks& blocks) {
    TUTTI_ASSERT(!blocks.empty());
    return blocks.back().offset + blocks.back().count;
}

}  // namespace

// Halving, so that each actor owns a slice, then doubling to collect the slices.
void all_reduce_recursive_halving(Builder& b, const RankList& s, Chunk input, Chunk output, bool finish) {
    TUTTI_ASSERT(input.count == output.count);
    if (s.size() == 1) return b.combine(output, Chunks{input}, finish);
    if (s.size() > 2) b.not_single_rounding();
    const Fold fold(s);
    if (fold.folded) {
        b.send(s.rank(s.me - 1), input);
        return b.receive(s.rank(s.me - 1), output);
    }
    if (fold.pair) b.receive_combine(s.rank(s.me + 1), output, input, false, finish && fold.power == 1);
    // One block a position; a folded position's is empty.
    const auto slices = [&](Chunk whole) {
        Chunks blocks;
        for (int actor = 0; actor < fold.power; ++actor) {
            blocks.push_back(piece_of(whole, fold.power, actor));
            const Chunk& last = blocks.back();
            if (actor < fold.extra) blocks.push_back({last.buffer, last.offset + last.count, 0});
        }
        return blocks;
    };
    const Chunks in = slices(input), out = slices(output);
    TUTTI_ASSERT(in.size() == static_cast<std::size_t>(s.size()) && total_of(out) - out.front().offset == output.count);
    halve(b, s, fold, in, out, fold.pair, finish);
    double_up(b, s, fold, out);
    if (fold.pair) b.send(s.rank(s.me + 1), output);
}

void reduce_scatter_recursive_halving(Builder& b, const RankList& s, const Counts& counts, bool finish) {
    TUTTI_ASSERT(counts.size() == static_cast<std::size_t>(s.size()));
    const Chunks in = blocks_of(Buffer::input, counts);
    const Chunk output{Buffer::output, 0, at(in, s.me).count};
    if (s.size() == 1) return b.combine(output, Chunks{at(in, 0)}, finish);
    if (s.size() > 2) b.not_single_rounding();
    const Fold fold(s);
    const Chunk whole{Buffer::input, 0, total_of(in)};
    if (fold.folded) {
        b.send(s.rank(s.me - 1), whole);
        return b.receive(s.rank(s.me - 1), output);
    }
    const Chunk space = b.scratch(whole.count);
    Chunks work = in;
    for (Chunk& chunk : work) chunk = {space.buffer, space.offset + chunk.offset, chunk.count};
    if (fold.pair) b.receive_combine(s.rank(s.me + 1), space, whole, false, finish && fold.power == 1);
    halve(b, s, fold, in, work, fold.pair, finish);
    if (fold.pair) b.send(s.rank(s.me + 1), at(work, s.me + 1));
    b.copy(output, at(work, s.me));
}

void all_gather_recursive_doubling(Builder& b, const RankList& s, const Counts& counts) {
    TUTTI_ASSERT(counts.size() == static_cast<std::size_t>(s.size()));
    const Chunks blocks = blocks_of(Buffer::output, counts);
    const Chunk mine = at(blocks, s.me), own{Buffer::input, 0, mine.count};
    const Fold fold(s);
    const Chunk whole{Buffer::output, 0, total_of(blocks)};
    // Everything but one block, as the two parts around it.
    const auto before = [&](const Chunk& block) { return part(whole, 0, block.offset); };
    const auto after = [&](const Chunk& block) {
        const std::uint64_t end = block.offset + block.count;
        return part(whole, end, whole.count - end);
    };
    TUTTI_ASSERT(before(mine).count + mine.count + after(mine).count == whole.count);
    b.copy(mine, own);
    if (fold.folded) {
        b.send(s.rank(s.me - 1), own);
        b.receive(s.rank(s.me - 1), before(mine));
        return b.receive(s.rank(s.me - 1), after(mine));
    }
    if (fold.pair) b.receive(s.rank(s.me + 1), at(blocks, s.me + 1));
    double_up(b, s, fold, blocks);
    if (!fold.pair) return;
    b.send(s.rank(s.me + 1), before(at(blocks, s.me + 1)));
    b.send(s.rank(s.me + 1), after(at(blocks, s.me + 1)));
}

}  // namespace tutti::algorithm::messages
