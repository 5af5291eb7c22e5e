// A collective as data: what one rank does, step by step, over chunks of named buffers.
//
// A schedule says nothing about sockets, clocks or threads. The engine runs it, the prover checks it, `tutti explain`
// prints and prices it. Everything here is a value; counts and offsets are in elements.
//
// Order. A step may start when all steps in its `after` list are complete. In addition
//   - sends to one peer start in program order, and so do receives from one peer: the k-th send of a to b meets the
//     k-th receive of b from a, and both have the same count;
//   - publish, read, read_combine and release run in program order among themselves.
// A send completes no later than the matching receive has taken its bytes; a schedule must be free of deadlock even
// if no send completes before its receive has started (no buffering).
//
// Sharing memory. Ranks on one host share a staging area: each rank owns a ring of slots that the others can read.
// Publications are numbered by round, 0 … publications-1, equally on all ranks of a host (a rank may leave rounds
// out). `publish` copies chunks into this rank's slot of a round at slot offsets; `read` and `read_combine` wait for
// the peer's publication of that round. `release` with round r says: this rank will read no publication of any round <
// r any more. Publishing round r waits until every other rank of the host has released round r - slots + 1 or later,
// that is, needs none of the rounds <= r - slots; a rank publishes only after it has done so itself. Every rank ends
// with release(publications) and settle(publications).
//
// Two ranks take turns with a slot's memory (Arena::slot): of four publications the third and the fourth lie where the
// other rank's first and second lay. So one of two ranks publishes round r only after it has read what the other one
// publishes in round r - 2; if the schedule's rounds come in fours (Schedule::fours), only where r is the third or
// fourth of them. What answers a round is therefore best published two rounds later: it is written where this rank has
// just read.
//
// Symmetric memory. A buffer may lie in memory that all ranks of a host map. What such a rank publishes from it is not
// copied: it publishes where the values lie, and readers read them there. Whether it does is its own affair, and
// readers take both kinds; a schedule has to be right for either. Chunks published in place stay as they are until
// every rank has released their round; `settle` waits for that. Beyond reading,
//   - a publication may offer its chunks (Step::offer): where it is made in place, a `read_combine` that delivers
//   writes
//     the result there too, and `write` puts values there. What is only offered has no values yet;
//   - a `read` of what then is there already (Step::delivered) has nothing to copy if its target lies in symmetric
//     memory: it only waits;
//   - a `publish` for readers that have had everything delivered (Step::delivered) is a mere sign.
// What is published in place in tiles may be told at once: where the next publications are for the same readers, have
// as many chunks, each of them the elements that follow, and wait for no step, a publication in place stands for them
// too (Step::following). They then do nothing, and who reads does not wait for them. Who reads one of them has read the
// first before.
//
// Ordinary memory is published in place as well where the kernel copies from one process to another
// (Schedule::by_address): readers and writers name it by its address.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

using Rank = int;

/// The collectives that are planned. all_reduce … all_to_all follow MPI 4.0, chapter 6.
enum class Collective : std::uint8_t {
    all_reduce = 1,
    broadcast = 2,
    reduce = 3,
    all_gather = 4,
    gather = 5,
    scatter = 6,
    reduce_scatter = 7,
    all_to_all = 8,
    barrier = 9,
};
inline constexpr int collective_count = 9;
std::string_view to_string(Collective collective) noexcept;

namespace schedule {

/// The buffers that steps name. An in-place collective uses `output` for both.
enum class Buffer : std::uint8_t { input, output, scratch };

/// `count` elements of a buffer from `offset` on.
struct Chunk {
    Buffer buffer = Buffer::output;
    std::uint64_t offset = 0;
    std::uint64_t count = 0;
    friend bool operator==(const Chunk&, const Chunk&) = default;
};

enum class StepKind : std::uint8_t {
    copy,             ///< target = operand 0 (local)
    combine,          ///< target = operand 0 op operand 1 op … in this order (local)
    send,             ///< operand 0 → peer
    receive,          ///< peer → target
    receive_combine,  ///< target = operand 0 op what arrives, or the other way round (see Step::arrival_first)
    publish,          ///< operands → this rank's slot of `round`, one after the other from slot_offset on
    read,             ///< peer's publication of `round`, from slot_offset on → target
    read_combine,     ///< target = operand 0 op operand 1 op …; an operand is local or a peer's publication
    write,            ///< operand 0 → what peer offered in `round`, from slot_offset on, if it did so in place
    release,          ///< this rank reads no publication of a round < `round` any more
    settle,           ///< waits until no rank reads this rank's buffers any more: all have released `round`
};

/// What a publication's chunks may be used for, beside being read.
enum class Offer : std::uint8_t {
    none,
    copy,    ///< nothing: they change soon, so readers get a copy, wherever they lie
    result,  ///< the result of combining them may be written in their place
    room,    ///< nothing is in them yet: values may be written there
};
std::string_view to_string(StepKind kind) noexcept;

/// An input of a step: a local chunk, or (read_combine) `count` elements of what `peer` published in the step's round.
struct Operand {
    Rank peer = -1;                 ///< -1: local
    Chunk chunk;                    ///< local: where; peer: only count is used
    std::uint64_t slot_offset = 0;  ///< peer: first element inside its slot
};

struct Step {
    StepKind kind = StepKind::copy;
    bool arrival_first = false;       ///< receive_combine: the arriving values are the left operand
    bool finish = false;              ///< combining steps: this is the last combination (avg divides here)
    Offer offer = Offer::none;        ///< publish
    bool deliver = false;             ///< read_combine: write the result also where operands were offered for it
    bool delivered = false;           ///< publish, read: may have been delivered already
    Rank peer = -1;                   ///< send, receive, receive_combine, read, write; publish: the only reader
    std::uint32_t round = 0;          ///< publish, read, read_combine, write, release, settle
    std::uint32_t following = 0;      ///< publish: so many of the next rounds may be published in place with this one
    std::uint64_t slot_offset = 0;    ///< publish, read, write: first element inside the slot
    std::uint64_t whole = 0;          ///< copy: elements of the chunk of which it copies a piece
    Chunk target;                     ///< copy, combine, receive, receive_combine, read, read_combine
    std::uint32_t first_operand = 0;  ///< in Schedule::operands
    std::uint32_t operand_count = 0;
    std::uint32_t first_after = 0;  ///< in Schedule::after: indices of earlier steps
    std::uint32_t after_count = 0;
};

/// Instead of a rank.
inline constexpr Rank everyone = -1;

/// What one rank does.
struct Schedule {
    std::string algorithm;  ///< "ring", "two_shot", …
    std::vector<Step> steps;
    std::vector<Operand> operands;
    std::vector<std::uint32_t> after;
    std::uint64_t scratch_count = 0;   ///< elements of the scratch buffer
    std::uint64_t published_end[3]{};  ///< by buffer: where the last chunk ends that a publish names;
                                       ///< zero: symmetric memory is not looked for, all is copied
    std::uint64_t used_end[3]{};       ///< by buffer: where the last chunk ends that this rank reads or writes
    std::uint32_t publications = 0;    ///< rounds used; equal on all ranks of a host
    bool fours = false;                ///< round 0 is the first of four publications; equal on all ranks of a host
    bool by_address = false;           ///< ordinary memory may be published in place too; equal on all ranks
    std::uint64_t either_way = 0;      ///< elements that a rank publishes in place or not, as it finds quicker;
                                       ///< equal on all ranks
    Rank either_way_owner = everyone;  ///< which rank does, or all for what they publish
    Collective either_way_of{};        ///< what is timed with what
    bool single_rounding = true;       ///< every result element comes out of one combining step
};

}  // namespace schedule
}  // namespace tutti
