#include "ddp/buckets.hpp"

#include <gtest/gtest.h>

namespace tutti::ddp {
namespace {

constexpr Gradient f32(std::size_t bytes) {
    return {float32, bytes};
}

TEST(Buckets, are_closed_when_they_have_reached_their_cap) {
    const std::vector<Gradient> gradients{f32(4), f32(4), f32(4), f32(100), f32(4)};
    const std::vector<std::size_t> order{4, 3, 2, 1, 0};
    EXPECT_EQ(assign_buckets(gradients, order, {.first = 4, .others = 8}), (Buckets{{4}, {3}, {2, 1}, {0}}));
    EXPECT_EQ(assign_buckets(gradients, order, {.first = 8, .others = 8}), (Buckets{{4, 3}, {2, 1}, {0}}));
    EXPECT_EQ(assign_buckets(gradients, order, {.first = 1000, .others = 1000}), (Buckets{{4, 3, 2, 1, 0}}));
    EXPECT_EQ(assign_buckets(gradients, order, {.first = 0, .others = 0}), (Buckets{{4}, {3}, {2}, {1}, {0}}));
}

TEST(Buckets, have_one_dtype_and_stand_where_their_last_gradient_does) {
    const std::vector<Gradient> gradients{f32(8), {bfloat16, 2}, f32(8), {bfloat16, 2}, f32(8)};
    const std::vector<std::size_t> order{4, 3, 2, 1, 0};
    // bfloat16 is complete with 1, the first float32 with 2, the second with 0.
    EXPECT_EQ(assign_buckets(gradients, order, {.first = 16, .others = 16}), (Buckets{{4, 2}, {3, 1}, {0}}));
    // Each dtype has a first bucket.
    EXPECT_EQ(assign_buckets(gradients, order, {.first = 2, .others = 16}), (Buckets{{4}, {3}, {1}, {2, 0}}));
}

TEST(Buckets, of_nothing_are_none) {
    EXPECT_TRUE(assign_buckets({}, {}, {.first = 1, .others = 1}).empty());
}

}  // namespace
}  // namespace tutti::ddp
