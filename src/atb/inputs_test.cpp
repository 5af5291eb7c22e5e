#include "atb/inputs.hpp"

#include "support/covers.hpp"
#include "support/message_of.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::atb {
namespace {

using tutti::test::covers;
using tutti::test::message_of;
using Numbers = std::vector<std::int64_t>;

// Rank 0 of 2, whose x has 8 elements.
Exchange of(const AllToAllVV2Inputs& inputs, std::int64_t output_elements = -1) {
    return exchange_of(0, 2, 8, inputs, output_elements);
}

void expect_refused(ErrorType code, const AllToAllVV2Inputs& inputs, const std::vector<std::string>& words,
                    std::int64_t output_elements = -1) {
    try {
        of(inputs, output_elements);
        ADD_FAILURE() << "accepted; expected: " << words.front();
    } catch (const Error& error) {
        EXPECT_STREQ(to_string(error.code()), to_string(code)) << error.what();
        for (const std::string& word : words)
            EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << word << "\n" << error.what();
    }
}

TEST(AllToAllVV2Inputs, that_are_left_out_are_even_parts_and_running_sums) {
    covers("A-21", "A-22", "S21-017", "S21-018", "S21-019", "S21-020", "S21-021");
    const Exchange nothing = of({});
    EXPECT_EQ(nothing.blocks.send_counts, (Numbers{4, 4}));
    EXPECT_EQ(nothing.blocks.receive_offsets, (Numbers{0, 4}));
    EXPECT_EQ(nothing.output_elements, 8);
    const Exchange counts = of({.sendCounts = {2, 4}, .recvCounts = {2, 2}});
    EXPECT_EQ(counts.blocks.send_offsets, (Numbers{0, 2}));
    EXPECT_EQ(counts.blocks.receive_offsets, (Numbers{0, 2}));
    EXPECT_EQ(counts.output_elements, 4);
    EXPECT_EQ(of({.inferShape = 8}).output_elements, 8);
    EXPECT_EQ(of({.sendCounts = {3, 0}, .inferShape = 6}).blocks.receive_counts, (Numbers{3, 3}));
}

TEST(AllToAllVV2Inputs, have_both_spellings_of_the_counts) {
    EXPECT_EQ(of({.recvCounts = {2, 2}, .sendCount = {2, 1}}).blocks.send_counts, (Numbers{2, 1}));
    EXPECT_EQ(of({.sendCounts = {2, 1}, .recvCounts = {2, 2}, .sendCount = {2, 1}}).output_elements, 4);
    expect_refused(ERROR_INVALID_PARAM, {.sendCounts = {2, 1}, .recvCounts = {2, 2}, .sendCount = {2, 0}},
                   {"sendCounts is [2, 1]", "sendCount is [2, 0]"});
}

TEST(AllToAllVV2Inputs, make_the_output_as_long_as_the_counts_or_the_last_block_need) {
    covers("S21-022");
    EXPECT_EQ(of({.sendCounts = {2, 0}, .recvCounts = {2, 2}, .rdispls = {4, 0}}).output_elements, 6);
    EXPECT_EQ(of({.sendCounts = {2, 0}, .recvCounts = {2, 2}, .rdispls = {4, 0}, .inferShape = 9}).output_elements, 9);
    EXPECT_EQ(of({.sendCounts = {0, 0}, .recvCounts = {0, 0}, .inferShape = 0}).output_elements, 0);
    EXPECT_EQ(of({.sendCounts = {0, 0}, .recvCounts = {0, 0}, .rdispls = {9, 9}}).output_elements, 0);
    EXPECT_EQ(of({.sendCounts = {2, 0}, .recvCounts = {2, 2}}, 7).blocks.receive_counts, (Numbers{2, 2}));
    EXPECT_EQ(of({.sendCounts = {3, 5}}, 6).blocks.receive_counts, (Numbers{3, 3}));
}

TEST(AllToAllVV2Inputs, that_cannot_be_are_refused_with_the_documents_codes) {
    const Numbers good{2, 2};
    expect_refused(ERROR_INVALID_TENSOR_DIM, {.sendCounts = {1, 1, 1}}, {"sendCounts has 3 entries: expected 2"});
    expect_refused(ERROR_INVALID_TENSOR_DIM, {.rdispls = {0}}, {"rdispls has 1 entries: expected 2"});
    expect_refused(ERROR_INVALID_PARAM, {.sendCounts = {2, -1}, .recvCounts = good}, {"sendCounts[1] is -1"});
    expect_refused(ERROR_INVALID_PARAM, {.sendCounts = good, .sdispls = {0, -4}, .recvCounts = good},
                   {"sdispls[1] is -4"});
    expect_refused(ERROR_INVALID_PARAM, {.sendCounts = good, .recvCounts = {-2, 2}}, {"recvCounts[0] is -2"});
    expect_refused(ERROR_INVALID_PARAM, {.sendCounts = good, .recvCounts = good, .rdispls = {0, -1}},
                   {"rdispls[1] is -1"});
    expect_refused(ERROR_INVALID_PARAM, {.sendCounts = {2, 7}, .recvCounts = good},
                   {"for rank 1", "7 elements at sdispls 2", "leaves x: expected blocks within its 8 elements"});
    expect_refused(ERROR_INVALID_PARAM, {.sendCounts = {2, INT64_MAX}, .sdispls = {0, INT64_MAX}, .recvCounts = good},
                   {"for rank 1", "leaves x"});
    expect_refused(ERROR_INVALID_PARAM, {.sendCounts = good, .recvCounts = good, .rdispls = {1, 0}},
                   {"from ranks 1 and 0 overlap in output"});
    expect_refused(ERROR_INVALID_PARAM, {.sendCounts = good, .recvCounts = {2, INT64_MAX}, .rdispls = {0, INT64_MAX}},
                   {"no tensor is so long"});
    expect_refused(ERROR_INVALID_PARAM, {.sendCounts = {1, 1}, .recvCounts = good},
                   {"sends 1 elements to itself and expects 2"});
    expect_refused(ERROR_INVALID_TENSOR_DIM, {.sendCounts = good, .recvCounts = good, .inferShape = 5},
                   {"tensorForInferShape has 5 elements", "expected 4, the sum of recvCounts"});
    expect_refused(ERROR_INVALID_TENSOR_DIM,
                   {.sendCounts = good, .recvCounts = good, .rdispls = {0, 4}, .inferShape = 4},
                   {"expected 6 or more, where the last block ends"});
    expect_refused(ERROR_INVALID_TENSOR_DIM, {.sendCounts = good, .recvCounts = good},
                   {"output has 3 elements: expected 4 or more"}, 3);
    expect_refused(ERROR_INVALID_PARAM, {.sendCounts = good, .inferShape = 5},
                   {"output has 5 elements", "multiple of 2"});
}

TEST(AllToAllVV2Inputs, come_from_a_text) {
    covers("S21-017", "S21-023");
    const AllToAllVV2Inputs inputs =
        inputs_from_json(R"({"sendCounts": [2, 4], "sdispls": [0, "2"], "recvCounts": [2, 2], "rdispls": [0, 2]})");
    EXPECT_EQ(inputs.sendCounts, (Numbers{2, 4}));
    EXPECT_EQ(inputs.sdispls, (Numbers{0, 2}));
    EXPECT_EQ(inputs.rdispls, (Numbers{0, 2}));
    EXPECT_EQ(inputs_from_json(R"({"sendCount": [1]})").sendCount, (Numbers{1}));
    const auto refused = [](const std::string& text, const std::string& words) {
        const std::string message = message_of<Error>([&] { inputs_from_json(text); });
        EXPECT_NE(message.find(words), std::string::npos) << words << "\n" << message;
    };
    refused(R"({"sdispl": [0]})", "\"sdispl\" is no input: expected rdispls, recvCounts");
    refused(R"({"sdispls": [0, 1.5]})", "set_varaintpack_param, /sdispls/1: 1.5: expected an integer");
    refused(R"({"sdispls": 3})", "set_varaintpack_param, /sdispls: 3: expected an array");
}

TEST(AllToAllVV2Inputs, come_from_tensors_and_the_text_comes_first) {
    const std::vector<float> x(8);
    const Numbers counts{2, 4};
    const std::vector<std::int32_t> short_ones{0, 2};
    const std::vector<std::int8_t> shape(4, 3);
    const AllToAllVV2Inputs inputs = inputs_from_tensors({x, counts, short_ones, {}, {}, shape});
    EXPECT_EQ(inputs.sendCounts, counts);
    EXPECT_EQ(inputs.sdispls, (Numbers{0, 2}));
    EXPECT_TRUE(inputs.recvCounts.empty());
    EXPECT_EQ(inputs.inferShape, 4);
    const AllToAllVV2Inputs both = merged({.recvCounts = {1, 1}, .sendCount = {3, 3}}, inputs);
    EXPECT_EQ(both.recvCounts, (Numbers{1, 1}));
    EXPECT_EQ(both.sendCount, (Numbers{3, 3}));
    EXPECT_TRUE(both.sendCounts.empty());
    EXPECT_EQ(both.sdispls, (Numbers{0, 2}));
    EXPECT_EQ(both.inferShape, 4);
}

TEST(AllToAllVV2Inputs, from_tensors_that_cannot_be_are_refused) {
    const std::vector<float> x(8);
    const auto refused = [](ErrorType code, const std::vector<ConstTensorView>& tensors, const std::string& words) {
        try {
            inputs_from_tensors(tensors);
            ADD_FAILURE() << "accepted; expected: " << words;
        } catch (const Error& error) {
            EXPECT_STREQ(to_string(error.code()), to_string(code));
            EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
        }
    };
    refused(ERROR_INVALID_IN_TENSOR_NUM, {}, "0 inputs");
    refused(ERROR_INVALID_IN_TENSOR_NUM, std::vector<ConstTensorView>(7), "7 inputs");
    refused(ERROR_INVALID_TENSOR_DTYPE, {x, x}, "sendCounts is float32[8]: expected int64");
    const Numbers numbers(4);
    refused(ERROR_INVALID_TENSOR_DIM, {x, {}, view(numbers.data(), {2, 2})}, "sdispls is int64[2, 2]");
}

}  // namespace
}  // namespace tutti::atb
