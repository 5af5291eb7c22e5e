// Schedules as text: those of all ranks for one collective, to store, compare, and write by hand.
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
// A step is a line: its name as in StepKind, then the arguments of the Builder's function of that name, the target
// before the sources. The steps are in program order and the Builder finds out which may run concurrently, so a text
// has no edges. input[2:4] are the elements 2 and 3. docs/guides/write-a-schedule.md has all lines.
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

/// The text of a recipe, from which parse() makes the same recipe.
std::string to_text(const Recipe& recipe);

/// Where chunks of "input" in a text lie: in a buffer of its own, or, for an in-place call, in the output buffer.
enum class InputIs { separate, output };

class PartMaker;

/// Reads a text. `where` names it in messages. If `input` is InputIs::output, every chunk of the input is one of the
/// output. `parts`: makes the steps for "use" lines; null: the text may have none. Throws InvalidArgument that names
/// the line, its words and what is expected: for unknown steps, for ranks that are missing or out of range, and for
/// more than `elements_max` elements or `steps_max` steps. It does not check that the schedules keep their promises;
/// prove() does.
Recipe parse(std::string_view text, std::string_view where, InputIs input = InputIs::separate,
             const PartMaker* parts = nullptr);

/// Elements in a buffer of a recipe; larger calls run by multiples of a small recipe.
inline constexpr std::uint64_t elements_max = std::uint64_t{1} << 20;
inline constexpr int ranks_max = 1024;
/// Buffers of one rank, including input, output and the scratch buffer of the call's type. Buffer has room for twice as
/// many.
inline constexpr std::size_t buffers_max = 128;
/// Steps in a text, of all ranks together, and the ranges of elements that they touch.
inline constexpr std::uint64_t steps_max = std::uint64_t{1} << 18, touched_max = std::uint64_t{1} << 24;

/// The same steps for `times` as many elements.
Schedule scaled(Schedule schedule, std::uint64_t times);
/// The same recipe for the fewest elements: divides all counts and offsets by their greatest common divisor. Recipes
/// with codes stay as they are, since their blocks have a fixed length.
Recipe shortest(Recipe recipe);

}  // namespace tutti::schedule
