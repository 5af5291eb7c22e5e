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

/// A loss on the way: what the parts first … last-1 had come to was rounded to this type, or went through this
/// function.
struct Rounding {
    std::uint32_t first = 0, last = 0;
    std::string to;
    bool by_call = false;
    bool operator==(const Rounding&) const = default;
};

/// One element's contents: contributions (rank, index in that rank's input) in the order of combination.
struct Symbol {
    std::vector<std::uint32_t> parts;   ///< rank
    std::uint64_t index = 0;            ///< all parts stem from this element of the inputs
    int combinations = 0;               ///< and roundings: how often it was rounded since it was put in
    std::vector<Rounding> roundings{};  ///< those to types other than the call's
    std::string coded_by{};             ///< the function whose codes these are; empty: they are numbers
    bool finished = false;
    bool operator==(const Symbol&) const = default;
};
using Value = std::optional<Symbol>;
using Values = std::vector<Value>;

/// The initial contents for `rank`, of `size`: the input and the output, which holds the input where that is promised.
std::pair<Values, Values> starting_with(Rank rank, int size, const Contract& contract);
/// The first fault in the output of `rank`, of `size`; empty: it is as promised.
std::string wrong_with(const Values& output, Rank rank, int size, const Contract& contract);

}  // namespace tutti::schedule
