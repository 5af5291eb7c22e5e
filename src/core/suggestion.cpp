#include "core/suggestion.hpp"

#include "core/assert.hpp"
#include "core/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace tutti {
namespace {

std::string letters_of(std::string_view word) {
    return in_lower_case(std::string(word.substr(std::min(word.find_first_not_of('-'), word.size()))));
}

// Letters to insert, to remove, to replace or to swap with their neighbour (optimal string alignment).
std::size_t distance(const std::string& a, const std::string& b) {
    std::vector<std::size_t> before, last, row(b.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 1; i <= a.size(); ++i) {
        before = std::exchange(last, row);
        row[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = std::min(row[j], before[j - 2] + 1);
        }
    }
    TUTTI_ASSERT(row[b.size()] <= std::max(a.size(), b.size()));
    return row[b.size()];
}

// Its letters stand in the name in the same order, and it begins with the same. Two letters stand for three at most.
bool abbreviates(const std::string& word, const std::string& name) {
    if (word.size() < 2 || (word.size() == 2 && name.size() > 3) || name.size() < word.size() ||
        word.front() != name.front())
        return false;
    std::size_t found = 0;
    for (const char c : name) found += found < word.size() && c == word[found] ? 1 : 0;
    TUTTI_ASSERT(found <= word.size());
    return found == word.size();
}

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string_view>& known) {
    const std::string letters = letters_of(word);
    constexpr std::size_t beginning = 4;  // "--nprok" means "--nproc-per-node"
    std::string_view best, similar;
    std::size_t limit = letters.size() < 3 ? 1 : (letters.size() + 2) / 3 + 1;
    for (const std::string_view name : known) {
        const std::string theirs = letters_of(name);
        if (const std::size_t d = distance(letters, theirs); d < limit) {
            limit = d;
            best = name;
        }
        const bool begins_alike =
            letters.size() >= beginning && theirs.substr(0, beginning) == letters.substr(0, beginning);
        if ((abbreviates(letters, theirs) || begins_alike) && (similar.empty() || name.size() < similar.size()))
            similar = name;
    }
    return std::string(best.empty() ? similar : best);
}

std::string did_you_mean(std::string_view word, const std::vector<std::string_view>& known) {
    const std::string name = nearest(word, known);
    return name.empty() ? name : fmt::format("; did you mean \"{}\"?", name);
}

}  // namespace tutti
