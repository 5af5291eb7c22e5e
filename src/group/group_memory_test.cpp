// Ranks of one host as objects of one thread, each with its own mapping of one shared arena.
#include "group/group_memory.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>

namespace tutti::detail {
namespace {

using transport::Arena;
using transport::ArenaLayout;
using transport::Neighbours;

constexpr int four_ranks = 4;  // rank 3 is on another host

class MemoryOfThreeNeighbours : public testing::Test {
 protected:
    Neighbours neighbours_of(int rank) {
        return {rank, four_ranks, {0, 1, 2}, {0, 0, 0}, Arena::attach(arena_->fd(), layout_), transport::Reads::no};
    }
    const ArenaLayout layout_ = ArenaLayout::of(3, four_ranks);
    std::shared_ptr<Arena> arena_ = Arena::create_shared(layout_);
    Neighbours first_ = neighbours_of(0), third_ = neighbours_of(2);
    BiasedMutex lock_;
    const std::vector<int> world_hosts_{0, 0, 0, 1};
};

TEST_F(MemoryOfThreeNeighbours, of_a_group_is_counted_in_its_order_and_read_by_its_ranks) {
    const std::vector<int> members{2, 3, 0}, hosts{0, 1, 0};
    const Ranks as_third(members, 2, four_ranks), as_first(members, 0, four_ranks);
    GroupMemory third(as_third, hosts, 0, {}, third_, lock_), first(as_first, hosts, 0, {}, first_, lock_);
    EXPECT_EQ(third.own_local(), 0);
    EXPECT_EQ(first.own_local(), 1);
    EXPECT_EQ(first.ranks_here(), (std::vector<int>{0, 2}));
    EXPECT_EQ(first.locals(), (std::vector<int>{0, -1, 1}));
    EXPECT_TRUE(first.is_shared_with(0));
    EXPECT_FALSE(first.is_shared_with(1)) << "rank 3 of the world is elsewhere";
    EXPECT_FALSE(first.is_of_all());
    ASSERT_NE(third.arena(), nullptr);
    third.arena()->control(0).records[1].put(1, 77, 0);
    EXPECT_EQ(first.arena()->control(0).records[1].read(1, &transport::RankControl::Record::fingerprint), 77U);
}

TEST_F(MemoryOfThreeNeighbours, tells_the_others_that_a_rank_has_left) {
    const std::vector<int> members{0, 2}, hosts{0, 0};
    const Ranks as_first(members, 0, four_ranks), as_third(members, 2, four_ranks);
    GroupMemory first(as_first, hosts, 0, {}, first_, lock_), third(as_third, hosts, 0, {}, third_, lock_);
    EXPECT_TRUE(first.is_of_all());
    EXPECT_FALSE(first.is_left_by(1));
    third.leave();
    EXPECT_TRUE(first.is_left_by(1));
    EXPECT_FALSE(first.is_left_by(0));
    first.leave();
}

TEST_F(MemoryOfThreeNeighbours, is_not_for_a_group_whose_host_memory_another_backend_serves) {
    const Ranks all({}, 0, four_ranks);
    EXPECT_NE(GroupMemory(all, world_hosts_, 0, {}, first_, lock_).arena(), nullptr);
    EXPECT_EQ(GroupMemory(all, world_hosts_, 0, {{Device::Type::cpu, "gloo"}}, first_, lock_).arena(), nullptr);
    const Ranks pair({0, 1}, 0, four_ranks);
    const GroupMemory beside(pair, {0, 0}, 0, {{Device::Type::cuda, "nccl"}}, first_, lock_);
    EXPECT_NE(beside.arena(), nullptr);
    EXPECT_FALSE(beside.is_of_all()) << "none serves host memory";
}

TEST_F(MemoryOfThreeNeighbours, of_one_rank_is_its_own) {
    const Ranks alone({1}, 1, four_ranks);
    Neighbours second = neighbours_of(1);
    const GroupMemory memory(alone, {0}, 0, {}, second, lock_);
    EXPECT_TRUE(memory.is_of_all());
    EXPECT_FALSE(memory.has_symmetric()) << "with whom?";
    EXPECT_EQ(memory.symmetric(), nullptr);
}

TEST_F(MemoryOfThreeNeighbours, is_symmetric_once_all_have_made_it) {
    const std::vector<int> members{0, 2}, hosts{0, 0};
    const Ranks as_first(members, 0, four_ranks), as_third(members, 2, four_ranks);
    GroupMemory first(as_first, hosts, 0, {}, first_, lock_), third(as_third, hosts, 0, {}, third_, lock_);
    UniqueFd passed;
    const auto a = first.make_symmetric(4096, [&](std::uint64_t number, auto ranks, auto fds) {
        EXPECT_EQ(number, 1U);
        EXPECT_EQ(std::vector<int>(ranks.begin(), ranks.end()), members);
        passed = UniqueFd(::fcntl(fds[0].get(), F_DUPFD_CLOEXEC, 0));
    });
    const auto b = third.make_symmetric(4096, [&](std::uint64_t, auto, auto fds) { fds[0] = std::move(passed); });
    EXPECT_FALSE(first.uses_symmetric());
    first.add_symmetric(a);
    third.add_symmetric(b);
    EXPECT_TRUE(first.uses_symmetric());
    const transport::Place place = first.symmetric()->find(a->own_part() + 8, 16);
    ASSERT_TRUE(place);
    EXPECT_EQ(third.symmetric()->address(place, 0, 16), b->part(0) + 8);
}

TEST(GroupMemory, takes_as_much_on_each_host_as_its_largest_host_needs) {
    const std::vector<int> hosts{0, 0, 1, 1, 1};
    const std::array<int, 3> spread{0, 2, 3}, dense{2, 3, 4};
    EXPECT_LT(GroupMemory::part_bytes(hosts, spread), GroupMemory::part_bytes(hosts, dense));
    EXPECT_EQ(GroupMemory::part_bytes(hosts, spread) % Arena::part_alignment, 0U);
}

}  // namespace
}  // namespace tutti::detail
