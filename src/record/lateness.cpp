#include "record/lateness.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>

namespace tutti::record {
namespace {

constexpr std::size_t rows_max = 16;

struct Call {
    int rank;
    const Entry* entry;
    std::int64_t at_ns;
};

// The one that came last of those for which the rank has to wait, if it came after the rank.
const Call* awaited_by(const Call& waiting, const std::vector<Call>& all) {
    const Call* last = nullptr;
    const int root = waiting.entry->peer;
    for (const Call& other : all) {
        const bool counts = waiting.entry->kind == Kind::from_root ? other.rank == root
                            : waiting.entry->kind == Kind::to_root ? waiting.rank == root
                                                                   : true;
        if (counts && other.at_ns > (last != nullptr ? last : &waiting)->at_ns) last = &other;
    }
    return last;
}

}  // namespace

LatenessByRank lateness_of(const WorldTimeline& world) {
    LatenessByRank result;
    std::map<std::uint64_t, std::vector<Call>> by_sequence;
    std::map<int, std::size_t> places;
    for (std::size_t rank = 0; rank < world.ranks.size(); ++rank) {
        if (!world.ranks[rank]) continue;
        const int number = static_cast<int>(rank);
        places[number] = result.ranks.size();
        result.ranks.push_back({.rank = number});
        for (const Entry& entry : world.ranks[rank]->entries) {
            if (!is_message(entry.kind))
                by_sequence[entry.sequence].push_back({number, &entry, entry.enqueued_ns + world.offset_ns[rank]});
        }
    }
    for (const auto& [sequence, calls] : by_sequence) {
        if (calls.size() != result.ranks.size()) continue;
        ++result.collectives;
        std::set<int> awaited;
        for (const Call& call : calls) {
            const Call* const last = awaited_by(call, calls);
            if (last == nullptr) continue;
            const double seconds = 1e-9 * static_cast<double>(last->at_ns - call.at_ns);
            result.ranks[places[call.rank]].waited_s += seconds;
            result.ranks[places[last->rank]].caused_s += seconds;
            if (awaited.insert(last->rank).second) ++result.ranks[places[last->rank]].awaited;
        }
    }
    std::ranges::stable_sort(result.ranks, std::ranges::greater{}, &Lateness::caused_s);
    return result;
}

std::string lateness_table(const WorldTimeline& world) {
    const LatenessByRank lateness = lateness_of(world);
    if (lateness.collectives == 0 || lateness.ranks.size() < 2) return {};
    std::string text = fmt::format("  waiting in {} collective{}, from when each rank came; the slowest rank first\n",
                                   lateness.collectives, lateness.collectives == 1 ? "" : "s");
    text += fmt::format("    {:>6} {:>18} {:>12} {:>10}\n", "rank", "others waited s", "it waited s", "came last");
    for (std::size_t i = 0; i < std::min(lateness.ranks.size(), rows_max); ++i) {
        const Lateness& one = lateness.ranks[i];
        text += fmt::format("    {:>6} {:>18.3f} {:>12.3f} {:>10}\n", world.members[one.rank], one.caused_s,
                            one.waited_s, one.awaited);
    }
    if (lateness.ranks.size() > rows_max)
        text += fmt::format("    and {} ranks more\n", lateness.ranks.size() - rows_max);
    return text;
}

}  // namespace tutti::record
