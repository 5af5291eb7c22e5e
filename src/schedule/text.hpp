// Schedules as text: those of all ranks for one collective, to be kept, compared and written by hand.
//
//     tutti schedule 1
//     algorithm exchange
//     collective all_reduce
//     ranks 2
//     count 2
//     rank 0
//       receive 1 scratch[0:2]
//       send 1 input[0:2]
//       combine output[0:2] input[0:2] scratch[0:2] finish
//     rank 1
//       ...
//
// A step is a line: its name as in StepKind, then what the Builder's function of that name takes, the target before the
// sources. The steps stand in plain order and the Builder finds out which may run at the same time, so a text has no
// edges. input[2:4] are the elements 2 and 3. docs/guides/write-a-schedule.md has all lines.
#pragma once

#include "schedule/contract.hpp"
#include "schedule/schedule.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::schedule {

/// The schedules of all ranks, and what they promise together.
struct Recipe {
    Contract contract;
    std::vector<Schedule> ranks;
};

/// The text of a recipe; parse() makes the same recipe of it.
std::string to_text(const Recipe& recipe);

/// Of chunks of the input, in a text that is read for a call in place.
enum class InputIs { separate, output };

class PartMaker;

/// Reads a text. `where` names it in messages; where the input is the output, every chunk of the input is one of the
/// output. `parts`: makes the steps that a line "use" stands for; null: there may be none. Throws InvalidArgument that
/// names the line, its words and what is expected: for words that are no step, ranks that are missing or out of range,
/// and more than `elements_max` elements or `steps_max` steps. Whether the schedules do what they promise is the
/// prover's to say.
Recipe parse(std::string_view text, std::string_view where, InputIs input = InputIs::separate,
             const PartMaker* parts = nullptr);

/// In a buffer of a recipe; larger calls run by multiples of a small one.
inline constexpr std::uint64_t elements_max = std::uint64_t{1} << 20;
inline constexpr int ranks_max = 1024;
/// Of one rank, with its input, its output and its scratch buffer of the call's type. Buffer has room for twice as
/// many.
inline constexpr std::size_t buffers_max = 128;
/// In a text, of all ranks, and the stretches of elements that they touch.
inline constexpr std::uint64_t steps_max = std::uint64_t{1} << 18, touched_max = std::uint64_t{1} << 24;

/// The same steps for `times` as many elements.
Schedule scaled(Schedule schedule, std::uint64_t times);
/// The same recipe for the fewest elements (not with codes, which come in blocks): what divides all counts and offsets
/// is divided by.
Recipe shortest(Recipe recipe);

}  // namespace tutti::schedule
