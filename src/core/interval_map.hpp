// IntervalMap: maps integers to values; consecutive integers that share a value are stored as one stretch.
//
// Threads: one at a time.
#pragma once

#include "core/assert.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>

namespace tutti {

/// T needs `T from(std::uint64_t count) const`: if a stretch with this value is cut after its first `count` integers,
/// it returns the value of the rest.
template <class T>
class IntervalMap {
 public:
    struct Stretch {
        std::uint64_t end = 0;
        T value{};
    };
    using Map = std::map<std::uint64_t, Stretch>;

    const Map& stretches() const noexcept { return map_; }

    /// Calls f(begin, end, value) for the stretches of [begin, end), in order; holes are left out.
    template <class F>
    void for_each(std::uint64_t begin, std::uint64_t end, F&& f) const {
        if (begin >= end) return;
        auto at = map_.upper_bound(begin);
        if (at != map_.begin() && std::prev(at)->second.end > begin) --at;
        for (; at != map_.end() && at->first < end; ++at) {
            const std::uint64_t from = std::max(at->first, begin), to = std::min(at->second.end, end);
            TUTTI_ASSERT(from < to);
            f(from, to, at->second.value.from(from - at->first));
        }
    }
    /// Leaves a hole at [begin, end).
    void erase(std::uint64_t begin, std::uint64_t end) {
        if (begin >= end) return;
        split(begin);
        split(end);
        map_.erase(map_.lower_bound(begin), map_.lower_bound(end));
    }
    void set(std::uint64_t begin, std::uint64_t end, T value) {
        if (begin >= end) return;
        erase(begin, end);
        TUTTI_ASSERT(map_.lower_bound(begin) == map_.lower_bound(end));
        map_.emplace(begin, Stretch{end, std::move(value)});
    }
    /// Splits the stretches at `begin` and `end`, fills the holes of [begin, end) with `fresh`, and calls f(value&) for
    /// every stretch of it.
    template <class F>
    void update(std::uint64_t begin, std::uint64_t end, const T& fresh, F&& f) {
        if (begin >= end) return;
        split(begin);
        split(end);
        std::uint64_t at = begin;
        while (at < end) {
            auto next = map_.lower_bound(at);
            if (next == map_.end() || next->first > at) {
                const std::uint64_t stop = next == map_.end() ? end : std::min(end, next->first);
                next = map_.emplace_hint(next, at, Stretch{stop, fresh});
            }
            f(next->second.value);
            TUTTI_ASSERT(next->second.end > at && next->second.end <= end);
            at = next->second.end;
        }
    }

 private:
    void split(std::uint64_t at) {
        auto next = map_.upper_bound(at);
        if (next == map_.begin()) return;
        auto& [begin, stretch] = *std::prev(next);
        TUTTI_ASSERT(begin < stretch.end);
        if (begin == at || stretch.end <= at) return;
        map_.emplace_hint(next, at, Stretch{stretch.end, stretch.value.from(at - begin)});
        stretch.end = at;
        TUTTI_ASSERT(begin < stretch.end);
    }
    Map map_;
};

}  // namespace tutti
