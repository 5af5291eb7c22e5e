#include "record/statistics.hpp"

#include "core/assert.hpp"

#include <algorithm>

namespace tutti::record {

void Statistics::ended(std::uint64_t fingerprint, Kind kind, State state, std::uint64_t duration_ticks) noexcept {
    TUTTI_ASSERT(state == State::completed || state == State::failed);
    Cell& cell = cell_of(fingerprint, kind);
    add(cell.ticks, duration_ticks);
    if (state == State::failed) add(cell.failed, 1);
    const auto bound = std::ranges::lower_bound(bounds_s, TickScale().seconds(duration_ticks));
    add(cell.buckets[static_cast<std::size_t>(bound - bounds_s.begin())], 1);
}

std::vector<Statistics::Row> Statistics::rows() const {
    const TickScale scale;
    std::vector<Row> rows;
    for (const Cell& cell : cells_) {
        Row row{.fingerprint = cell.fingerprint.load(std::memory_order_relaxed),
                .kind = cell.kind.load(std::memory_order_relaxed),
                .calls = cell.calls.load(std::memory_order_relaxed),
                .bytes = cell.bytes.load(std::memory_order_relaxed),
                .failed = cell.failed.load(std::memory_order_relaxed),
                .seconds = scale.seconds(cell.ticks.load(std::memory_order_relaxed))};
        if (row.calls == 0) continue;
        std::ranges::transform(cell.buckets, row.buckets.begin(),
                               [](const Counter& counter) { return counter.load(std::memory_order_relaxed); });
        rows.push_back(row);
    }
    return rows;
}

}  // namespace tutti::record
