#include "core/kept_map.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <random>

namespace tutti {
namespace {

TEST(KeptMap, is_a_map) {
    std::mt19937 random(7);
    KeptMap<std::uint64_t, int> kept;
    std::map<std::uint64_t, int> expected;
    for (int i = 0; i < 3000; ++i) {
        const std::uint64_t key = random() % 50;
        if (random() % 2 == 0) {
            ASSERT_EQ(kept[key], expected[key]) << "a new entry has no value of an old one";
            kept[key] = expected[key] = i;
        } else if (const auto found = kept.find(key); found != kept.end()) {
            kept.erase(found);
            expected.erase(key);
        }
        ASSERT_EQ(kept.size(), expected.size());
        ASSERT_EQ(kept.contains(key), expected.contains(key));
    }
    ASSERT_FALSE(kept.empty());
    EXPECT_EQ((std::map<std::uint64_t, int>(kept.begin(), kept.end())), expected);
    kept.clear();
    EXPECT_TRUE(kept.empty());
}

TEST(KeptMap, lets_go_of_the_values_that_have_left_it) {
    KeptMap<int, std::shared_ptr<int>> kept;
    const auto item = std::make_shared<int>(1);
    kept[5] = item;
    kept.erase(kept.find(5));
    EXPECT_EQ(item.use_count(), 1);
}

TEST(KeptMap, puts_a_new_entry_where_an_old_one_was) {
    KeptMap<int, int> kept;
    const int* const at = &kept[5];
    kept.erase(kept.find(5));
    EXPECT_EQ(&kept[6], at);
}

TEST(KeptMap, erases_while_somebody_goes_through_it) {
    KeptMap<int, int> kept;
    for (int i = 0; i < 100; ++i) kept[i] = i;
    for (auto entry = kept.begin(); entry != kept.end();)
        entry = entry->second % 2 == 0 ? kept.erase(entry) : std::next(entry);
    EXPECT_EQ(kept.size(), 50U);
    for (const auto& [key, value] : kept) EXPECT_EQ(value % 2, 1) << key;
}

}  // namespace
}  // namespace tutti
