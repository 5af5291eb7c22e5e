// Statistics: counts a rank's operations in one group by kind, for the page /metrics, and only if it is wanted.
//
// Threads: begun() and ended() by one thread at a time (the group's lock); rows() by any thread at any time.
#pragma once

#include "record/dump.hpp"
#include "record/ticks.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

namespace tutti::record {

class Statistics {
 public:
    /// Upper bounds of the histogram's buckets, in seconds; the last bucket has none.
    static constexpr std::array bounds_s{10e-6, 30e-6, 100e-6, 300e-6, 1e-3, 3e-3, 10e-3,
                                         30e-3, 0.1,   0.3,    1.0,    3.0,  10.0, 60.0};
    struct Row {
        std::uint64_t fingerprint = 0;  ///< of one operation of this kind
        Kind kind = Kind::collective;
        std::uint64_t calls = 0, bytes = 0, failed = 0;
        double seconds = 0;
        std::array<std::uint64_t, bounds_s.size() + 1> buckets{};  ///< operations that have ended, by duration
    };

    void begun(std::uint64_t fingerprint, Kind kind, std::uint64_t bytes) noexcept {
        Cell& cell = cell_of(fingerprint, kind);
        cell.fingerprint.store(fingerprint, std::memory_order_relaxed);
        cell.kind.store(kind, std::memory_order_relaxed);
        add(cell.bytes, bytes);
        add(cell.calls, 1);
    }
    void ended(std::uint64_t fingerprint, Kind kind, State state, std::uint64_t duration_ticks) noexcept;
    /// One row for each kind of operation that was called at least once.
    std::vector<Row> rows() const;

 private:
    using Counter = std::atomic<std::uint64_t>;
    struct Cell {
        Counter fingerprint{0}, calls{0}, bytes{0}, failed{0}, ticks{0};
        std::atomic<Kind> kind{Kind::collective};
        std::array<Counter, bounds_s.size() + 1> buckets{};
    };
    static void add(Counter& counter, std::uint64_t amount) noexcept {
        counter.store(counter.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
    }
    // The first five bits of a fingerprint are the operation; messages have a cell for each direction instead.
    static constexpr std::size_t operations = 32;
    Cell& cell_of(std::uint64_t fingerprint, Kind kind) noexcept {
        return cells_[kind == Kind::send ? operations : kind == Kind::receive ? operations + 1 : fingerprint >> 59];
    }

    std::array<Cell, operations + 2> cells_;
};

}  // namespace tutti::record
