// The prover's symbols, and the promises of the collectives in terms of them.
#pragma once

#include "schedule/prove.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tutti::schedule {

/// One element's contents: contributions (rank, index in that rank's input) in the order of combination.
struct Symbol {
    std::vector<std::uint32_t> parts;  ///< rank
    std::uint64_t index = 0;           ///< all parts stem from this element of the inputs
    int combinations = 0;
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
