// Suggestions: "did you mean ...?" for an unknown word, wherever a user may write one.
//
// Threads: any.
#pragma once

#include <ranges>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

/// The known word most similar to `word`: one or two typing errors, other capitals, or an abbreviation (bcast, prod).
/// Leading dashes are ignored. Empty if no word is similar.
std::string nearest(std::string_view word, const std::vector<std::string_view>& known);
/// "; did you mean \"all_reduce\"?", for the end of a sentence; empty if no known word is similar.
std::string did_you_mean(std::string_view word, const std::vector<std::string_view>& known);

/// Overloads for any range of words.
template <std::ranges::input_range Words>
std::string nearest(std::string_view word, const Words& known) {
    return nearest(word, std::vector<std::string_view>(std::ranges::begin(known), std::ranges::end(known)));
}
template <std::ranges::input_range Words>
std::string did_you_mean(std::string_view word, const Words& known) {
    return did_you_mean(word, std::vector<std::string_view>(std::ranges::begin(known), std::ranges::end(known)));
}

}  // namespace tutti
