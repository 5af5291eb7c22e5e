// The prover's symbols as numbers, for engines that run on memory.
#pragma once

#include "schedule/symbols.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>

namespace tutti::symbols {

// A number: four bits count what each rank has contributed, and above them is the sum of its index, once for each
// contribution.
inline constexpr int index_bits = 24;
inline constexpr std::int64_t untouched = -1;

inline std::int64_t number_of(const schedule::Symbol& symbol) {
    std::int64_t number = static_cast<std::int64_t>(symbol.index * symbol.parts.size()) << index_bits;
    for (const std::uint32_t rank : symbol.parts) number += std::int64_t{1} << (4 * rank);
    return number;
}

inline schedule::Value symbol_of(std::int64_t number, bool reduced) {
    if (number == untouched) return std::nullopt;
    schedule::Symbol symbol;
    for (std::uint32_t rank = 0; rank < index_bits / 4; ++rank) {
        for (std::int64_t times = number >> (4 * rank) & 15; times > 0; --times) symbol.parts.push_back(rank);
    }
    if (!symbol.parts.empty()) symbol.index = static_cast<std::uint64_t>(number >> index_bits) / symbol.parts.size();
    symbol.finished = reduced;  // that shows in averages alone
    symbol.combinations = reduced ? 1 : 0;
    return symbol;
}

inline bool reduces(Collective collective) {
    return traits_of(collective).combines;
}

inline void fill(std::int64_t* at, const schedule::Values& values) {
    std::ranges::transform(values, at, [](const auto& value) { return value ? number_of(*value) : untouched; });
}

}  // namespace tutti::symbols
