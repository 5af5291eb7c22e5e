// Blocks from sizes and offsets, good and bad.
#include "api/blocks.hpp"

#include <tutti/error.hpp>

#include <gtest/gtest.h>

#include <numeric>
#include <string>

namespace tutti::api {
namespace {

using Counts = std::vector<std::uint64_t>;

Counts listed(std::span<const std::uint64_t> numbers) {
    return {numbers.begin(), numbers.end()};
}

template <class F>
std::string refusal(const F& f) {
    try {
        f();
    } catch (const InvalidArgument& error) {
        return error.what();
    }
    return "";
}

TEST(RankNumbers, has_room_for_few_and_for_many_ranks) {
    for (const std::size_t ranks : {std::size_t{1}, std::size_t{64}, std::size_t{65}, std::size_t{1000}}) {
        RankNumbers room;
        const std::span<std::uint64_t> numbers = room.take(ranks);
        ASSERT_EQ(numbers.size(), ranks);
        std::iota(numbers.begin(), numbers.end(), std::uint64_t{1});
        EXPECT_EQ(numbers.back(), ranks);
    }
}

TEST(Blocks, of_split_sizes_are_whole_rows) {
    std::vector<float> values(12);
    RankNumbers room;
    const ConstTensorView rows = view(values.data(), {6, 2});
    EXPECT_EQ(listed(split_counts("f", "input", {1, 5}, rows, 2, room)), (Counts{2, 10}));
    EXPECT_EQ(listed(split_counts("f", "input", {}, rows, 3, room)), (Counts{4, 4, 4}));
    EXPECT_EQ(even_count("f", "input", rows, 2), 6U);
    EXPECT_EQ(refusal([&] { even_count("f", "input", rows, 4); }),
              "f: dimension 0 of input is 6: expected a multiple of 4 (or split sizes)");
    EXPECT_EQ(refusal([&] {
                  split_counts("f", "input", {1, 4}, rows, 2, room);
              }),
              "f: input_split_sizes add up to 5: expected 6, the size of dimension 0");
    EXPECT_EQ(refusal([&] {
                  split_counts("f", "input", {7, -1}, rows, 2, room);
              }),
              "f: input_split_sizes has -1: expected zero or more");
    EXPECT_EQ(refusal([&] {
                  split_counts("f", "input", {INT64_MAX, INT64_MAX, 8}, rows, 3, room);  // 6, where sums wrap
              }),
              "f: input_split_sizes add up to 9223372036854775807: expected 6, the size of dimension 0");
    EXPECT_EQ(refusal([&] { split_counts("f", "input", {6}, rows, 2, room); }),
              "f: input_split_sizes has 1 entries: expected 2, one per rank");
    EXPECT_EQ(even_count("f", "input", view(values.data(), {0, 5}), 3), 0U);
}

TEST(Blocks, of_more_elements_than_32_bits_count_are_shared_out_too) {
    const float none = 0;
    const std::int64_t rows = (std::int64_t{1} << 33) + 3;  // only counted
    EXPECT_EQ(even_count("f", "input", ConstTensorView(&none, {rows - 3}, float32), 2), std::uint64_t{1} << 32);
    EXPECT_EQ(refusal([&] { even_count("f", "input", ConstTensorView(&none, {rows}, float32), 2); }),
              "f: dimension 0 of input is 8589934595: expected a multiple of 2 (or split sizes)");
}

class Displaced : public testing::Test {
 protected:
    DisplacedBlocks of(const AllToAllVOptions& options) {
        return displaced_blocks(0, 3, {.input = 6, .output = 9}, options, {send_, receive_});
    }
    std::string refused(const AllToAllVOptions& options) {
        return refusal([&] { of(options); });
    }
    RankNumbers send_, receive_;
};

TEST_F(Displaced, numbers_that_are_left_out_are_those_of_equal_blocks_that_adjoin) {
    const AllToAllVOptions options{.receive_counts = {2, 0, 4}};
    const DisplacedBlocks blocks = of(options);
    EXPECT_EQ(listed(blocks.send.counts), (Counts{2, 2, 2}));
    EXPECT_TRUE(blocks.send.offsets.empty());
    EXPECT_EQ(offsets_of(blocks.send), (Counts{0, 2, 4}));
    EXPECT_EQ(listed(blocks.receive.counts), (Counts{2, 0, 4}));
}

TEST_F(Displaced, blocks_may_lie_in_any_order_and_those_without_elements_anywhere) {
    const AllToAllVOptions options{
        .send_counts = {2, 1, 1}, .receive_counts = {2, 0, 3}, .receive_offsets = {7, 100, 0}};
    EXPECT_EQ(offsets_of(of(options).receive), (Counts{7, 0, 0}));
}

TEST_F(Displaced, a_block_that_leaves_its_tensor_is_named) {
    EXPECT_EQ(refused({.send_counts = {2, 3, 2}, .receive_counts = {2, 0, 0}}),
              "all_to_all_v: the block for rank 2 (2 elements at send_offsets 5) leaves input: expected "
              "blocks within its 6 elements");
    EXPECT_EQ(refused({.receive_counts = {2, 0, 3}, .receive_offsets = {0, 0, 7}}),
              "all_to_all_v: the block from rank 2 (3 elements at receive_offsets 7) leaves output: expected "
              "blocks within its 9 elements");
}

TEST_F(Displaced, blocks_that_overlap_are_named_in_their_order_in_memory) {
    EXPECT_EQ(refused({.receive_counts = {2, 2, 2}, .receive_offsets = {3, 5, 2}}),
              "all_to_all_v: the blocks from ranks 2 and 0 overlap in output: [2, +2] and [3, +2]: "
              "expected blocks apart from each other");
}

TEST_F(Displaced, other_faults_are_told) {
    EXPECT_EQ(refused({.send_counts = {1, 1}}), "all_to_all_v: send_counts has 2 entries: expected 3, one per rank");
    EXPECT_EQ(refused({.send_offsets = {1, -1, 1}}), "all_to_all_v: send_offsets[1] is -1: expected zero or more");
    EXPECT_EQ(refused({.send_counts = {1, 1, 1}}), "all_to_all_v: this rank sends 1 elements to itself and expects 3");
    EXPECT_EQ(refusal([&] {
                  displaced_blocks(0, 4, {.input = 6, .output = 8}, {}, {send_, receive_});
              }),
              "all_to_all_v: input has 6 elements: expected a multiple of 4 (or send_counts)");
}

}  // namespace
}  // namespace tutti::api
