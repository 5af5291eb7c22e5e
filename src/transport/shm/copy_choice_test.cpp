// The quicker way is taken, whichever that becomes, and the other is not forgotten.
#include "transport/shm/copy_choice.hpp"

#include <gtest/gtest.h>

namespace tutti::transport {
namespace {

using Way = CopyChoice::Way;

/// Uses it so often; how often by the staging area.
int staged(CopyChoice& choice, std::size_t bytes, int uses, double kernel_ns, double staging_ns) {
    int count = 0;
    for (int i = 0; i < uses; ++i) {
        const Way way = choice.next(bytes);
        count += way == Way::staging ? 1 : 0;
        choice.took(way, bytes, way == Way::staging ? staging_ns : kernel_ns);
    }
    return count;
}

constexpr int trial = CopyChoice::uses_of_trial, period = CopyChoice::most_between_trials - 1 + trial;

TEST(CopyChoice, tries_both_and_takes_the_quicker_one) {
    CopyChoice choice;
    EXPECT_EQ(staged(choice, 1 << 16, trial, 100, 200), 0);
    EXPECT_EQ(staged(choice, 1 << 16, trial, 100, 200), trial);
    const int seldom = staged(choice, 1 << 16, CopyChoice::uses_between_trials + 2 * trial, 100, 200);
    EXPECT_GE(seldom, trial);
    EXPECT_LE(seldom, 2 * trial);
    staged(choice, 1 << 16, 4 * period, 100, 200);
    EXPECT_EQ(staged(choice, 1 << 16, 10 * period, 100, 200), 10 * trial);
    const int later = staged(choice, 1 << 16, 10 * period, 100, 50);  // from its next trial on
    EXPECT_GE(later, 9 * period - 10 * trial);
    EXPECT_LE(later, 10 * period - 9 * trial);
}

TEST(CopyChoice, leaves_at_once_what_has_become_slower) {
    CopyChoice choice;
    staged(choice, 4096, 8 * period, 100, 50);
    const int later = staged(choice, 4096, period, 100, 300);
    EXPECT_LE(later, 12 + trial);
    EXPECT_GE(later, 1);
}

TEST(CopyChoice, tries_for_longer_what_takes_little_more) {
    CopyChoice choice;
    staged(choice, 1 << 16, trial, 100, 110);
    EXPECT_EQ(staged(choice, 1 << 16, 2 * trial, 100, 110), 2 * trial);
    EXPECT_EQ(staged(choice, 1 << 16, 2 * trial, 100, 90), 2 * trial);  // now it is found to be quicker
    EXPECT_GE(staged(choice, 1 << 16, 10 * period, 100, 90), 8 * period);
}

TEST(CopyChoice, one_use_of_many_bytes_is_a_trial) {
    CopyChoice choice;
    EXPECT_EQ(staged(choice, 64 << 20, 2, 100, 200), 1);
}

TEST(CopyChoice, keeps_sizes_apart) {
    CopyChoice choice;
    staged(choice, 100'000, 64, 100, 50);
    EXPECT_EQ(staged(choice, 200'000, trial, 100, 50), 0);
    EXPECT_EQ(choice.next(100'001), Way::staging);
}

TEST(CopyChoice, one_long_use_says_little) {
    CopyChoice choice;
    staged(choice, 4096, 4 * period, 100, 20);
    choice.took(Way::staging, 4096, 1e9);  // this rank did not run: counts as 21
    EXPECT_EQ(choice.next(4096), Way::staging);
}

}  // namespace
}  // namespace tutti::transport
