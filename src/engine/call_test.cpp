#include "engine/call.hpp"

#include <gtest/gtest.h>

#include <array>

namespace tutti::engine {
namespace {

using Parts = std::vector<Stretch>;

CollectiveCall call_of(Collective collective, std::uint64_t count) {
    CollectiveCall call{.collective = collective, .dtype = DType::int32};
    call.set_count(count);
    return call;
}

TEST(CollectiveCall, reads_and_writes_the_whole_its_own_block_or_a_block_for_each_rank) {
    EXPECT_EQ(call_of(Collective::all_reduce, 5).output_parts(1, 3), (Parts{{0, 20}}));
    EXPECT_EQ(call_of(Collective::all_gather, 5).input_parts(1, 3), (Parts{{0, 20}}));
    EXPECT_EQ(call_of(Collective::all_gather, 5).output_parts(1, 3), (Parts{{0, 20}, {20, 20}, {40, 20}}));
    EXPECT_EQ(call_of(Collective::all_to_all, 5).input_parts(1, 3), (Parts{{0, 20}, {20, 20}, {40, 20}}));
    EXPECT_TRUE(call_of(Collective::barrier, 0).input_parts(1, 3).empty());
}

TEST(CollectiveCall, keeps_numbers_of_blocks_only_where_they_differ) {
    CollectiveCall call{.collective = Collective::reduce_scatter, .dtype = DType::int32};
    const std::array<std::uint64_t, 3> different{1, 0, 4}, equal{2, 2, 2};
    call.set_counts(different);
    EXPECT_EQ(call.block_bytes, CollectiveCall::different);
    EXPECT_EQ(call.input_parts(1, 3), (Parts{{0, 4}, {0, 0}, {4, 16}}));
    EXPECT_EQ(call.output_parts(2, 3), (Parts{{0, 16}}));
    EXPECT_EQ(call.contributed_bytes(1, 3), 20U);
    call.set_counts(equal);
    EXPECT_TRUE(call.counts.empty());
    EXPECT_EQ(call.block_bytes, 8U);
}

TEST(CollectiveCall, blocks_of_an_exchange_lie_where_their_offsets_say_and_empty_ones_nowhere) {
    CollectiveCall call{.collective = Collective::all_to_all, .dtype = DType::int32};
    const std::array<std::uint64_t, 3> sent{1, 2, 0}, received{3, 0, 1}, places{7, 100, 0};
    call.set_blocks(sent, received);
    call.receive_offsets = places;
    EXPECT_EQ(call.input_parts(0, 3), (Parts{{0, 4}, {4, 8}, {0, 0}}));
    EXPECT_EQ(call.output_parts(0, 3), (Parts{{28, 12}, {0, 0}, {0, 4}}));
    EXPECT_EQ(call.contributed_bytes(0, 3), 12U);
}

TEST(CollectiveCall, a_scatter_counts_what_a_rank_gets_and_a_gather_what_it_gives) {
    EXPECT_EQ(call_of(Collective::scatter, 5).contributed_bytes(2, 3), 20U);
    EXPECT_EQ(call_of(Collective::gather, 5).contributed_bytes(2, 3), 20U);
    EXPECT_EQ(call_of(Collective::reduce_scatter, 5).contributed_bytes(2, 3), 60U);
}

}  // namespace
}  // namespace tutti::engine
