// Builder: writes a schedule in plain sequential order and finds out which steps may run at the same time.
//
// A generator calls it as if every step finished before the next began. The builder gives each step the earlier steps
// that it really has to wait for (Dependencies).
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

    /// A new range of the scratch buffer; of elements of `dtype`, whatever the type of the call is, these have a buffer
    /// of their own.
    Chunk scratch(std::uint64_t count, std::optional<DType> dtype = std::nullopt);
    /// The same of a buffer of codes; it begins with a block.
    Chunk scratch(std::uint64_t count, const CodeForm& form);
    /// The input has another type than the call.
    void input_type(DType dtype) { schedule_.of(Buffer::input).dtype = dtype; }
    const std::vector<BufferInfo>& buffers() const { return schedule_.buffers; }

    // Steps. Local ones and messages of no elements are dropped: both sides of a message know its count.
    /// `whole`: elements of the chunk that is copied in pieces; 0: only these.
    void copy(Chunk target, Chunk source, std::uint64_t whole = 0);
    void combine(Chunk target, std::span<const Chunk> sources, bool finish);
    /// Of buffers with types of their own (scratch), or the call's: is_convertible(target's, source's).
    void convert(Chunk target, Chunk source);
    /// `target` is a chunk of codes. The scales come from these magnitudes, one for each block, or from the call
    /// (`given`), or from the elements themselves. `number`: of the first element, for rounding by chance; none: its
    /// place in its buffer.
    struct Encoding {
        std::optional<Chunk> magnitudes{};
        bool given = false;
        std::optional<std::uint64_t> number{};
    };
    void encode(Chunk target, Chunk source, const Encoding& encoding);
    /// `source` has all codes that one step encode has made.
    void decode(Chunk target, Chunk source);
    /// `exact`: all of them have the same scales; whole codes are then added up as integers.
    void decode_add(Chunk target, std::span<const Chunk> sources, bool exact, bool finish);
    /// Of each block of the source. `joins`: it is a part of one block, and the target has the magnitude of those
    /// before.
    void magnitudes(Chunk target, Chunk source, std::uint64_t block, bool joins);
    void largest(Chunk target, std::span<const Chunk> sources);
    /// target = function(source), which stands for the source's values.
    void call(std::string_view function, Chunk target, Chunk source);
    /// target = function(sources...), which is their combination in this order.
    void call_combine(std::string_view function, Chunk target, std::span<const Chunk> sources, bool finish);
    /// `after`: earlier steps, as last_step() numbers them, for which the send waits beside those that it has to; -1:
    /// none.
    void send(Rank peer, Chunk source, std::span<const std::int64_t> after = {});
    void receive(Rank peer, Chunk target);
    /// Empty messages that only synchronise.
    void send_signal(Rank peer);
    void receive_signal(Rank peer);
    /// target = source op arrival, or arrival op source.
    void receive_combine(Rank peer, Chunk target, Chunk source, bool arrival_first, bool finish);
    /// Steps on the staging area are never dropped: they carry the order.
    /// An empty publication that tells that everything before it is done.
    void publish_signal(std::uint32_t round);
    void publish(std::uint32_t round, std::span<const Chunk> sources);
    void read(Rank peer, std::uint32_t round, std::uint64_t slot_offset, Chunk target);
    void read_combine(std::uint32_t round, Chunk target, std::span<const Operand> operands, bool finish);
    void release(std::uint32_t round);

    // Steps of a schedule in place, which meet() begins: `open`: the chunks that others may touch. `maps`: it is for
    // memory that all ranks map (symmetric), not for the kernel's copies.
    void meet(std::span<const Chunk> open, bool maps);
    /// `source` is a chunk of the peer's.
    void get(Rank peer, Chunk target, Chunk source);
    /// `target` is a chunk of the peer's.
    void put(Rank peer, Chunk target, Chunk source);
    /// All steps before it are done. Returns its number: 1 for the first.
    std::uint32_t signal();
    /// All later steps come after signal number `value` of the peer.
    void wait(Rank peer, std::uint32_t value);
    /// The result goes to the target of `owner`; `everywhere`: and to that of all other ranks.
    void combine_in_place(Rank owner, Chunk target, std::span<const Operand> operands, bool everywhere, bool finish);

    /// The number of the step written last; -1: there is none.
    std::int64_t last_step() const { return static_cast<std::int64_t>(schedule_.steps.size()) - 1; }
    /// What the steps have cost (Dependencies::touched).
    std::uint64_t cost() const noexcept { return dependencies_.touched(); }
    /// First round not used yet; generators that are chained start there.
    std::uint32_t next_round() const { return next_round_; }
    void use_rounds(std::uint32_t count) { next_round_ += count; }
    /// The next round is the first of four.
    void begin_turn_group();
    void not_single_rounding() { schedule_.single_rounding = false; }

    /// The schedule describes a call in slots.
    void in_slots() { schedule_.in_slots = true; }
    /// Others that name this rank's input mean its output.
    void input_is_output() { schedule_.input_is_output = true; }
    /// Ends with release(next_round()) if there were publications, and in place with settle(next_round()).
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
    std::int64_t last_signal_ = -1, last_wait_ = -1;  // the steps
};

}  // namespace tutti::schedule
