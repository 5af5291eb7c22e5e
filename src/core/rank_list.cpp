#include "core/rank_list.hpp"

#include "core/assert.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

namespace tutti {
namespace {
constexpr std::size_t entries_shown = 16, shortest_range = 4;
}

std::string rank_list(std::span<const int> ranks) {
    std::vector<std::string> entries;
    std::size_t at = 0;
    while (at < ranks.size() && entries.size() < entries_shown) {
        std::size_t end = at + 1;
        TUTTI_ASSERT(end > at && end <= ranks.size());
        while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
        if (end - at < shortest_range) end = at + 1;
        TUTTI_ASSERT(end == at + 1 || ranks[end - 1] - ranks[at] == static_cast<int>(end - at) - 1);
        entries.push_back(end == at + 1 ? fmt::to_string(ranks[at])
                                        : fmt::format("{} to {}", ranks[at], ranks[end - 1]));
        at = end;
    }
    return fmt::format("{} {}{}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(entries, ", "),
                       at < ranks.size() ? fmt::format(" and {} more", ranks.size() - at) : "");
}

}  // namespace tutti
