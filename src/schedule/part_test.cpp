// Parts: lines "use" become steps of the ranks, and what is wrong with them is said with its line.
#include "schedule/part.hpp"

#include "schedule/prove.hpp"
#include "schedule/text.hpp"

#include <tutti/error.hpp>

#include <gtest/gtest.h>

#include <algorithm>

namespace tutti::schedule {
namespace {

/// One algorithm for all_reduce and for broadcast. A broadcast between two ranks is followed by a signal back.
class OneExchange final : public PartMaker {
 public:
    std::vector<std::string> algorithms(const Part& part) const override {
        return part.collective == Collective::gather ? std::vector<std::string>{}
                                                     : std::vector<std::string>{"exchange"};
    }
    Schedule schedule(const Part& part, std::string_view algorithm) const override {
        Builder b{std::string(algorithm)};
        const Chunk input{Buffer::input, 0, part.count}, output{Buffer::output, 0, part.count};
        const Rank peer = 1 - part.me;
        if (part.collective == Collective::all_reduce) {
            const Chunk other = b.scratch(part.count);
            b.receive(peer, other);
            b.send(peer, input);
            b.combine(output, part.me == 0 ? std::vector{input, other} : std::vector{other, input}, true);
        } else if (part.collective == Collective::broadcast && part.me == part.root) {
            b.send(peer, output);
            b.receive_signal(peer);
        } else if (part.collective == Collective::broadcast) {
            b.receive(peer, output);
            b.send_signal(peer);
        }
        return std::move(b).finish();
    }
};

// An all_reduce of three ranks: 2 and 1, then 0 and 1, whose result goes to 2.
constexpr std::string_view by_parts = R"(tutti schedule 1
algorithm by_parts
collective all_reduce
ranks 3
count 2
rank 0
  use all_reduce exchange 0,1 output[0:2] input[0:2] finish
rank 1
  scratch 2
  use all_reduce exchange 2,1 scratch[0:2] input[0:2]
  use all_reduce exchange 0,1 output[0:2] scratch[0:2] finish
  use broadcast exchange 1,2 root 1 output[0:2]
rank 2
  scratch 2
  use all_reduce exchange 2,1 scratch[0:2] input[0:2]
  use broadcast exchange 1,2 root 1 output[0:2]
)";

Recipe read(const std::string& text, InputIs input = InputIs::separate) {
    const OneExchange parts;
    return parse(text, "my file", input, &parts);
}

std::string with_other(std::string_view from, std::string_view to) {
    std::string text(by_parts);
    text.replace(text.find(from), from.size(), to);
    return text;
}

std::string refusal_of(const std::string& text) {
    try {
        (void)read(text);
    } catch (const InvalidArgument& error) {
        return error.what();
    }
    return "no error";
}

TEST(Parts, become_steps_of_their_ranks) {
    const Recipe recipe = read(std::string(by_parts));
    EXPECT_EQ(prove(recipe.ranks, recipe.contract), std::vector<std::string>{});
    const std::string text = to_text(recipe);
    EXPECT_EQ(text.find("use"), std::string::npos) << text;
    EXPECT_NE(text.find("  send 2 input[0:2]\n"), std::string::npos) << text;
    EXPECT_NE(text.find("  combine scratch[0:2] scratch[2:4] input[0:2]\n"), std::string::npos) << text;
    EXPECT_EQ(to_text(parse(text, "its text")), text);
}

// The contributions of ranks 0 and 1 are whole only where the last line says so.
TEST(Parts, finish_where_their_line_says_so) {
    const Recipe recipe = read(std::string(by_parts));
    const auto finishes = [](const Schedule& s) { return std::ranges::count(s.steps, true, &Step::finish); };
    EXPECT_EQ(finishes(recipe.ranks[0]), 1);
    EXPECT_EQ(finishes(recipe.ranks[1]), 1);
    EXPECT_EQ(finishes(recipe.ranks[2]), 0);
}

// Where a part would read what it has written, it reads a copy.
TEST(Parts, may_write_over_what_they_read) {
    for (const InputIs input : {InputIs::separate, InputIs::output}) {
        Recipe recipe = read(std::string(by_parts), input);
        recipe.contract.in_place = input == InputIs::output;
        EXPECT_EQ(prove(recipe.ranks, recipe.contract), std::vector<std::string>{});
    }
    std::string shifted = with_other("scratch 2\n  use all_reduce exchange 2,1 scratch[0:2] input[0:2]",
                                     "scratch 3\n  copy scratch[1:3] input[0:2]\n"
                                     "  use all_reduce exchange 2,1 scratch[0:2] scratch[1:3]");
    const Recipe recipe = read(shifted);
    EXPECT_EQ(prove(recipe.ranks, recipe.contract), std::vector<std::string>{});
    EXPECT_EQ(std::ranges::count(recipe.ranks[1].steps, StepKind::copy, &Step::kind), 2);
}

TEST(Parts, say_what_is_wrong_where) {
    const std::pair<std::string, std::string> cases[] = {
        {with_other("0,1 output[0:2] input[0:2] finish", "0,3 output[0:2] input[0:2]"),
         "my file: line 7 (\"use all_reduce exchange 0,3 output[0:2] input[0:2]\"): \"3\" is no rank: expected a "
         "number "
         "from 0 to 2"},
        {with_other("0,1 output", "0,1,0 output"), "rank 0 is twice in 0,1,0: expected different ranks"},
        {with_other("0,1 output", "1,2 output"),
         "line 7 (\"use all_reduce exchange 1,2 output[0:2] input[0:2] finish\"): "
         "rank 0 is not among the ranks 1,2: expected a rank of them"},
        {with_other("use all_reduce", "use allreduce"), "\"allreduce\" is no collective; did you mean \"all_reduce\"?"},
        {with_other("exchange 0,1", "exchanje 0,1"),
         "\"exchanje\" is no algorithm for all_reduce among 2 ranks; did you mean \"exchange\"?: expected one of "
         "exchange"},
        {with_other("root 1 ", ""), "broadcast has a root: expected \"root RANK\" behind the ranks"},
        {with_other("output[0:2] input[0:2] finish", "output[0:2] input[0:1] finish"),
         "2 elements from 1: expected chunks of one length"},
        {with_other("input[0:2] finish", "input[0:2] finally"),
         "\"finally\" is too much: expected the end of the line"},
        {with_other("use all_reduce exchange 0,1", "use reduce_scatter exchange 0,1"),
         "2 elements for this rank's block: expected 1"},
        {with_other("use all_reduce exchange 0,1 output[0:2]",
                    "use reduce_scatter exchange 0,1 output[0:2] input[0:3]#"),
         "3 elements are no 2 equal blocks: expected a multiple of 2, or \"counts\" with the elements"},
        {with_other("  use all_reduce exchange 0,1 output[0:2] input[0:2] finish\n", ""),
         "my file: line 10 (\"use all_reduce exchange 0,1 output[0:2] scratch[0:2] finish\"): rank 0 has no line "
         "\"use\" "
         "that meets this one: expected one in each of the ranks 0,1"},
        {with_other("input[0:2] finish", "input[0:2]"),
         "my file: line 7 (\"use all_reduce exchange 0,1 output[0:2] input[0:2]\"): rank 1 has a different one in its "
         "place, in line 11: expected the same collective, algorithm, root, counts and finish in all of its ranks"},
        {with_other("exchange 0,1 output[0:2] scratch[0:2] finish", "exchange 0,1 output[0:2] scratch[2:4] finish"),
         "\"scratch[2:4]\" ends behind the scratch buffer of 2 elements: expected a line \"scratch N\" for all of them "
         "above the rank's first line \"use\""},
        {with_other("  use broadcast", "  scratch 2\n  use broadcast"),
         "scratch elements behind a part: expected the lines \"scratch\" of a rank above its first line \"use\""},
    };
    for (const auto& [text, expected] : cases)
        EXPECT_NE(refusal_of(text).find(expected), std::string::npos) << refusal_of(text) << "\nexpected: " << expected;
    try {
        (void)parse(by_parts, "my file");
        ADD_FAILURE() << "no error";
    } catch (const InvalidArgument& error) {
        EXPECT_NE(std::string(error.what()).find("there are no algorithms for parts here"), std::string::npos);
    }
}

}  // namespace
}  // namespace tutti::schedule
