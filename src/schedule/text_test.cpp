// Schedules as text: what is written is read, and what is wrong is said with its line.
#include "schedule/text.hpp"

#include "schedule/builder.hpp"
#include "schedule/prove.hpp"

#include <tutti/error.hpp>

#include <gtest/gtest.h>

#include <algorithm>

namespace tutti::schedule {
namespace {

constexpr std::string_view text_of_exchange = R"(tutti schedule 1
algorithm exchange   # of two ranks
collective all_reduce
ranks 2
count 2

rank 0
  scratch 2
  receive 1 scratch[0:2]
  send 1 input[0:2]
  combine output[0:2] input[0:2] scratch[0:2] finish
rank 1
  scratch 2
  receive 0 scratch[0:2]
  send 0 input[0:2]
  combine output[0:2] scratch[0:2] input[0:2] finish
)";

// `exchange` with one piece of text in place of another.
std::string changed(std::string_view from, std::string_view to) {
    std::string text(text_of_exchange);
    text.replace(text.find(from), from.size(), to);
    return text;
}

std::string message_of(const std::string& text) {
    try {
        (void)parse(text, "my file");
    } catch (const InvalidArgument& error) {
        return error.what();
    }
    return "no error";
}

TEST(ScheduleText, is_read_and_proved) {
    const Recipe recipe = parse(text_of_exchange, "here");
    ASSERT_EQ(recipe.ranks.size(), 2U);
    EXPECT_EQ(recipe.ranks[1].algorithm, "exchange");
    EXPECT_EQ(recipe.ranks[1].steps.size(), 3U);
    EXPECT_EQ(prove(recipe.ranks, recipe.contract), std::vector<std::string>{});
    const Recipe again = parse(to_text(recipe), "again");
    EXPECT_EQ(to_text(again), to_text(recipe));
    EXPECT_EQ(again.ranks[0].after, recipe.ranks[0].after);
}

TEST(ScheduleText, leaves_what_is_promised_to_the_prover) {
    for (const auto& [from, to] : {std::pair{"scratch[0:2] finish", "scratch[0:2]"},
                                   {"send 0 input[0:2]", ""},
                                   {"send 0 input[0:2]", "send 0 input[0:1]"},
                                   {"send 1 input[0:2]", "send 1 input[4:6]"}}) {
        const Recipe recipe = parse(changed(from, to), "here");
        EXPECT_FALSE(prove(recipe.ranks, recipe.contract).empty()) << from << " -> " << to;
    }
}

TEST(ScheduleText, runs_for_multiples) {
    const Recipe recipe = parse(text_of_exchange, "here");
    std::vector<Schedule> longer;
    for (const Schedule& s : recipe.ranks) longer.push_back(scaled(s, 3));
    Contract contract = recipe.contract;
    contract.count *= 3;
    EXPECT_EQ(prove(longer, contract), std::vector<std::string>{});
    const Recipe shorter = shortest({contract, longer});
    EXPECT_EQ(shorter.contract.count, 1U);
    EXPECT_EQ(prove(shorter.ranks, shorter.contract), std::vector<std::string>{});
}

TEST(ScheduleText, takes_the_output_for_the_input_in_place) {
    Recipe recipe = parse(text_of_exchange, "here", InputIs::output);
    recipe.contract.in_place = true;
    EXPECT_EQ(prove(recipe.ranks, recipe.contract), std::vector<std::string>{});
}

// A scratch buffer of another type has a row of its own in the table, and its chunks the name of the type.
TEST(ScheduleText, has_scratch_buffers_of_other_types) {
    std::string text = changed("count 2", "dtype float32\ncount 2");
    text.replace(text.find("  scratch 2"), 11, "  scratch 2\n  scratch bfloat16 3\n  scratch bfloat16 1");
    const Recipe recipe = parse(text, "here");
    const Schedule& s = recipe.ranks[0];
    ASSERT_EQ(s.buffers.size(), 4U);
    EXPECT_EQ(s.buffers[3], (BufferInfo{.dtype = DType::bfloat16, .count = 4}));
    EXPECT_EQ(recipe.ranks[1].buffers.size(), 3U);
    EXPECT_EQ(scratch_count(s), 6U);
    EXPECT_EQ(recipe.contract.dtype, DType::float32);
    EXPECT_EQ(prove(recipe.ranks, recipe.contract), std::vector<std::string>{});
    const Recipe again = parse(to_text(recipe), "again");
    EXPECT_EQ(again.ranks[0].buffers, s.buffers);
    EXPECT_EQ(to_text(again), to_text(recipe));
    EXPECT_EQ(scaled(s, 3).buffers[3].count, 12U);
}

// Each would be a buffer of its own, whose number has to fit into Buffer.
TEST(ScheduleText, has_scratch_buffers_of_a_bounded_number_of_types) {
    std::string lines;
    for (int block = 1; block <= 300; ++block) lines += "scratch int8/" + std::to_string(block) + " 1\n";
    EXPECT_EQ(message_of(changed("  scratch 2\n", lines)),
              "my file: line 133 (\"scratch int8/126 1\"): the rank has scratch buffers of too many types: expected at "
              "most 125");
}

TEST(ScheduleText, leaves_mixed_types_to_the_prover) {
    std::string text = changed("count 2", "dtype float32\ncount 2");
    for (const auto& [words, fault] :
         {std::pair{"copy scratch.bfloat16[0:2] input[0:2]",
                    "rank 0 step 0 (copy): takes bfloat16 for float32: expected a step convert between them"},
          {"publish 0 scratch.bfloat16[0:2]", "rank 0 step 0 (publish): takes bfloat16 for float32"},
          {"receive 1 scratch.bfloat16[0:2]", "rank 1 step 1 (send): sends float32 to rank 0, which expects bfloat16"},
          {"combine output[0:2] input[0:2] scratch.bfloat16[0:2]", "takes bfloat16 for float32"}}) {
        std::string mixed = text;
        const auto at = mixed.find("  receive 1 scratch[0:2]");
        mixed.replace(at, std::string_view(words).starts_with("receive") ? 25 : 0,
                      std::string("  scratch bfloat16 2\n  ") + words + "\n");
        const Recipe recipe = parse(mixed, "here");
        const auto faults = prove(recipe.ranks, recipe.contract);
        EXPECT_NE(std::ranges::find_if(faults, [&](const auto& f) { return f.find(fault) != std::string::npos; }),
                  faults.end())
            << words << ": " << (faults.empty() ? "no fault" : faults.front());
    }
}

TEST(ScheduleText, names_the_functions_that_it_calls) {
    std::string text = changed("count 2", "calls f\ncalls g\nop max\ncount 2");
    text.replace(text.find("  combine output[0:2] input[0:2]"), 45,
                 "  call g scratch[0:2] input[0:2]\n  call_combine f output[0:2] input[0:2] scratch[0:2]");
    const Recipe recipe = parse(text, "here");
    EXPECT_EQ(recipe.contract.op, ReduceOp::Kind::max);
    EXPECT_EQ(recipe.contract.calls, (std::vector<std::string>{"f", "g"}));
    EXPECT_EQ(recipe.ranks[0].functions, (std::vector<std::string>{"g", "f"}));
    EXPECT_TRUE(recipe.ranks[1].functions.empty());
    EXPECT_EQ(to_text(parse(to_text(recipe), "again")), to_text(recipe));
    EXPECT_NE(to_text(recipe).find("call_combine f output[0:2] input[0:2] scratch[0:2] finish"), std::string::npos);
    EXPECT_EQ(sentence_of(recipe.ranks[0], recipe.ranks[0].steps[3]),
              "output[0, +2] = f(input[0, +2], scratch[0, +2])");
}

TEST(ScheduleText, says_what_is_wrong_where) {
    const std::pair<std::string, std::string> cases[] = {
        {"", "my file: line 0: the text ends after 0 ranks: expected a line \"ranks N\" and the steps of each"},
        {"tutti table",
         "my file: line 1 (\"tutti table\"): this is no text of schedules: expected \"tutti schedule 1\" in "
         "the first line"},
        {changed("all_reduce", "allreduce"),
         "my file: line 3 (\"collective allreduce\"): \"allreduce\" is no collective; did you mean \"all_reduce\"?: "
         "expected "
         "one of all_reduce, broadcast, reduce, all_gather, gather, scatter, reduce_scatter, all_to_all, barrier"},
        {changed("count 2", "ranks 3"),
         "my file: line 5 (\"ranks 3\"): the number of ranks comes twice: expected one line \"ranks N\""},
        {changed("ranks 2", "ranks 0"), "my file: line 4 (\"ranks 0\"): no ranks: expected 1 to 1024"},
        {changed("rank 1", "rank 2"), "my file: line 12 (\"rank 2\"): \"2\" is no rank: expected a number from 0 to 1"},
        {changed("rank 1", "rank 0"), "my file: line 12 (\"rank 0\"): the ranks are not in order: expected rank 1"},
        {changed("send 1", "sent 1"),
         "my file: line 10 (\"sent 1 input[0:2]\"): \"sent\" is unknown here; did you mean "
         "\"send\"?"},
        {changed("send 1", "send 0"), "my file: line 10 (\"send 0 input[0:2]\"): rank 0 itself: expected another rank"},
        {changed("send 1 input[0:2]", "send 1"),
         "my file: line 10 (\"send 1\"): the line is too short: expected a chunk"},
        {changed("send 1 input[0:2]", "send 1 input[0:2] input[0:2]"), "\"input[0:2]\" is too much: expected the end"},
        {changed("send 1 input[0:2]", "send 1 inputs[0:2]"), "\"inputs[0:2]\" is no chunk: expected input[BEGIN:END]"},
        {changed("send 1 input[0:2]", "send 1 input[2:0]"), "[2:0] ends before it begins"},
        {changed("send 1 input[0:2]", "send 1 input[0]"), "\"[0]\" is no range: expected [BEGIN:END]"},
        {changed("send 1 input[0:2]", "send 1 input[0:9999999]"),
         "\"9999999\" is no element: expected a number from 0 to"},
        {changed("send 1 input[0:2]", "send 1 input[0:2] after 7"), "step 7 comes later: expected an earlier step"},
        {changed("scratch 2", "scratch 2\n  scratch bfloat16 2"),
         "rank 0 has a scratch buffer of bfloat16: expected a line \"dtype NAME\" above the ranks"},
        {changed("scratch 2", "scratch bflaot16 2"),
         "line 8 (\"scratch bflaot16 2\"): \"bflaot16\" is no type; did you mean \"bfloat16\"?: expected one of bool,"},
        {changed("send 1 input[0:2]", "send 1 scratch.float16[0:2]"),
         "there is no scratch buffer of float16: expected a line \"scratch float16 N\" above"},
        {changed("send 1 input[0:2]", "call f scratch[0:2] input[0:2]"),
         "the text names no function \"f\": expected a line \"calls f\" above the ranks"},
        {changed("count 2", "op maximum\ncount 2"), "\"maximum\" is no operation: expected one of sum, avg, product,"},
        {changed("count 2\n\nrank 0\n", "calls f\ncount 2\n\nrank 0\n  call_combine f output[0:2] input[0:2]\n"),
         "the text does not say what the function computes: expected a line \"op NAME\" above the ranks"},
        {changed("scratch 2", "scratch 1"), "rank 0 uses more than its scratch buffer of 1 elements"},
        {changed("input[0:2] scratch[0:2] finish", "input[0:1] scratch[0:2]"),
         "2 elements from 1: expected chunks of one length"},
        {changed("all_reduce", "all_gather"), "all_gather has no counts: expected lines of counts"},
        {changed("all_reduce", "all_to_all"), "all_to_all has no blocks for each rank"},
        {std::string(text_of_exchange.substr(0, text_of_exchange.find("rank 1"))),
         "the text ends after 1 ranks: expected 2"},
    };
    for (const auto& [text, expected] : cases)
        EXPECT_NE(message_of(text).find(expected), std::string::npos) << message_of(text) << "\nexpected: " << expected;
}

}  // namespace
}  // namespace tutti::schedule
