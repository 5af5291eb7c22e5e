// Prefixes: each rank gets the combination of the values of the ranks up to itself (inclusive), or of those before it
// (exclusive). Operands stay in the order of ranks, so an operator need not be commutative. No value is finished: each
// rank's result goes into those of the ranks behind it.
//
// Sources: Hillis and Steele, "Data Parallel Algorithms" (1986), which is also recursive doubling in MPI; the pipelined
// chain: Sanders and Träff, "Parallel Prefix (Scan) Algorithms for MPI" (2006).
#include "algorithm/tiles.hpp"

namespace tutti::algorithm {
namespace messages {

// Each rank sends its values to all ranks behind it, and combines those of all before it with its own.
void scan_direct(Builder& b, const RankList& s, Chunk input, Chunk output, Prefix prefix) {
    std::vector<Chunk> values;
    for (int from = 0; from < s.me; ++from) {
        values.push_back(b.scratch(input.count));
        b.receive(s.rank(from), values.back());
    }
    for (int to = s.me + 1; to < s.size(); ++to) b.send(s.rank(to), input);
    if (prefix == Prefix::inclusive) values.push_back(input);
    if (!values.empty()) b.combine(output, values, false);
}

// In the step of distance 1, 2, 4 … a rank sends the combination of the last so many ranks up to itself that far on,
// and puts what comes from that far back before its own.
//   5 ranks, what rank 4 has    before: 4    distance 1: 34    distance 2: 1234    distance 4: 01234
// An exclusive prefix is collected beside that: what arrives, without the rank's own values.
void scan_recursive_doubling(Builder& b, const RankList& s, Chunk input, Chunk output, Prefix prefix) {
    const int n = s.size(), me = s.me;
    const bool inclusive = prefix == Prefix::inclusive;
    if (n > 2) b.not_single_rounding();
    if (me == 0 && inclusive) b.copy(output, input);
    Chunk sent = input;
    for (int distance = 1; distance < n; distance *= 2) {
        const bool receives = me >= distance;
        const Chunk arrived = b.scratch(receives ? input.count : 0);
        if (receives) b.receive(s.rank(me - distance), arrived);
        if (me + distance < n) b.send(s.rank(me + distance), sent);
        if (!receives) continue;
        if (inclusive || me + 2 * distance < n) {
            const bool is_last = me < 2 * distance;
            const Chunk next = !inclusive ? b.scratch(input.count) : is_last ? output : arrived;
            b.combine(next, std::vector{arrived, sent}, false);
            sent = next;
        }
        if (inclusive) continue;
        if (distance == 1)
            b.copy(output, arrived);
        else
            b.combine(output, std::vector{arrived, output}, false);
    }
}

// Segments run down the line of ranks: each comes as the prefix of the rank before, and goes on as this rank's. Every
// link carries everything once, at the same time as the others, a segment later each.
void scan_chain(Builder& b, const RankList& s, Chunk input, Chunk output, std::uint64_t segment, Prefix prefix) {
    constexpr std::size_t under_way = 4;  // segments of an exclusive prefix that wait to be passed on
    const int n = s.size(), me = s.me;
    if (n > 2) b.not_single_rounding();
    struct Room {
        Chunk arrived, inclusive;
    };
    std::vector<Room> rooms;
    std::uint64_t number = 0;
    for (std::uint64_t at = 0; at < input.count; at += segment, ++number) {
        const std::uint64_t count = std::min(segment, input.count - at);
        const Chunk own = part(input, at, count), result = part(output, at, count);
        const bool is_last = me + 1 == n;
        if (me == 0) {
            if (!is_last) b.send(s.rank(1), own);
            if (prefix == Prefix::inclusive) b.copy(result, own);
        } else if (prefix == Prefix::inclusive) {
            b.receive_combine(s.rank(me - 1), result, own, true, false);
            if (!is_last) b.send(s.rank(me + 1), result);
        } else if (is_last) {
            b.receive(s.rank(me - 1), result);
        } else {
            if (rooms.size() < under_way) rooms.push_back({b.scratch(count), b.scratch(count)});
            const Room& room = rooms[number % under_way];
            const Chunk arrived = part(room.arrived, 0, count), inclusive = part(room.inclusive, 0, count);
            b.receive(s.rank(me - 1), arrived);
            b.combine(inclusive, std::vector{arrived, own}, false);
            b.send(s.rank(me + 1), inclusive);
            b.copy(result, arrived, output.count);
        }
    }
}

}  // namespace messages

namespace shared {

// Each rank publishes its values, but for the last, which nobody reads, and combines those of all ranks before it with
// its own, in one pass.
//   n = 2, one tile:   rank 0  publish(x0) | out = x0      rank 1  out = [x0] op x1
void scan(Builder& b, const RankList& s, const Staging& staging, Chunk input, Chunk output, Prefix prefix) {
    const std::uint64_t tiles = ceil_div(input.count, staging.slot);
    const std::uint32_t first = b.next_round();
    pipeline(
        tiles,
        [&](std::uint64_t t) {
            const auto round = first + static_cast<std::uint32_t>(t);
            if (s.me + 1 < s.size()) b.publish(round, std::vector{tile_of_block(input, staging.slot, t)});
        },
        [&](std::uint64_t t) {
            const auto round = first + static_cast<std::uint32_t>(t);
            const Chunk own = tile_of_block(input, staging.slot, t), result = tile_of_block(output, staging.slot, t);
            std::vector<Operand> operands;
            for (int i = 0; i < s.me; ++i) operands.push_back({.peer = s.rank(i), .chunk = {.count = own.count}});
            if (prefix == Prefix::inclusive) operands.push_back({.chunk = own});
            if (s.me > 0)
                b.read_combine(round, result, operands, false);
            else if (prefix == Prefix::inclusive)
                b.copy(result, own);
            b.release(round + 1);
        });
    b.use_rounds(static_cast<std::uint32_t>(tiles));
}

}  // namespace shared
}  // namespace tutti::algorithm
