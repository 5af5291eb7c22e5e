#include "ddp/usage.hpp"

#include <gtest/gtest.h>

#include <array>

namespace tutti::ddp {
namespace {

TEST(Usage, counts_what_is_noted_until_it_is_cleared) {
    Usage usage(3, Usage::Shared::no);
    usage.note(1);
    usage.begin_iteration();  // of no_sync(): the gradients of the one before are still to be averaged
    EXPECT_FALSE(usage.is_used_here(0));
    EXPECT_TRUE(usage.is_used_here(1));
    usage.clear();
    EXPECT_FALSE(usage.is_used_here(1));
}

TEST(Usage, a_gradient_that_is_left_out_becomes_zeros_and_stays_where_it_is_to_be_kept) {
    Usage usage(2, Usage::Shared::no);
    std::array<float, 2> lost{1, 2}, kept{3, 4};
    usage.leave_out(0, lost, Usage::Keep::no);
    usage.leave_out(1, kept, Usage::Keep::yes);
    EXPECT_EQ(lost, (std::array<float, 2>{0, 0}));
    EXPECT_EQ(kept, (std::array<float, 2>{0, 0}));
    ASSERT_EQ(usage.left_out().size(), 2U);
    EXPECT_EQ(usage.left_out()[0].kept.element_count(), 0);
    EXPECT_EQ(usage.left_out()[1].parameter, 1U);
    EXPECT_EQ(usage.left_out()[1].kept.span<float>()[1], 4);
    usage.begin_iteration();
    EXPECT_TRUE(usage.left_out().empty());
}

TEST(Usage, ranks_that_cannot_differ_tell_each_other_nothing) {
    Usage usage(1, Usage::Shared::no);
    usage.send(ProcessGroup());  // no group is needed
    EXPECT_FALSE(usage.receive());
}

}  // namespace
}  // namespace tutti::ddp
