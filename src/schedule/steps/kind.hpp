// The vocabulary of schedules. Each kind of step has one file in this folder, with the Builder's functions, the lines
// of text that represent the steps, their description for readers, and the rule by which the prover runs the step on
// symbols. The engine's rules are in engine/, by the same kinds.
//
// To add a kind: a name in StepKind, a file here with its `Kind`, a row in kinds.cpp, and a rule in the engine.
#pragma once

#include "schedule/builder.hpp"
#include "schedule/schedule.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tutti::schedule {

struct Contract;
class Line;
class Proof;
class Uses;
class Writer;

/// The state of reading one schedule from a text.
struct Reading {
    int ranks = 0;
    Rank rank = 0;
    Builder builder;
    Schedule flags{};  ///< only its flags and algorithm name are used
    std::uint64_t scratch = 0;
    const Contract* contract = nullptr;  ///< read from the head of the text
    Uses* uses = nullptr;
    std::size_t alternative = 0;  ///< number of the rank's schedules before this one, which runs if those cannot

    /// Reads the next word: a rank other than this one.
    Rank peer(Line& line) const;
};

/// A line of a text. `name` is its first word; `read` reads the other words and calls the Builder.
struct LineRule {
    std::string_view name;
    void (*read)(Line& line, Reading& reading);
};

/// One step of one rank, as rules get it.
struct At {
    Rank rank;
    std::size_t index;
    const Schedule& schedule;
    const Step& step;
    std::span<const Operand> operands() const { return operands_of(schedule, step); }
};

/// The types of a step's chunks.
enum class Types : std::uint8_t {
    of_call,  ///< the type of the call
    alike,    ///< all equal
    own,      ///< as the kind's rule says
};

struct Kind {
    std::string_view name;     ///< in texts and messages
    std::string_view meaning;  ///< the effect, for readers who see it for the first time
    /// What this step does, in words.
    std::string (*sentence)(const Schedule& schedule, const Step& step);
    /// Writes the line of the step `at`; reading the line calls the Builder with the same values.
    void (*write)(Writer& writer, const At& at);
    /// Runs the step on symbols; false: it cannot run yet. Called when all steps for which it waits are done.
    bool (*prove)(Proof& proof, const At& at);
    std::span<const LineRule> lines;
    Types types = Types::of_call;
};

const Kind& kind_of(StepKind kind) noexcept;
/// All kinds, in the order of StepKind.
std::span<const Kind* const> kinds() noexcept;

// One for each StepKind.
extern const Kind copy_kind, combine_kind;                        // local.cpp
extern const Kind convert_kind;                                   // convert.cpp
extern const Kind encode_kind, decode_kind, decode_add_kind;      // codes.cpp
extern const Kind magnitudes_kind, largest_kind;                  // magnitudes.cpp
extern const Kind call_kind;                                      // call.cpp
extern const Kind send_kind, receive_kind, receive_combine_kind;  // messages.cpp
extern const Kind publish_kind, release_kind;                     // publish.cpp
extern const Kind read_kind, read_combine_kind;                   // read.cpp
extern const Kind meet_kind, settle_kind;                         // in_place.cpp
extern const Kind get_kind, put_kind;                             // one_sided.cpp
extern const Kind signal_kind, wait_kind;                         // signal.cpp

// Text that several kinds share.

/// "output[2, +4]", for readers.
std::string words_of(const Schedule& schedule, const Chunk& chunk);
/// The operands of a step, for readers, separated by `between`.
std::string words_of_operands(const Schedule& schedule, const Step& step, std::string_view between = " op ");
/// "output[2:6]", as in texts.
std::string to_text(const Schedule& schedule, const Chunk& chunk);

}  // namespace tutti::schedule
