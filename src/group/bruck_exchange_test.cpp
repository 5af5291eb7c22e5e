// Four ranks' relays in one thread; the test carries their slots.
#include "group/bruck_exchange.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

namespace tutti::detail {
namespace {

constexpr int four = 4;
constexpr std::uint64_t largest_slots = BlockSizePredictor::most_room;

struct RelayingRank {
    explicit RelayingRank(int number) : bruck(number, four) {}

    // Blocks of so many int32 to and from each rank, one after the other.
    void expect(const std::vector<std::uint64_t>& to, const std::vector<std::uint64_t>& from) {
        sent = to;
        received = from;
        input.assign(std::accumulate(to.begin(), to.end(), std::uint64_t{0}), 0);
        output.assign(std::accumulate(from.begin(), from.end(), std::uint64_t{0}), -1);
        call = {.collective = Collective::all_to_all,
                .input = reinterpret_cast<std::byte*>(input.data()),
                .output = reinterpret_cast<std::byte*>(output.data()),
                .dtype = DType::int32};
        call.set_blocks(sent, received);
    }

    BruckExchange bruck;
    engine::CollectiveCall call;
    std::vector<std::uint64_t> sent, received;
    std::vector<int> input, output;
    std::optional<BruckExchange::Pass> pass;
};

class RelayOfFour : public testing::Test {
 protected:
    // counts[r][p]: elements from rank r to rank p. Their values: 100 r + 10 p + place.
    void call(const std::vector<std::vector<std::uint64_t>>& counts) {
        for (int r = 0; r < four; ++r) {
            std::vector<std::uint64_t> from;
            for (const auto& row : counts) from.push_back(row[static_cast<std::size_t>(r)]);
            RelayingRank& rank = ranks_[static_cast<std::size_t>(r)];
            rank.expect(counts[static_cast<std::size_t>(r)], from);
            std::size_t at = 0;
            for (int p = 0; p < four; ++p) {
                for (std::uint64_t i = 0; i < counts[static_cast<std::size_t>(r)][static_cast<std::size_t>(p)]; ++i)
                    rank.input[at++] = 100 * r + 10 * p + static_cast<int>(i);
            }
        }
    }
    // Each slot to its rank, as the pass's all_to_all does it. False: blocks are not passed on this time.
    bool carry() {
        for (RelayingRank& rank : ranks_) {
            const auto room = rank.bruck.room_for(DType::int32, largest_slots);
            rank.pass.reset();
            if (room) rank.pass = rank.bruck.begin(rank.call, 0, *room);
        }
        if (!ranks_[0].pass) return false;
        for (int from = 0; from < four; ++from) {
            for (int to = 0; to < four; ++to) {
                const BruckExchange::Pass& source = *ranks_[static_cast<std::size_t>(from)].pass;
                const BruckExchange::Pass& target = *ranks_[static_cast<std::size_t>(to)].pass;
                const std::uint64_t bytes = source.request.send_counts[static_cast<std::size_t>(to)];
                EXPECT_EQ(bytes, target.request.receive_counts[static_cast<std::size_t>(from)])
                    << "all slots are alike";
                std::memcpy(target.operands.output + target.request.receive_offsets[static_cast<std::size_t>(from)],
                            source.operands.input + source.request.send_offsets[static_cast<std::size_t>(to)], bytes);
            }
        }
        return true;
    }
    BruckExchange::Outcome end(int r) {
        RelayingRank& rank = ranks_[static_cast<std::size_t>(r)];
        return rank.bruck.end(rank.call);
    }
    std::vector<RelayingRank> ranks_ = [] {
        std::vector<RelayingRank> all;
        for (int r = 0; r < four; ++r) all.emplace_back(r);
        return all;
    }();
};

TEST_F(RelayOfFour, brings_blocks_of_different_lengths_to_their_places) {
    call({{1, 0, 2, 3}, {4, 1, 0, 1}, {0, 0, 2, 0}, {5, 1, 1, 1}});
    ASSERT_TRUE(carry());
    for (int r = 0; r < four; ++r) {
        const BruckExchange::Outcome outcome = end(r);
        EXPECT_FALSE(outcome.difference);
        EXPECT_TRUE(outcome.fitted);
    }
    EXPECT_EQ(ranks_[0].output, (std::vector<int>{0, 100, 101, 102, 103, 300, 301, 302, 303, 304}));
    EXPECT_EQ(ranks_[1].output, (std::vector<int>{110, 310}));
    EXPECT_EQ(ranks_[3].output, (std::vector<int>{30, 31, 32, 130, 330}));
}

TEST_F(RelayOfFour, says_on_all_ranks_that_a_block_between_two_of_them_did_not_fit) {
    const std::uint64_t too_long = largest_slots / 4 + 1;
    call({{1, 1, 1, 1}, {1, 1, too_long, 1}, {1, 1, 1, 1}, {1, 1, 1, 1}});
    ASSERT_TRUE(carry());
    for (int r = 0; r < four; ++r) {
        const BruckExchange::Outcome outcome = end(r);
        EXPECT_FALSE(outcome.difference) << "rank " << r;
        EXPECT_FALSE(outcome.fitted) << "rank " << r;
    }
    EXPECT_FALSE(carry()) << "the next blocks are not passed on: they would most likely not fit either";
}

TEST_F(RelayOfFour, finds_the_rank_whose_block_is_not_as_long_as_expected) {
    call({{1, 1, 1, 1}, {1, 1, 1, 1}, {1, 1, 1, 1}, {1, 1, 1, 1}});
    ranks_[1].expect({1, 1, 1, 1}, {1, 1, 3, 1});
    ASSERT_TRUE(carry());
    const auto difference = end(1).difference;
    ASSERT_TRUE(difference);
    EXPECT_EQ(difference->peer, 2);
    EXPECT_EQ(difference->theirs, 4U);
    EXPECT_EQ(difference->mine, 12U);
    EXPECT_TRUE(end(0).fitted) << "the others' blocks are as they should be";
}

TEST_F(RelayOfFour, passes_nothing_on_where_that_is_never_worth_while) {
    EXPECT_FALSE(ranks_[0].bruck.room_for(DType::int32, 0));
    EXPECT_TRUE(ranks_[0].bruck.room_for(DType::int32, largest_slots));
}

}  // namespace
}  // namespace tutti::detail
