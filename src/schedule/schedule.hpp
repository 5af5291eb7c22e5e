// A collective as data: the steps of one rank, over chunks of named buffers.
//
// A schedule says nothing about sockets, clocks or threads. The engine runs it, the prover checks it, `tutti explain`
// prints and prices it. Everything here is a value; counts and offsets are in elements.
//
// Order. A step may start when all steps in its `after` list are complete. In addition
//   - sends to one peer start in program order, and so do receives from one peer: the k-th send of a to b meets the
//     k-th receive of b from a, and both have the same count;
//   - the steps that share memory, from `meet` to `settle`, run in program order among themselves.
// A send completes no later than the matching receive has taken its bytes; a schedule must be free of deadlock even
// if no send completes before its receive has started (no buffering).
//
// Sharing memory. Ranks on one host share a staging area: each rank owns a ring of slots that the others can read.
// Publications are numbered by round, 0 … publications-1, equally on all ranks of a host (a rank may leave rounds
// out). `publish` copies chunks into this rank's slot of a round at slot offsets; `read` and `read_combine` wait for
// the peer's publication of that round. `release` with round r says: this rank will read no publication of any round <
// r any more. Publishing round r waits until every other rank of the host has released round r - slots + 1 or later,
// that is, needs none of the rounds <= r - slots; a rank publishes only after it has done so itself. Every rank ends
// with release(publications).
//
// Two ranks take turns with a slot's memory (Arena::slot): of four publications the third and the fourth lie where the
// other rank's first and second lay. So one of two ranks publishes round r only after it has read the other one's
// publication of round r - 2; if the schedule's rounds come in fours (Schedule::turn_group), only where r is the third
// or fourth of them. So the best round for an answer is two rounds later: the rank then writes where it has just read.
//
// In place. A schedule of this kind (Schedule::in_place) moves no values through the staging area. It begins with
// `meet`: all ranks of the host say where the chunks of their input and output lie that others may touch, and each
// waits until it knows those of all. From then on every rank reads and writes the others' chunks where they are, by
// one-sided steps: `get`, `put` and `read_combine` name a chunk of the peer's buffers, and wait for nothing. `signal`
// and `wait` order the steps of two ranks: a rank's k-th `signal` says that all its steps before it are done, and
// `wait` for signal k of a peer holds back all later steps of this rank until the peer has signalled k times. A signal
// is a release of a round (the k-th after `meet`), which all ranks of the host can see. Every rank ends with
// release(publications), which says that it is through, and settle(publications), which waits until all are: then its
// buffers hold the result and belong to its caller again. If some rank cannot name its chunks, or others cannot reach
// them, all ranks run `otherwise` instead: they all see the same at `meet`.
//
// In slots. A schedule of this kind (Schedule::in_slots) describes a short call, which needs none: each rank publishes
// at most once, in round 0, and then reads the others' publications. The engine keeps no such schedule and uses no
// staging area for it; it writes and reads slots of their own kind (engine/slots), of the length that slots.hpp gives.
#pragma once

#include "core/assert.hpp"
#include "schedule/code_form.hpp"

#include <tutti/collectives.hpp>
#include <tutti/dtype.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

using Rank = int;

namespace schedule {

/// A row of a schedule's table of buffers (Schedule::buffers). These three every schedule has; an in-place collective
/// uses `output` for both. Further rows are scratch buffers of other types.
enum class Buffer : std::uint8_t { input, output, scratch };

/// The row of a table.
constexpr std::size_t row(Buffer buffer) noexcept {
    return static_cast<std::size_t>(buffer);
}

/// A row: what a buffer holds, and whose it is. The caller owns input and output, the schedule's run all others.
struct BufferInfo {
    std::optional<DType> dtype{};  ///< none: the type of the call; the input, and scratch buffers, may have another one
    std::uint64_t count = 0;       ///< elements of a scratch buffer; 0 of input and output, which the call knows
    std::uint64_t used_end = 0;    ///< where the last chunk ends that this rank reads or writes
    /// A scratch buffer of codes, as bytes (uint8). Its chunks begin with a block, and count the elements that the
    /// codes stand for.
    std::optional<CodeForm> codes{};
    friend bool operator==(const BufferInfo&, const BufferInfo&) = default;
};

/// `count` elements of a buffer from `offset` on.
struct Chunk {
    Buffer buffer = Buffer::output;
    std::uint64_t offset = 0;
    std::uint64_t count = 0;
    friend bool operator==(const Chunk&, const Chunk&) = default;
};

/// Whether two ranges of elements of one buffer share any. (Of two buffers the caller knows whether they are one.)
constexpr bool ranges_meet(const Chunk& a, const Chunk& b) noexcept {
    return a.offset < b.offset + b.count && b.offset < a.offset + a.count;
}
constexpr bool share_elements(const Chunk& a, const Chunk& b) noexcept {
    return a.buffer == b.buffer && ranges_meet(a, b);
}

enum class StepKind : std::uint8_t {
    copy,             ///< target = operand 0 (local)
    combine,          ///< target = operand 0 op operand 1 op … in this order (local)
    convert,          ///< target = operand 0, which has another type (local)
    encode,           ///< target = the codes of operand 0; operand 1: the magnitudes that give the scales (local)
    decode,           ///< target = the numbers that the codes of operand 0 stand for (local)
    decode_add,       ///< target = the sum of those of operand 0, operand 1, … in this order (local)
    magnitudes,       ///< target = the largest magnitude of each block of operand 0 (local)
    largest,          ///< target = the largest of the magnitudes of operand 0, operand 1, … (local)
    call,             ///< target = a user's function of the operands (local)
    send,             ///< operand 0 → peer
    receive,          ///< peer → target
    receive_combine,  ///< target = operand 0 op the arriving values, or the other way round (see Step::arrival_first)
    meet,             ///< in place: others may touch the operands from now on, and this rank theirs
    get,              ///< in place: operand 0, which is a chunk of peer's → target
    put,              ///< in place: operand 0 → target, which is a chunk of peer's
    signal,           ///< in place: all steps of this rank before it are done; the `round`-th since `meet`
    wait,             ///< in place: all later steps of this rank come after signal `round` of peer
    publish,          ///< operands → this rank's slot of `round`, one after the other from slot_offset on
    read,             ///< peer's publication of `round`, from slot_offset on → target
    read_combine,     ///< target = operand 0 op operand 1 op …; an operand is local or a peer's
    release,          ///< this rank reads no publication of a round < `round` any more
    settle,           ///< waits until no rank reads this rank's buffers any more: all have released `round`
};

std::string_view to_string(StepKind kind) noexcept;
/// Its effect, for readers who see the kind for the first time.
std::string_view meaning_of(StepKind kind) noexcept;
/// Whether such steps run in program order among themselves.
constexpr bool is_shared(StepKind kind) noexcept {
    return kind >= StepKind::meet;
}
/// Whether such steps touch this rank's memory alone, and wait for no other rank.
constexpr bool is_local(StepKind kind) noexcept {
    return kind <= StepKind::call;
}
/// Whether such steps take a message.
constexpr bool receives(StepKind kind) noexcept {
    return kind == StepKind::receive || kind == StepKind::receive_combine;
}

/// Whether a convert step knows how to make `to` of `from`: real floating-point types, just one of them float32.
constexpr bool is_convertible(DType to, DType from) noexcept {
    return is_floating_point(to) && is_floating_point(from) && (to == DType::float32) != (from == DType::float32);
}

/// Whether codes can be made of such numbers, and numbers of such a type of codes.
constexpr bool is_encodable(DType dtype) noexcept {
    return dtype == DType::float32 || dtype == DType::float16 || dtype == DType::bfloat16;
}

/// An input of a step: a local chunk, or `count` elements of the publication of `peer` in the step's round, or, in
/// place, a chunk of the peer's.
struct Operand {
    Rank peer = -1;                 ///< -1: local
    Chunk chunk;                    ///< where; in a peer's slot: only count is used
    std::uint64_t slot_offset = 0;  ///< in a peer's slot: its first element
};

struct Step {
    StepKind kind = StepKind::copy;
    bool arrival_first = false;  ///< receive_combine: the arriving values are the left operand
    bool finish = false;         ///< combining steps: this is the last combination (avg divides here)
    bool combines = false;       ///< call: the result is the operands combined; else it stands for the only one
    bool given = false;          ///< encode: with the scale that the call gives
    bool exact = false;          ///< decode_add: the codes have one scale; they are added up themselves
    bool joins = false;          ///< magnitudes: the target has those of earlier elements of its only block
    bool everywhere = false;     ///< read_combine, in place: the result also goes to this chunk of all others
    Rank peer = -1;  ///< send, receive, receive_combine, read, get, put, wait; read_combine, in place: the owner of the
                     ///< target, if not this rank
    std::uint32_t round = 0;          ///< publish, read, read_combine, signal, wait, release, settle
    std::uint64_t slot_offset = 0;    ///< publish, read: first element inside the slot
    std::uint64_t whole = 0;          ///< copy: elements of the chunk of which it copies a piece
    std::uint64_t number = 0;         ///< encode: of its first element, from which rounding by chance derives
    std::uint64_t block = 0;          ///< magnitudes: elements of a block
    Chunk target;                     ///< local steps, receive, receive_combine, get, put, read, read_combine
    std::uint32_t first_operand = 0;  ///< in Schedule::operands
    std::uint32_t operand_count = 0;
    std::uint32_t first_after = 0;  ///< in Schedule::after: indices of earlier steps
    std::uint32_t after_count = 0;
    std::uint32_t function = 0;  ///< call: in Schedule::functions
};

/// The steps of one rank.
struct Schedule {
    std::string algorithm;  ///< "ring", "two_shot", …
    std::vector<Step> steps;
    std::vector<Operand> operands;
    std::vector<std::uint32_t> after;
    std::vector<BufferInfo> buffers = std::vector<BufferInfo>(3);  ///< by Buffer
    std::uint32_t publications = 0;                                ///< rounds used; equal on all ranks of a host
    bool turn_group = false;       ///< round 0 is the first of four publications; equal on all ranks of a host
    bool in_place = false;         ///< moves values without the staging area
    bool in_slots = false;         ///< describes a call in the slots of short collectives
    bool input_is_output = false;  ///< others that name this rank's input mean its output, which holds it
    bool maps = false;             ///< in place: only where all map the others' memory; else the kernel may copy
    std::shared_ptr<const Schedule> otherwise;  ///< the schedule to run where in place is not possible
    bool single_rounding = true;                ///< every result element comes out of one combining step
    std::vector<std::string> functions;         ///< the names of those that call steps run

    BufferInfo& of(Buffer buffer) {
        TUTTI_ASSERT(row(buffer) < buffers.size());
        return buffers[row(buffer)];
    }
    const BufferInfo& of(Buffer buffer) const {
        TUTTI_ASSERT(row(buffer) < buffers.size());
        return buffers[row(buffer)];
    }
};

/// Elements of all scratch buffers.
std::uint64_t scratch_count(const Schedule& schedule) noexcept;

/// What one step does, in words: "output[0, +4] = input[0, +4] op scratch[0, +4]".
std::string sentence_of(const Schedule& schedule, const Step& step);

inline std::span<const Operand> operands_of(const Schedule& s, const Step& step) {
    TUTTI_ASSERT(std::size_t{step.first_operand} + step.operand_count <= s.operands.size());
    return {s.operands.data() + step.first_operand, step.operand_count};
}
/// Bytes of a chunk, where an element of the call has so many.
inline std::uint64_t bytes_of(const Schedule& s, const Chunk& chunk, std::uint64_t element_bytes) {
    TUTTI_ASSERT(element_bytes > 0);
    const BufferInfo& info = s.of(chunk.buffer);
    if (info.codes) return info.codes->bytes(chunk.count);
    return chunk.count * (info.dtype ? size_of(*info.dtype) : element_bytes);
}
/// The earlier steps that it waits for.
inline std::span<const std::uint32_t> after_of(const Schedule& s, const Step& step) {
    TUTTI_ASSERT(std::size_t{step.first_after} + step.after_count <= s.after.size());
    return {s.after.data() + step.first_after, step.after_count};
}

}  // namespace schedule
}  // namespace tutti
