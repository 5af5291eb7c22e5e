#include "operation/block_size_predictor.hpp"

#include <gtest/gtest.h>

namespace tutti::detail {
namespace {

using Room = std::optional<std::uint64_t>;

TEST(BlockSizePredictor, begin_with_the_largest_slots) {
    BlockSizePredictor blocks(256);
    EXPECT_EQ(blocks.next(), Room(256));
}

TEST(BlockSizePredictor, get_smaller_slots_after_a_row_of_shorter_ones_and_larger_ones_at_once) {
    BlockSizePredictor blocks(1024);
    for (int call = 0; call < 16; ++call) {
        EXPECT_EQ(blocks.next(), Room(1024)) << call;
        blocks.learn(call == 7 ? 60 : 8);
    }
    EXPECT_EQ(blocks.next(), Room(64)) << "the longest of them fits";
    blocks.learn(300);  // did not fit, but the next will
    EXPECT_EQ(blocks.next(), Room(1024));
}

TEST(BlockSizePredictor, are_tried_less_and_less_often_while_they_are_too_long) {
    BlockSizePredictor blocks(256);
    int tries = 0;
    for (int call = 0; call < 1000; ++call) {
        if (!blocks.next()) continue;
        ++tries;
        blocks.learn(257);
    }
    EXPECT_EQ(tries, 5 + 15);  // calls 0, 2, 6, 14 and 30, then every 64th from 62 on
    while (!blocks.next()) {
    }
    blocks.learn(256);
    for (int call = 0; call < 10; ++call) {
        EXPECT_EQ(blocks.next(), Room(256)) << "short again";
        blocks.learn(256);
    }
}

TEST(BlockSizePredictor, have_room_for_every_length_up_to_the_limit) {
    for (std::uint64_t bytes = 0; bytes <= BlockSizePredictor::most_room; ++bytes) {
        const std::uint64_t room = BlockSizePredictor::room_for(bytes);
        EXPECT_GE(room, bytes);
        EXPECT_LE(room, BlockSizePredictor::most_room);
    }
}

}  // namespace
}  // namespace tutti::detail
