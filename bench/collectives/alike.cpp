// Finds the rounds of a row that can be compared: ratios of times that were measured with the CPUs in one cache here
// and in two there tell about the machine only.
#include "bench/collectives/bench.hpp"

#include <algorithm>
#include <utility>

namespace tutti::bench {
namespace {

// One core's threads, one cache, two caches: their lines' ways are a factor of three or four apart.
constexpr double same_within = 1.6;

bool stood(const Row& row, double line_ns) {
    const auto same = [line_ns](double ns) { return ns <= line_ns * same_within && line_ns <= ns * same_within; };
    return row.line_before_ns <= 0 || (same(row.line_before_ns) && same(row.line_after_ns));
}

std::vector<std::vector<Row>> those(const std::vector<std::vector<Row>>& rounds, double line_ns) {
    std::vector<std::vector<Row>> result(rounds.size());
    for (std::size_t i = 0; i < rounds.size(); ++i) {
        std::ranges::copy_if(rounds[i], std::back_inserter(result[i]),
                             [line_ns](const Row& row) { return stood(row, line_ns); });
    }
    return result;
}

/// Of the implementation with the fewest, and of all.
std::pair<std::size_t, std::size_t> counts(const std::vector<std::vector<Row>>& rounds) {
    std::size_t fewest = SIZE_MAX, all = 0;
    for (const auto& rows : rounds) {
        fewest = std::min(fewest, rows.size());
        all += rows.size();
    }
    return {fewest, all};
}

}  // namespace

std::vector<std::vector<Row>> alike(const std::vector<std::vector<Row>>& rounds) {
    std::vector<std::vector<Row>> best(rounds.size());
    bool known = false;
    for (const auto& rows : rounds) {
        for (const Row& row : rows) {
            if (row.line_before_ns <= 0) continue;
            known = true;
            auto candidate = those(rounds, row.line_before_ns);
            if (counts(candidate).first > 0 && counts(candidate) > counts(best)) best = std::move(candidate);
        }
    }
    return known ? best : rounds;
}

}  // namespace tutti::bench
