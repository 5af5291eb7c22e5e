// Two ranks in one thread that publish and release.
#include "engine/publications.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace tutti::engine {
namespace {

constexpr std::uint64_t called = 5;

RankContext context_of(transport::Arena& arena, int local) {
    // A group of three, the second of which is on another host.
    return {.arena = &arena, .rank = 2 * local, .local_rank = local, .local_of = {0, -1, 1}};
}

class PublicationsOfTwo : public testing::Test {
 protected:
    static schedule::Schedule of_rounds(std::uint32_t rounds) {
        schedule::Schedule schedule;
        schedule.publications = rounds;
        return schedule;
    }
    void begin(const schedule::Schedule& schedule, std::uint64_t sequence = 1) {
        first_.begin(schedule, sequence, called);
        second_.begin(schedule, sequence, called);
    }

    static constexpr int first = 0, second = 2;  // their ranks in the group
    std::shared_ptr<transport::Arena> arena_ = transport::Arena::create_private({.ranks = 2});
    RankContext here_ = context_of(*arena_, 0), there_ = context_of(*arena_, 1);
    Publications first_{here_}, second_{there_};
};

TEST_F(PublicationsOfTwo, are_there_when_they_have_been_told) {
    begin(of_rounds(2));
    const std::uint64_t publication = first_.first();
    *first_.own_slot(publication) = std::byte{42};
    EXPECT_FALSE(second_.is_there(first, publication));
    first_.tell(publication);
    EXPECT_TRUE(second_.is_there(first, publication));
    EXPECT_TRUE(second_.is_usable(first, publication));
    EXPECT_EQ(*second_.read(first, publication), std::byte{42});
    EXPECT_FALSE(second_.is_there(first, publication + 1));
}

TEST_F(PublicationsOfTwo, have_room_again_when_all_have_released_what_was_there) {
    const auto slots = static_cast<std::uint64_t>(arena_->layout().slots);
    begin(of_rounds(static_cast<std::uint32_t>(slots) + 1));
    EXPECT_TRUE(first_.has_room(slots - 1));
    EXPECT_FALSE(first_.has_room(slots)) << "the slot of publication 0 is to be written again";
    std::vector<int> waits;
    first_.for_each_without_room(slots, [&](int rank) { waits.push_back(rank); });
    EXPECT_EQ(waits, std::vector{second});
    second_.release(1);
    EXPECT_TRUE(first_.has_room(slots));
    EXPECT_FALSE(first_.all_released(2));
    EXPECT_EQ(first_.released_by(second).load(), 1U);
}

TEST_F(PublicationsOfTwo, are_numbered_on_also_behind_a_schedule_that_was_not_run) {
    schedule::Schedule in_place = of_rounds(1);
    in_place.otherwise = std::make_shared<schedule::Schedule>(of_rounds(3));
    begin(in_place);
    EXPECT_EQ(first_.first(), 0U);
    EXPECT_EQ(first_.of({.round = 2}), 2U);
    first_.fall_back_from(in_place);
    EXPECT_EQ(first_.first(), 1U);
    begin(of_rounds(1), 2);
    EXPECT_EQ(first_.first(), 4U);
    EXPECT_EQ(second_.first(), 4U) << "though it has not fallen back";
    EXPECT_FALSE(first_.all_released(4));
    second_.skip_earlier();
    EXPECT_TRUE(first_.all_released(4));
}

TEST_F(PublicationsOfTwo, of_a_group_of_turns_begin_at_a_multiple_of_four) {
    begin(of_rounds(1));
    schedule::Schedule in_turns = of_rounds(4);
    in_turns.turn_group = true;
    begin(in_turns, 2);
    EXPECT_EQ(first_.first(), 4U);
}

TEST_F(PublicationsOfTwo, of_a_rank_that_has_called_something_else_are_not_usable) {
    constexpr std::uint64_t sequence = 7, another = called + 1;
    arena_->control(0).records[sequence].put(sequence, another, 0);
    begin(of_rounds(1), sequence);
    first_.tell(first_.first());
    EXPECT_TRUE(second_.is_there(first, second_.first()));
    EXPECT_FALSE(second_.mismatch());
    EXPECT_FALSE(second_.is_usable(first, second_.first()));
    EXPECT_EQ(second_.mismatch(), std::pair(first, another));
    second_.begin(of_rounds(1), sequence + 1, called);
    EXPECT_FALSE(second_.mismatch()) << "it was another call's";
}

TEST_F(PublicationsOfTwo, are_copied_the_ordinary_way_where_this_rank_has_read_last) {
    transport::StagingCopy copy;
    here_.staging_copy = &copy;
    begin(of_rounds(1));
    const std::uint64_t publication = first_.first();
    EXPECT_EQ(first_.copy_for(publication), &copy);
    second_.tell(publication);
    first_.read(second, publication);
    const bool shares_place = arena_->place(1, publication) == arena_->place(0, publication);
    EXPECT_EQ(first_.copy_for(publication), shares_place ? nullptr : &copy);
    here_.read_last[arena_->place(0, publication)] = true;
    EXPECT_EQ(first_.copy_for(publication), nullptr);
    first_.note_written(publication);
    EXPECT_EQ(first_.copy_for(publication), &copy);
}

}  // namespace
}  // namespace tutti::engine
