// Suggestions: "did you mean ...?" for an unknown word, wherever a user may write one.
//
// Threads: any.
#pragma once

#include <ranges>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

/// The known word that `word` was meant to be, as far as its letters tell: a slip or two of the keyboard, other
/// capitals, or an abbreviation (bcast, prod). Dashes at the beginning are no letters. Empty when none is near.
std::string nearest(std::string_view word, const std::vector<std::string_view>& known);
/// "; did you mean \"all_reduce\"?", for the end of a sentence; empty when no known word is near.
std::string did_you_mean(std::string_view word, const std::vector<std::string_view>& known);

/// The same for any range of words.
template <std::ranges::input_range Words>
std::string nearest(std::string_view word, const Words& known) {
    return nearest(word, std::vector<std::string_view>(std::ranges::begin(known), std::ranges::end(known)));
}
template <std::ranges::input_range Words>
std::string did_you_mean(std::string_view word, const Words& known) {
    return did_you_mean(word, std::vector<std::string_view>(std::ranges::begin(known), std::ranges::end(known)));
}

}  // namespace tutti
