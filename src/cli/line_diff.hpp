// LineDiff: the differences of two texts, line by line, in the form of `diff -U`. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tutti::cli {

/// Hunks: a line "@@ -5,10 +5,4 @@", then lines that begin with "-" (only in `before`), "+" (only in `after`) or " "
/// (in both: up to `context` lines around a difference). Empty: the texts are equal.
std::vector<std::string> line_diff(std::string_view before, std::string_view after, std::size_t context = 2);

}  // namespace tutti::cli
