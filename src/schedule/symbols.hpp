// The prover's symbols, and the promises of the collectives in terms of them.
#pragma once

#include "schedule/contract.hpp"
#include "schedule/schedule.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tutti::schedule {

/// A loss on the way: what the parts first … last-1 had come to was rounded to this type, went through this function,
/// or became codes of this form.
struct Rounding {
    std::uint32_t first = 0, last = 0;
    std::string to;
    enum class By : std::uint8_t { type, call, codes } by = By::type;
    std::uint64_t block = 0;  ///< codes: the first element of the block, whose numbers all decide about its scale
    bool operator==(const Rounding&) const = default;
};

/// One element's contents: contributions (rank, index in that rank's input) in the order of combination.
struct Symbol {
    std::vector<std::uint32_t> parts;   ///< rank
    std::uint64_t index = 0;            ///< all parts stem from this element of the inputs
    int combinations = 0;               ///< and roundings: how often it was rounded since it was put in
    std::vector<Rounding> roundings{};  ///< those to types other than the call's
    std::string coded_by{};             ///< the function, or the form, whose codes these are; empty: they are numbers
    bool finished = false;
    std::uint64_t span = 0;            ///< a magnitude: of so many elements, from `index` on
    std::uint64_t place = 0, run = 0;  ///< a code: its place in the run that was encoded together, and how long that is
    std::uint64_t scale = own_scale;   ///< a code: the name of its scale; equal names, equal scales
    static constexpr std::uint64_t own_scale = 0, given_scale = 1;
    /// Of a magnitude, for the scale that is made of it.
    std::uint64_t scale_name() const;
    bool operator==(const Symbol&) const = default;
};
using Value = std::optional<Symbol>;
using Values = std::vector<Value>;

/// The initial contents for `rank`, of `size`: the input and the output, which holds the input where that is promised.
std::pair<Values, Values> starting_with(Rank rank, int size, const Contract& contract);
/// The first fault in the output of `rank`, of `size`; empty: it is as promised.
std::string wrong_with(const Values& output, Rank rank, int size, const Contract& contract);

}  // namespace tutti::schedule
