// Ranks of one host that remember different things, as objects of one thread over one arena.
#include "operation/agreement.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace tutti::detail {
namespace {

class AgreementOfTwo : public testing::Test {
 protected:
    std::shared_ptr<transport::Arena> arena_ = transport::Arena::create_private({.ranks = 2});
    const std::vector<int> ranks_here_{3, 5};  // of a group with ranks on other hosts
    Agreement first_{arena_.get(), 0, ranks_here_}, second_{arena_.get(), 1, ranks_here_};
};

TEST_F(AgreementOfTwo, ranks_that_do_the_same_agree_whoever_is_ahead) {
    for (std::uint64_t s = 1; s <= 500; ++s) {
        first_.remember(s, 7 * s);
        EXPECT_FALSE(first_.disagreement_at(s));
        if (s > 10) second_.remember(s - 10, 7 * (s - 10));
    }
    EXPECT_FALSE(second_.disagreement_at(490));
    EXPECT_EQ(first_.fingerprint_at(500), 3500U);
}

TEST_F(AgreementOfTwo, the_second_to_look_sees_the_collective_and_both_fingerprints) {
    first_.remember(1, 5);
    EXPECT_FALSE(first_.disagreement_at(1));
    second_.remember(1, 6);
    const auto found = second_.disagreement_at(1);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->peer, 3);
    EXPECT_EQ(found->sequence, 1U);
    EXPECT_EQ(found->theirs, 5U);
    EXPECT_EQ(found->mine, 6U);
}

TEST_F(AgreementOfTwo, of_several_differences_the_first_is_told) {
    for (std::uint64_t s = 1; s <= 5; ++s) {
        first_.remember(s, s);
        second_.remember(s, s >= 3 ? 10 * s : s);
    }
    EXPECT_EQ(second_.disagreement_at(5)->sequence, 3U);
    EXPECT_EQ(first_.disagreement_at(5)->mine, 3U);
}

TEST_F(AgreementOfTwo, a_difference_that_is_forgotten_still_shows_in_the_digest) {
    constexpr std::uint64_t many = 100'000;
    for (std::uint64_t s = 1; s <= many; ++s) {
        first_.remember(s, s == 1 ? 1 : 4);
        second_.remember(s, s == 1 ? 2 : 4);
    }
    const auto found = second_.disagreement_at(many);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->theirs, found->mine);
}

TEST(Agreement, without_shared_memory_remembers_the_latest) {
    const std::vector<int> nobody;
    Agreement alone(nullptr, 0, nobody);
    for (std::uint64_t s = 1; s <= 1000; ++s) alone.remember(s, s + 1);
    EXPECT_EQ(alone.fingerprint_at(1000), 1001U);
    EXPECT_EQ(alone.fingerprint_at(1001), 0U);
    EXPECT_EQ(alone.fingerprint_at(1), 0U);
    EXPECT_FALSE(alone.disagreement_at(1000));
}

}  // namespace
}  // namespace tutti::detail
