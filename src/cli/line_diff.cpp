#include "cli/line_diff.hpp"

#include "core/assert.hpp"
#include "core/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace tutti::cli {
namespace {

using Lines = std::vector<std::string_view>;
/// Of equal lines: their places before and after.
using Match = std::pair<std::size_t, std::size_t>;

Lines lines_of(std::string_view text) {
    Lines lines;
    while (!text.empty()) lines.push_back(take_line(text));
    return lines;
}

/// The longest sequence of equal lines in the order of both sides. Beyond `cells_max` pairs of lines between those that
/// are equal at the ends it takes no further lines for equal.
std::vector<Match> matches_of(const Lines& a, const Lines& b) {
    constexpr std::size_t cells_max = std::size_t{1} << 25;
    std::vector<Match> matches;
    std::size_t begin = 0, tail = 0;
    const std::size_t least = std::min(a.size(), b.size());
    for (; begin < least && a[begin] == b[begin]; ++begin) matches.emplace_back(begin, begin);
    while (tail < least - begin && a[a.size() - 1 - tail] == b[b.size() - 1 - tail]) ++tail;
    const std::size_t rows = a.size() - tail - begin, columns = b.size() - tail - begin;
    TUTTI_ASSERT(begin + tail <= least);
    if (rows > 0 && columns < cells_max / rows) {
        // length[i][j]: of the longest sequence from line i before and line j after.
        std::vector<std::uint32_t> length((rows + 1) * (columns + 1));
        const auto at = [&](std::size_t i, std::size_t j) -> std::uint32_t& { return length[i * (columns + 1) + j]; };
        for (std::size_t i = rows; i-- > 0;) {
            for (std::size_t j = columns; j-- > 0;)
                at(i, j) = a[begin + i] == b[begin + j] ? at(i + 1, j + 1) + 1 : std::max(at(i + 1, j), at(i, j + 1));
        }
        for (std::size_t i = 0, j = 0; i < rows && j < columns;) {
            if (a[begin + i] == b[begin + j])
                matches.emplace_back(begin + i++, begin + j++);
            else if (at(i + 1, j) >= at(i, j + 1))
                ++i;
            else
                ++j;
        }
    }
    for (; tail > 0; --tail) matches.emplace_back(a.size() - tail, b.size() - tail);
    TUTTI_ASSERT(matches.size() <= least);
    return matches;
}

/// One line of the result, and how many lines of each side come before it.
struct Row {
    char sign;
    std::string_view line;
    std::size_t before, after;
};

std::vector<Row> rows_of(const Lines& a, const Lines& b) {
    std::vector<Row> rows;
    std::size_t i = 0, j = 0;
    const auto until = [&](std::size_t a_end, std::size_t b_end) {
        for (; i < a_end; ++i) rows.push_back({'-', a[i], i, j});
        for (; j < b_end; ++j) rows.push_back({'+', b[j], i, j});
    };
    for (const auto& [x, y] : matches_of(a, b)) {
        TUTTI_ASSERT(x >= i && y >= j && a[x] == b[y]);
        until(x, y);
        rows.push_back({' ', a[i], i, j});
        ++i, ++j;
    }
    until(a.size(), b.size());
    TUTTI_ASSERT(rows.size() >= std::max(a.size(), b.size()) && rows.size() <= a.size() + b.size());
    return rows;
}

}  // namespace

std::vector<std::string> line_diff(std::string_view before, std::string_view after, std::size_t context) {
    const Lines a = lines_of(before), b = lines_of(after);
    const std::vector<Row> rows = rows_of(a, b);
    std::vector<std::string> text;
    for (std::size_t i = 0; i < rows.size();) {
        if (rows[i].sign == ' ') {
            ++i;
            continue;
        }
        std::size_t last = i;  // the last line of the hunk that differs
        for (std::size_t k = i; k < rows.size() && k <= last + 2 * context + 1; ++k) {
            if (rows[k].sign != ' ') last = k;
        }
        const std::size_t begin = i > context ? i - context : 0, end = std::min(last + context + 1, rows.size());
        TUTTI_ASSERT(begin <= i && i <= last && last < end && end <= rows.size());
        std::size_t removed = 0, added = 0;
        for (std::size_t k = begin; k < end; ++k) {
            removed += rows[k].sign == '+' ? 0U : 1U;
            added += rows[k].sign == '-' ? 0U : 1U;
        }
        text.push_back(
            fmt::format("@@ -{},{} +{},{} @@", rows[begin].before + 1, removed, rows[begin].after + 1, added));
        for (std::size_t k = begin; k < end; ++k) text.push_back(fmt::format("{}{}", rows[k].sign, rows[k].line));
        i = last + 1;
    }
    return text;
}

}  // namespace tutti::cli
