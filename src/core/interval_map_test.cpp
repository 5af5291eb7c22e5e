#include "core/interval_map.hpp"

#include <gtest/gtest.h>

#include <tuple>
#include <vector>

namespace tutti {
namespace {

/// Counts from the number that its first element has.
struct Numbered {
    std::uint64_t first = 0;
    Numbered from(std::uint64_t count) const { return {first + count}; }
};
using Stretches = std::vector<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>>;

Stretches stretches(const IntervalMap<Numbered>& map, std::uint64_t begin, std::uint64_t end) {
    Stretches all;
    map.for_each(begin, end,
                 [&](auto from, auto to, const Numbered& value) { all.emplace_back(from, to, value.first); });
    return all;
}

TEST(IntervalMap, cuts_stretches_where_others_begin_and_end) {
    IntervalMap<Numbered> map;
    map.set(0, 10, {100});
    map.set(4, 6, {200});
    EXPECT_EQ(stretches(map, 0, 10), (Stretches{{0, 4, 100}, {4, 6, 200}, {6, 10, 106}}));
    EXPECT_EQ(stretches(map, 1, 5), (Stretches{{1, 4, 101}, {4, 5, 200}}));
    map.erase(3, 7);
    EXPECT_EQ(stretches(map, 0, 20), (Stretches{{0, 3, 100}, {7, 10, 107}}));
    map.set(5, 5, {1});
    EXPECT_EQ(stretches(map, 0, 20).size(), 2U) << "nothing";
}

TEST(IntervalMap, fills_holes_when_it_is_updated) {
    IntervalMap<Numbered> map;
    map.set(2, 4, {20});
    map.update(1, 6, {7}, [](Numbered& value) { value.first += 1000; });
    EXPECT_EQ(stretches(map, 0, 10), (Stretches{{1, 2, 1007}, {2, 4, 1020}, {4, 6, 1007}}));
}

}  // namespace
}  // namespace tutti
