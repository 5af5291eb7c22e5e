#include "cli/line_diff.hpp"

#include "core/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
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

/// The place of each line that is there once; nothing for the others.
std::map<std::string_view, std::optional<std::size_t>> places_of(const Lines& lines, std::size_t begin,
                                                                 std::size_t end) {
    std::map<std::string_view, std::optional<std::size_t>> places;
    for (std::size_t i = begin; i < end; ++i) {
        const auto [place, is_first] = places.try_emplace(lines[i], i);
        if (!is_first) place->second.reset();
    }
    return places;
}

/// The most of the matches, which come in the order of the first side, that are in the order of the second side too.
std::vector<Match> in_both_orders(const std::vector<Match>& matches) {
    std::vector<std::size_t> last;  // by length of a sequence: its last match, the smallest that there is
    std::vector<std::optional<std::size_t>> before(matches.size());
    for (std::size_t i = 0; i < matches.size(); ++i) {
        const auto place = std::ranges::lower_bound(last, matches[i].second, {},
                                                    [&](std::size_t match) { return matches[match].second; });
        if (place != last.begin()) before[i] = *std::prev(place);
        if (place == last.end())
            last.push_back(i);
        else
            *place = i;
    }
    std::vector<Match> kept;
    for (auto i = last.empty() ? std::nullopt : std::optional(last.back()); i; i = before[*i])
        kept.push_back(matches[*i]);
    std::ranges::reverse(kept);
    return kept;
}

/// Equal lines at both ends of two stretches, [begin, end) of each side; gives the stretches that are left.
class Stretch {
 public:
    Stretch(const Lines& a, const Lines& b, Match begin, Match end) : begin_(begin), end_(end) {
        while (has_both() && a[begin_.first] == b[begin_.second]) head_.emplace_back(begin_.first++, begin_.second++);
        while (has_both() && a[end_.first - 1] == b[end_.second - 1]) tail_.emplace_back(--end_.first, --end_.second);
        std::ranges::reverse(tail_);
    }
    const Match& begin() const { return begin_; }
    const Match& end() const { return end_; }
    const std::vector<Match>& head() const { return head_; }
    const std::vector<Match>& tail() const { return tail_; }

 private:
    bool has_both() const { return begin_.first < end_.first && begin_.second < end_.second; }
    Match begin_, end_;
    std::vector<Match> head_, tail_;
};

std::vector<Match> matches_of(const Lines& a, const Lines& b) {
    std::vector<Match> matches;
    const auto add = [&](const std::vector<Match>& more) { matches.insert(matches.end(), more.begin(), more.end()); };
    const Stretch whole(a, b, {0, 0}, {a.size(), b.size()});
    add(whole.head());
    const auto here = places_of(a, whole.begin().first, whole.end().first);
    const auto there = places_of(b, whole.begin().second, whole.end().second);
    std::vector<Match> anchors;
    for (std::size_t i = whole.begin().first; i < whole.end().first; ++i) {
        const auto found = there.find(a[i]);
        if (here.at(a[i]) && found != there.end() && found->second) anchors.emplace_back(i, *found->second);
    }
    anchors = in_both_orders(anchors);
    anchors.push_back(whole.end());
    Match begin = whole.begin();
    for (const Match& anchor : anchors) {  // lines that are there several times match beside lines that do
        const Stretch between(a, b, begin, anchor);
        add(between.head());
        add(between.tail());
        if (anchor != whole.end()) matches.push_back(anchor);
        begin = {anchor.first + 1, anchor.second + 1};
    }
    add(whole.tail());
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
        until(x, y);
        rows.push_back({' ', a[i], i, j});
        ++i, ++j;
    }
    until(a.size(), b.size());
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
