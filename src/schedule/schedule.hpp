// A collective as data: the steps of one rank, over chunks of named buffers.
//
// A schedule says nothing about sockets, clocks or threads. The engine runs it, the prover checks it, `tutti explain`
// prints it and predicts its time. Everything here is a value; counts and offsets are in elements.
//
// Order. A step may start when all steps in its `after` list are complete. In addition
//   - sends to one peer start in program order, and so do receives from one peer: the k-th send of a to b meets the
//     k-th receive of b from a, and both have the same count;
//   - the steps that share memory, from `meet` to `settle`, run in program order among themselves.
// A send completes no later than the matching receive has taken its bytes; a schedule must be free of deadlock even
// if no send completes before its receive has started (no buffering).
//
// Sharing memory. Ranks on one host share a staging area: each rank owns a ring of slots that the others can read.
// Publications are numbered by round, 0 … publications-1, equally on all ranks of a host (a rank may leave rounds out).
// `publish` copies chunks to slot offsets in this rank's slot of a round; `read` and `read_combine` wait for the peer's
// publication of that round. `release` with round r says: this rank will read no publication of a round < r any more.
// Publishing round r waits until every other rank of the host has released round r - slots + 1 or later, that is, needs
// none of the rounds <= r - slots; a rank publishes only after it has released that round itself. Every rank ends with
// release(publications).
//
// Two ranks alternate in the use of a slot's memory (Arena::slot): of every four publications the third and fourth lie
// where the other rank's first and second lay. So one of two ranks may publish round r only after it has read the other
// one's publication of round r - 2; if the schedule's rounds come in fours (Schedule::turn_group), this holds only for
// the third and fourth of them. The best round for an answer is thus two rounds later: the rank then writes where it
// has just read.
//
// In place. Such a schedule (Schedule::in_place) moves no values through the staging area. It begins with `meet`: each
// rank of the host publishes where the chunks of its input and output lie that others may access, and waits until it
// knows those of all ranks. From then on every rank reads and writes the others' chunks in place, by one-sided steps:
// `get`, `put` and `read_combine` name a chunk of the peer's buffers, and wait for nothing. `signal` and `wait` order
// the steps of two ranks: a rank's k-th `signal` says that all its steps before it are done, and `wait` for signal k of
// a peer holds back all later steps of this rank until the peer has signalled k times. A signal is a release of a round
// (the k-th after `meet`), which all ranks of the host can see. Every rank ends with release(publications), which says
// that it has finished, and settle(publications), which waits until all have: then its buffers hold the result and
// belong to its caller again. If some rank cannot publish its chunks, or others cannot access them, all ranks run
// `otherwise` instead: `meet` gives all ranks the same information, so they all decide alike.
//
// In slots. Such a schedule (Schedule::in_slots) only describes a short call, which the engine runs without a schedule:
// each rank publishes at most once, in round 0, and then reads the others' publications. The engine uses no staging
// area for it, but slots of another kind (engine/slots), of the length that slots.hpp gives.
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

/// A row of a schedule's table of buffers (Schedule::buffers). Every schedule has these three; an in-place collective
/// uses `output` for input and output. Further rows are scratch buffers of other types.
enum class Buffer : std::uint8_t { input, output, scratch };

/// The index of the buffer's row in the table.
constexpr std::size_t row(Buffer buffer) noexcept {
    return static_cast<std::size_t>(buffer);
}

/// A row: what a buffer holds. The caller owns input and output; the run of the schedule owns all others.
struct BufferInfo {
    std::optional<DType> dtype{};  ///< none: the type of the call; the input, and scratch buffers, may have another
                                   ///< type
    std::uint64_t count = 0;       ///< elements of a scratch buffer; 0 for input and output, whose count the call gives
    std::uint64_t used_end = 0;    ///< where the last chunk ends that this rank accesses
    /// If set, a scratch buffer of codes, stored as bytes (uint8). Its chunks begin at a block; their counts are those
    /// of the elements that the codes represent.
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

/// Whether two ranges of one buffer overlap. (For ranges of two buffers the caller must know that both are one memory.)
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
    decode,           ///< target = the numbers that the codes of operand 0 represent (local)
    decode_add,       ///< target = the sum of the numbers of operand 0, operand 1, … in this order (local)
    magnitudes,       ///< target = the largest magnitude of each block of operand 0 (local)
    largest,          ///< target = the largest of the magnitudes of operand 0, operand 1, … (local)
    call,             ///< target = a user's function of the operands (local)
    send,             ///< operand 0 → peer
    receive,          ///< peer → target
    receive_combine,  ///< target = operand 0 op the arriving values, or the other way round (see Step::arrival_first)
    meet,             ///< in place: from now on other ranks may access the operands, and this rank theirs
    get,              ///< in place: operand 0, a chunk of peer's buffers → target
    put,              ///< in place: operand 0 → target, a chunk of peer's buffers
    signal,           ///< in place: all earlier steps of this rank are done; signal number `round` since `meet`
    wait,             ///< in place: all later steps of this rank come after signal `round` of peer
    publish,          ///< operands → this rank's slot of `round`, adjoining, from slot_offset on
    read,             ///< peer's publication of `round`, from slot_offset on → target
    read_combine,     ///< target = operand 0 op operand 1 op …; an operand is local or a peer's
    release,          ///< this rank no longer reads publications of rounds < `round`
    settle,           ///< waits until no rank reads this rank's buffers any more, as all have released `round`
};

std::string_view to_string(StepKind kind) noexcept;
/// The effect of the kind, for readers who see it for the first time.
std::string_view meaning_of(StepKind kind) noexcept;
/// Whether steps of this kind run in program order among themselves.
constexpr bool is_shared(StepKind kind) noexcept {
    return kind >= StepKind::meet;
}
/// Whether steps of this kind access only this rank's memory, and wait for no other rank.
constexpr bool is_local(StepKind kind) noexcept {
    return kind <= StepKind::call;
}
/// Whether steps of this kind receive a message.
constexpr bool receives(StepKind kind) noexcept {
    return kind == StepKind::receive || kind == StepKind::receive_combine;
}

/// Whether a convert step can convert `from` to `to`: real floating-point types, exactly one of them float32.
constexpr bool is_convertible(DType to, DType from) noexcept {
    return is_floating_point(to) && is_floating_point(from) && (to == DType::float32) != (from == DType::float32);
}

/// Whether numbers of this type can be encoded, and codes decoded to it.
constexpr bool is_encodable(DType dtype) noexcept {
    return dtype == DType::float32 || dtype == DType::float16 || dtype == DType::bfloat16;
}

/// An input of a step: a local chunk; or `count` elements of the publication of `peer` in the step's round; or, in
/// place, a chunk of the peer's buffers.
struct Operand {
    Rank peer = -1;                 ///< -1: local
    Chunk chunk;                    ///< where; for a peer's slot only count is used
    std::uint64_t slot_offset = 0;  ///< for a peer's slot: the first element there
};

struct Step {
    StepKind kind = StepKind::copy;
    bool arrival_first = false;  ///< receive_combine: the arriving values are the left operand
    bool finish = false;         ///< combining steps: this is the last combination (avg divides here)
    bool combines = false;       ///< call: the result combines the operands; else it represents the only operand
    bool given = false;          ///< encode: with the scale that the call specifies
    bool exact = false;          ///< decode_add: all codes have one scale; the step adds the codes themselves
    bool joins = false;          ///< magnitudes: the target holds the magnitude of earlier elements of its only block
    bool everywhere = false;     ///< read_combine, in place: the result also goes to this chunk of all other ranks
    Rank peer = -1;  ///< send, receive, receive_combine, read, get, put, wait; read_combine, in place: the owner of the
                     ///< target, if not this rank
    std::uint32_t round = 0;          ///< publish, read, read_combine, signal, wait, release, settle
    std::uint64_t slot_offset = 0;    ///< publish, read: first element inside the slot
    std::uint64_t whole = 0;          ///< copy: elements of the chunk of which this step copies a piece
    std::uint64_t number = 0;         ///< encode: the number of its first element, from which stochastic rounding
                                      ///< derives
    std::uint64_t block = 0;          ///< magnitudes: elements per block
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
    std::vector<BufferInfo> buffers = std::vector<BufferInfo>(3);  ///< rows of Buffer
    std::uint32_t publications = 0;                                ///< rounds used; equal on all ranks of a host
    bool turn_group = false;       ///< round 0 is the first of four publications; equal on all ranks of a host
    bool in_place = false;         ///< moves values without the staging area
    bool in_slots = false;         ///< describes a call in the slots of short collectives
    bool input_is_output = false;  ///< other ranks that name this rank's input mean its output, which holds the input
    bool maps = false;             ///< in place: needs memory that all ranks map; else the kernel may copy
    std::shared_ptr<const Schedule> otherwise;  ///< the schedule to run if this one cannot run in place
    bool single_rounding = true;                ///< one combining step makes each result element
    std::vector<std::string> functions;         ///< the names of the functions that call steps run

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
/// The bytes of a chunk, if an element of the call has `element_bytes`.
inline std::uint64_t bytes_of(const Schedule& s, const Chunk& chunk, std::uint64_t element_bytes) {
    TUTTI_ASSERT(element_bytes > 0);
    const BufferInfo& info = s.of(chunk.buffer);
    if (info.codes) return info.codes->bytes(chunk.count);
    return chunk.count * (info.dtype ? size_of(*info.dtype) : element_bytes);
}
/// The earlier steps for which `step` waits.
inline std::span<const std::uint32_t> after_of(const Schedule& s, const Step& step) {
    TUTTI_ASSERT(std::size_t{step.first_after} + step.after_count <= s.after.size());
    return {s.after.data() + step.first_after, step.after_count};
}

}  // namespace schedule
}  // namespace tutti
