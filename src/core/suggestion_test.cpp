#include "core/suggestion.hpp"

#include <gtest/gtest.h>

#include <array>

namespace tutti {
namespace {

const std::vector<std::string_view> collectives{"all_reduce", "broadcast",      "reduce",     "all_gather", "gather",
                                                "scatter",    "reduce_scatter", "all_to_all", "barrier"};

TEST(Suggestion, finds_what_a_slip_of_the_keyboard_meant) {
    EXPECT_EQ(nearest("allreduce", collectives), "all_reduce");
    EXPECT_EQ(nearest("all_redcue", collectives), "all_reduce");
    EXPECT_EQ(nearest("alltoall", collectives), "all_to_all");
    EXPECT_EQ(nearest("reducescatter", collectives), "reduce_scatter");
    EXPECT_EQ(nearest("barier", collectives), "barrier");
    EXPECT_EQ(nearest("rn", std::array{"bench", "run", "trace"}), "run");
    EXPECT_EQ(nearest("rx", std::array{"bench", "run", "trace"}), "");
    EXPECT_EQ(nearest("tpc", std::array{"auto", "shm", "tcp"}), "tcp");
}

TEST(Suggestion, knows_abbreviations_and_other_capitals) {
    EXPECT_EQ(nearest("bcast", collectives), "broadcast");
    EXPECT_EQ(nearest("prod", std::array{"sum", "product"}), "product");
    EXPECT_EQ(nearest("SUM", std::array{"sum", "product"}), "sum");
    EXPECT_EQ(nearest("AllReduce", collectives), "all_reduce");
}

TEST(Suggestion, does_not_count_dashes_as_letters) {
    const std::vector<std::string> flags{"-n", "-V", "--ranks", "--nproc-per-node", "--np", "--timeout"};
    EXPECT_EQ(nearest("-ranks", flags), "--ranks");
    EXPECT_EQ(nearest("--nprok", flags), "--nproc-per-node");
    EXPECT_EQ(nearest("-v", flags), "-V");
    EXPECT_EQ(nearest("-x", flags), "") << "one letter is near to every other";
}

TEST(Suggestion, says_nothing_where_no_word_is_near) {
    EXPECT_EQ(nearest("frobnicate", collectives), "");
    EXPECT_EQ(nearest("", collectives), "");
    EXPECT_EQ(nearest("sum", std::vector<std::string>{}), "");
    EXPECT_EQ(did_you_mean("xyz", collectives), "");
}

TEST(Suggestion, is_the_end_of_a_sentence) {
    EXPECT_EQ(did_you_mean("shn", std::array{"auto", "shm"}), "; did you mean \"shm\"?");
}

}  // namespace
}  // namespace tutti
