// Builder: writes a schedule in plain sequential order and finds out which steps may run at the same time.
//
// A generator calls the builder as if every step finished before the next began. The builder records for each step only
// the earlier steps for which it has to wait (Dependencies).
#pragma once

#include "schedule/dependencies.hpp"
#include "schedule/schedule.hpp"

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::schedule {

class Builder {
 public:
    explicit Builder(std::string algorithm) { schedule_.algorithm = std::move(algorithm); }

    /// A new range of the scratch buffer. With `dtype`, a range of a separate buffer, whose elements have that type
    /// whatever the type of the call is.
    Chunk scratch(std::uint64_t count, std::optional<DType> dtype = std::nullopt);
    /// A new range of a buffer of codes; it begins at the start of a block.
    Chunk scratch(std::uint64_t count, const CodeForm& form);
    /// The input's type is `dtype`, not the type of the call.
    void input_type(DType dtype) { schedule_.of(Buffer::input).dtype = dtype; }
    const std::vector<BufferInfo>& buffers() const { return schedule_.buffers; }

    // Steps. Local steps and messages without elements are dropped: both sides of a message know its count.
    /// `whole`: if this step copies a piece of a longer chunk, the elements of that chunk; 0: it is not a piece.
    void copy(Chunk target, Chunk source, std::uint64_t whole = 0);
    void combine(Chunk target, std::span<const Chunk> sources, bool finish);
    /// Converts between the buffers' types (of scratch, or the call's): needs is_convertible(target's, source's).
    void convert(Chunk target, Chunk source);
    /// `target` is a chunk of codes. The scales come from `magnitudes`, one per block; or, if `given`, from the call;
    /// or from the elements themselves. `number`: the number of the first element, from which stochastic rounding
    /// derives; nullopt: its index in its buffer.
    struct Encoding {
        std::optional<Chunk> magnitudes{};
        bool given = false;
        std::optional<std::uint64_t> number{};
    };
    void encode(Chunk target, Chunk source, const Encoding& encoding);
    /// `source`: all codes that one encode step has made.
    void decode(Chunk target, Chunk source);
    /// `exact`: all sources have the same scales, so the step adds up whole codes as integers.
    void decode_add(Chunk target, std::span<const Chunk> sources, bool exact, bool finish);
    /// target = the magnitude of each block of `source`. `joins`: the source is part of one block, and the target holds
    /// the magnitude of the elements before it.
    void magnitudes(Chunk target, Chunk source, std::uint64_t block, bool joins);
    void largest(Chunk target, std::span<const Chunk> sources);
    /// target = function(source): a representation of the source's values.
    void call(std::string_view function, Chunk target, Chunk source);
    /// target = function(sources...): their combination in this order.
    void call_combine(std::string_view function, Chunk target, std::span<const Chunk> sources, bool finish);
    /// `after`: earlier steps (numbers from last_step()) for which the send waits in addition to those that the builder
    /// finds; -1: none.
    void send(Rank peer, Chunk source, std::span<const std::int64_t> after = {});
    void receive(Rank peer, Chunk target);
    /// Empty messages that only synchronise.
    void send_signal(Rank peer);
    void receive_signal(Rank peer);
    /// target = source op arrival, or arrival op source.
    void receive_combine(Rank peer, Chunk target, Chunk source, bool arrival_first, bool finish);
    /// An empty publication, which says that all steps before it are done. The builder never drops steps on the staging
    /// area, since they carry the order.
    void publish_signal(std::uint32_t round);
    void publish(std::uint32_t round, std::span<const Chunk> sources);
    void read(Rank peer, std::uint32_t round, std::uint64_t slot_offset, Chunk target);
    void read_combine(std::uint32_t round, Chunk target, std::span<const Operand> operands, bool finish);
    void release(std::uint32_t round);

    // Steps of an in-place schedule, which meet() begins. `open`: the chunks that other ranks may access. `maps`: the
    // schedule needs memory that all ranks map (symmetric); copies by the kernel do not suffice.
    void meet(std::span<const Chunk> open, bool maps);
    /// `source` is a chunk of the peer's buffers.
    void get(Rank peer, Chunk target, Chunk source);
    /// `target` is a chunk of the peer's buffers.
    void put(Rank peer, Chunk target, Chunk source);
    /// Says that all steps before it are done. Returns its number: 1 for the first.
    std::uint32_t signal();
    /// All later steps run after the peer's signal number `value`.
    void wait(Rank peer, std::uint32_t value);
    /// The result goes to the target of `owner`; `everywhere`: also to the targets of all other ranks.
    void combine_in_place(Rank owner, Chunk target, std::span<const Operand> operands, bool everywhere, bool finish);

    /// The number of the step written last; -1: there is none.
    std::int64_t last_step() const { return static_cast<std::int64_t>(schedule_.steps.size()) - 1; }
    /// The work that the dependencies have cost so far (Dependencies::touched).
    std::uint64_t cost() const noexcept { return dependencies_.touched(); }
    /// The first unused round, where the next of several chained generators starts.
    std::uint32_t next_round() const { return next_round_; }
    void use_rounds(std::uint32_t count) { next_round_ += count; }
    /// Makes the next round the first of four.
    void begin_turn_group();
    void not_single_rounding() { schedule_.single_rounding = false; }

    /// Marks the schedule as the description of a call in slots.
    void in_slots() { schedule_.in_slots = true; }
    /// Chunks of this rank's input that other ranks name are chunks of its output.
    void input_is_output() { schedule_.input_is_output = true; }
    /// Appends release(next_round()) if there were publications, and in place settle(next_round()). Returns the
    /// schedule.
    Schedule finish() &&;

 private:
    Step& begin(StepKind kind);
    Step& begin_local(StepKind kind, Chunk target, std::span<const Chunk> sources);
    void add_call(std::string_view function, Chunk target, std::span<const Chunk> sources, bool combines, bool finish);
    void uses(const Chunk& chunk);
    void reads(const Chunk& chunk);
    void combines(std::span<const Operand> operands);
    void writes(const Chunk& chunk);
    void end();

    Schedule schedule_;
    Dependencies dependencies_;
    std::uint32_t next_round_ = 0;
    std::int64_t last_signal_ = -1, last_wait_ = -1;  // step numbers
};

}  // namespace tutti::schedule
