// Codes in schedules: what the prover finds, and what a text may say.
#include "schedule/prove.hpp"
#include "schedule/text.hpp"
#include "support/message_of.hpp"

#include <tutti/error.hpp>

#include <gtest/gtest.h>

#include <string>

namespace tutti::schedule {
namespace {

// All values of rank 0 become codes, which both ranks take for numbers.
std::string broadcast_like(const std::string& rank_0, const std::string& rank_1,
                           const std::string& head = "codes int8/2 1") {
    return "tutti schedule 1\nalgorithm a\ncollective all_gather\nranks 2\ndtype float32\n" + head +
           "\ncounts 4 0\nrank 0\n scratch int8/2 4\n encode scratch.int8/2[0:4] input[0:4]\n" + rank_0 +
           "\nrank 1\n scratch int8/2 4\n" + rank_1 + '\n';
}
const std::string keeps = " decode output[0:4] scratch.int8/2[0:4]\n send 1 scratch.int8/2[0:4]";
const std::string takes = " receive 0 scratch.int8/2[0:4]\n decode output[0:4] scratch.int8/2[0:4]";

std::string fault_in(const std::string& text) {
    const Recipe recipe = parse(text, "text");
    const auto faults = prove(recipe.ranks, recipe.contract);
    return faults.empty() ? "" : faults.front();
}

TEST(Codes, ranks_that_take_the_same_codes_are_proved) {
    EXPECT_EQ(fault_in(broadcast_like(keeps, takes)), "");
}

TEST(Codes, the_prover_finds_what_is_wrong) {
    const auto expect = [](const std::string& text, const std::string& fault) {
        EXPECT_NE(fault_in(text).find(fault), std::string::npos) << fault_in(text);
    };
    expect(broadcast_like(" copy output[0:4] input[0:4]\n send 1 scratch.int8/2[0:4]", takes),
           "is not rounded as it is on rank 0");
    expect(broadcast_like(keeps,
                          " receive 0 scratch.int8/2[0:4]\n decode output[0:2] scratch.int8/2[0:2]\n"
                          " decode output[2:4] scratch.int8/2[2:4]"),
           "takes other codes, or a part of them");
    expect(broadcast_like(keeps, takes, "codes int8/4 1"), "was made codes int8/2, which no line");
    expect(broadcast_like(keeps, takes, "codes int8/2 0"), "was made codes 1 times: expected 0 at most");
    expect(broadcast_like(keeps, " receive 0 output[0:4]"), "sends codes int8/2 to rank 1, which expects float32");
    expect(broadcast_like(keeps, takes + "\n copy output[0:4] scratch.int8/2[0:4]"), "expected a step convert");
    expect(broadcast_like(keeps, takes + "\n decode scratch.int8/2[0:4] scratch.int8/2[0:4]"),
           "expected codes as float32, float16 or bfloat16");
    expect(broadcast_like(keeps, takes + "\n decode_add output[0:4] scratch.int8/2[0:4] scratch.int8/2[0:4] exact"),
           "adds up codes themselves that need not have one scale");
    expect(broadcast_like(keeps, takes, "codes int8/2 1\ncalls f") + " call f scratch.int8/2[0:4] output[0:4]\n",
           "codes of a form");
}

TEST(Codes, scales_come_from_the_values_that_they_are_for) {
    const auto text = [](const std::string& first, const std::string& by) {
        return "tutti schedule 1\nalgorithm a\ncollective all_gather\nranks 1\ndtype float32\ncodes int8/2 1\ncounts "
               "4\n"
               "rank 0\n scratch int8/2 4\n scratch float32 4\n" +
               first + " encode scratch.int8/2[0:4] input[0:4] by " + by +
               "\n decode output[0:4] scratch.int8/2[0:4]\n";
    };
    const std::string both = " magnitudes scratch.float32[0:2] input[0:4] block 2\n";
    EXPECT_EQ(fault_in(text(both, "scratch.float32[0:2]")), "");
    const std::string turned =
        " magnitudes scratch.float32[0:1] input[2:4] block 2\n"
        " magnitudes scratch.float32[1:2] input[0:2] block 2\n";
    EXPECT_NE(fault_in(text(turned, "scratch.float32[0:2]")).find("from magnitudes of other elements"),
              std::string::npos);
    EXPECT_NE(fault_in(text(" copy scratch.float32[0:2] input[0:2]\n", "scratch.float32[0:2]")).find("no magnitude"),
              std::string::npos);
    EXPECT_NE(fault_in(text(both, "scratch.float32[0:1]")).find("a magnitude in float32 for each of 2 blocks"),
              std::string::npos);
    const std::string joined =
        " magnitudes scratch.float32[0:1] input[0:2] block 4\n"
        " magnitudes scratch.float32[0:1] input[3:4] block 4 joins\n";
    EXPECT_NE(fault_in(text(joined, "scratch.float32[0:2]")).find("joins the magnitude of other elements"),
              std::string::npos);
}

TEST(Codes, texts_say_what_is_expected) {
    const auto message = [](const std::string& rank_0) {
        return test::message_of<InvalidArgument>([&] { parse(broadcast_like(rank_0, takes), "text"); });
    };
    const auto expect = [&](const std::string& rank_0, const std::string& words) {
        EXPECT_NE(message(rank_0).find(words), std::string::npos) << message(rank_0);
    };
    expect(" decode output[0:2] scratch.int8/2[1:3]", "begins inside of a block: expected a multiple of 2");
    expect(" scratch int5/2 4", "\"int5/2\" is no form of codes: expected FORMAT/BLOCK");
    expect(" scratch int8/0 4", "\"int8/0\" is no form of codes");
    expect(" decode output[0:4] scratch.int4/2[0:4]", "there is no scratch buffer of codes int4/2");
    expect(" decode output[0:2] scratch.int8/2[0:4]", "2 elements from 4");
    expect(" decode_add output[0:2]", "there is nothing to add up");
    expect(" magnitudes output[0:1] input[0:4] block 2", "4 elements in blocks of 2 for 1 magnitudes");
    expect(" magnitudes output[0:1] input[0:4]", "there is no length of a block");
    expect(" send 1 scratch.int8/2[0:6]", "rank 0 uses more than its scratch buffer of 4 int8/2 elements");
}

}  // namespace
}  // namespace tutti::schedule
