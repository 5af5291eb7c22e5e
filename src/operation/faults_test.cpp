#include "operation/faults.hpp"

#include <tutti/error.hpp>

#include <gtest/gtest.h>

namespace tutti::detail {
namespace {

using namespace std::chrono_literals;
using Action = Fault::Action;

TEST(ParseFaults, reads_faults_separated_by_semicolons) {
    const auto faults =
        parse_faults("rank=3 op=all_reduce@100 step=2 kill;  rank=1 op=send stop=5s seed=9; delay=1ms; drop;");
    ASSERT_EQ(faults.size(), 4U);
    EXPECT_EQ(faults[0].rank, 3);
    EXPECT_EQ(faults[0].operation, "all_reduce");
    EXPECT_EQ(faults[0].number, 100U);
    EXPECT_EQ(faults[0].step, 2);
    EXPECT_EQ(faults[0].action, Action::kill);
    EXPECT_EQ(faults[1].action, Action::stop);
    EXPECT_EQ(faults[1].time, 5s);
    EXPECT_EQ(faults[1].number, 1U);
    EXPECT_EQ(faults[1].seed, 9U);
    EXPECT_EQ(faults[2].action, Action::delay);
    EXPECT_EQ(faults[2].time, 1ms);
    EXPECT_EQ(faults[2].number, 0U);  // in every call
    EXPECT_FALSE(faults[2].rank.has_value());
    EXPECT_EQ(faults[2].operation, "any");
    EXPECT_EQ(faults[3].action, Action::drop);
    EXPECT_TRUE(parse_faults("  ").empty());
}

TEST(ParseFaults, names_the_word_that_it_does_not_understand_and_what_was_expected) {
    for (const auto& [text, word, expected] :
         {std::tuple("rank=x kill", "rank=x", "rank=N"), std::tuple("rank=-1 kill", "rank=-1", "rank=N"),
          std::tuple("op=allreduce kill", "op=allreduce", "all_reduce"),
          std::tuple("op=all_reduce@0 kill", "op=all_reduce@0", "from 1"), std::tuple("stop=5", "stop=5", "5s"),
          std::tuple("stop=", "stop=", "5s"), std::tuple("delay=100000s", "delay=100000s", "at most a day"),
          std::tuple("step=-1 kill", "step=-1", "step=S"), std::tuple("kil", "kil", "kill"),
          std::tuple("rank=1", "rank=1", "kill"), std::tuple("kill drop", "drop", "separates"),
          std::tuple("kill=now", "kill=now", "kill")}) {
        try {
            parse_faults(text);
            ADD_FAILURE() << text << " is not refused";
        } catch (const InvalidArgument& error) {
            for (const std::string& part :
                 {std::string("TUTTI_FAULTS"), '"' + std::string(word), std::string(expected)})
                EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what() << " lacks " << part;
        }
    }
}

TEST(Faults, strike_in_the_call_whose_number_is_given_counted_by_operation) {
    Faults faults(parse_faults("op=all_reduce@2 kill; op=any@5 drop; rank=1 op=send kill"), 0);
    EXPECT_FALSE(faults.begin("all_reduce"));
    EXPECT_FALSE(faults.begin("broadcast"));
    const auto second = faults.begin("all_reduce");
    ASSERT_TRUE(second);
    EXPECT_EQ(second->fault->action, Action::kill);
    EXPECT_FALSE(faults.begin("send"));  // another rank's
    const auto fifth = faults.begin("barrier");
    ASSERT_TRUE(fifth);
    EXPECT_EQ(fifth->fault->action, Action::drop);
    EXPECT_FALSE(faults.begin("all_reduce"));
}

TEST(Faults, choose_the_same_step_for_the_same_seed_and_others_for_others) {
    const auto step = [](const char* text, int rank) {
        return Faults(parse_faults(text), rank).begin("barrier")->turns;
    };
    EXPECT_EQ(step("kill step=5", 0), 5);
    EXPECT_EQ(step("kill seed=3", 2), step("kill seed=3", 2));
    std::vector<int> seen(8);
    for (int seed = 0; seed < 200; ++seed)
        ++seen.at(static_cast<std::size_t>(step(("kill seed=" + std::to_string(seed)).c_str(), 0)));
    for (const int count : seen) EXPECT_GT(count, 5);
}

}  // namespace
}  // namespace tutti::detail
