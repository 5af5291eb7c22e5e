// The prover's symbols, and what the collectives promise in terms of them.
#pragma once

#include "schedule/contract.hpp"
#include "schedule/schedule.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tutti::schedule {

/// A loss in transit: the combination of the parts first … last-1 was rounded to this type, passed through this
/// function, or encoded in this form.
struct Rounding {
    std::uint32_t first = 0, last = 0;
    std::string to;
    enum class By : std::uint8_t { type, call, codes } by = By::type;
    std::uint64_t block = 0;  ///< codes: the first element of the block; all numbers of the block determine its scale
    bool operator==(const Rounding&) const = default;
};

/// The contents of one element: contributions (rank, index in that rank's input) in the order of combination.
struct Symbol {
    std::vector<std::uint32_t> parts;   ///< the contributing ranks
    std::uint64_t index = 0;            ///< the element of the inputs from which all parts stem
    int combinations = 0;               ///< combinations and roundings since it was an input
    std::vector<Rounding> roundings{};  ///< losses other than roundings to the call's type
    std::string coded_by{};             ///< the function, or the form, that encoded it; empty: it is a number
    bool finished = false;
    std::uint64_t span = 0;            ///< a magnitude: the number of elements that it covers, from `index` on
    std::uint64_t place = 0, run = 0;  ///< a code: its index in the run that was encoded together, and the run's length
    std::uint64_t scale = own_scale;   ///< a code: the name of its scale; equal names mean equal scales
    static constexpr std::uint64_t own_scale = 0, given_scale = 1;
    /// For a magnitude: the name of the scale that is made from it.
    std::uint64_t scale_name() const;
    bool operator==(const Symbol&) const = default;
};
using Value = std::optional<Symbol>;
using Values = std::vector<Value>;

/// The initial input and output of `rank` of `size`; the output holds the input if the contract says in_place.
std::pair<Values, Values> starting_with(Rank rank, int size, const Contract& contract);
/// The first fault in the output of `rank` of `size`; empty: it is as promised.
std::string wrong_with(const Values& output, Rank rank, int size, const Contract& contract);

}  // namespace tutti::schedule
