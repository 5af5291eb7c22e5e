#include "core/assert.hpp"

#include <gtest/gtest.h>

namespace tutti {
namespace {

int times_asked = 0;

bool ask(bool answer) {
    ++times_asked;
    return answer;
}

TEST(Assert, lets_what_holds_pass_and_asks_once_or_in_a_release_build_never) {
    times_asked = 0;
    TUTTI_ASSERT(ask(true));
#ifdef TUTTI_ASSERTIONS
    EXPECT_EQ(times_asked, 1);
#else
    EXPECT_EQ(times_asked, 0);
#endif
}

TEST(Assert, takes_a_condition_with_commas) {
    struct Pair {
        int first, second;
    };
    TUTTI_ASSERT(Pair{1, 2}.first < Pair{1, 2}.second);
}

TEST(Assert, that_is_false_ends_the_process_with_the_place_and_the_condition) {
#ifdef TUTTI_ASSERTIONS
    EXPECT_DEATH(TUTTI_ASSERT(ask(false)), "assert_test.cpp:[0-9]+: .*: the assertion does not hold: ask\\(false\\)");
#else
    TUTTI_ASSERT(ask(false));
#endif
    EXPECT_DEATH(fail_assertion("a == b", "file.cpp", 7, "add"),
                 "tutti: file.cpp:7: add: the assertion does not hold: a == b");
}

}  // namespace
}  // namespace tutti
