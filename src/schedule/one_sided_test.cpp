// Tests of the one-sided steps: a schedule that needs every one of them, and what the prover says of it when a step is
// dropped, swapped or given another value.
#include "schedule/prove.hpp"
#include "schedule/races.hpp"
#include "schedule/text.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace tutti::schedule {
namespace {

using Lines = std::vector<std::string>;

// An all_reduce of two elements between two ranks: each puts its value for the other's element into the other's output,
// combines its own element there, and gets the other one.
Lines steps_of(Rank me) {
    const Rank other = 1 - me;
    const std::string mine = fmt::format("[{}:{}]", me, me + 1), theirs = fmt::format("[{}:{}]", other, other + 1);
    return {"meet output[0:2]",
            fmt::format("put {} output{} input{}", other, theirs, theirs),
            "signal",
            fmt::format("wait {} 1", other),
            fmt::format("combine output{} {}{} {}{} finish", mine, me == 0 ? "input" : "output", mine,
                        me == 0 ? "output" : "input", mine),
            "signal",
            fmt::format("wait {} 2", other),
            fmt::format("get {} output{} output{}", other, theirs, theirs)};
}
constexpr std::size_t put = 1, first_signal = 2, first_wait = 3, last_wait = 6, get = 7;

std::string text_of(const std::vector<Lines>& ranks) {
    std::string text = "tutti schedule 1\nalgorithm both\ncollective all_reduce\nranks 2\ncount 2\nrank_order\n";
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        text += fmt::format("rank {}\n", rank);
        for (const std::string& line : ranks[rank]) text += line + "\n";
    }
    return text;
}

std::vector<std::string> faults_of(const std::vector<Lines>& ranks) {
    const Recipe recipe = parse(text_of(ranks), "a test");
    return prove(recipe.ranks, recipe.contract);
}

class OneSided : public testing::Test {
 protected:
    std::vector<Lines> right{steps_of(0), steps_of(1)};

    bool has_fault(const std::vector<Lines>& ranks, std::string_view words) {
        const auto faults = faults_of(ranks);
        const bool found = std::ranges::any_of(
            faults, [&](const std::string& fault) { return fault.find(words) != std::string::npos; });
        EXPECT_TRUE(found) << words << ", but: " << testing::PrintToString(faults);
        return found;
    }
};

TEST_F(OneSided, steps_are_proved_read_and_written) {
    EXPECT_EQ(faults_of(right), Lines{});
    const Recipe recipe = parse(text_of(right), "a test");
    EXPECT_EQ(recipe.ranks[0].publications, 3U) << "meet, and two signals";
    const Recipe again = parse(to_text(recipe), "its text");
    EXPECT_EQ(to_text(again), to_text(recipe));
    EXPECT_EQ(again.ranks[1].after, recipe.ranks[1].after);
}

TEST_F(OneSided, every_step_that_is_dropped_is_missed) {
    for (const std::size_t rank : {0U, 1U}) {
        for (std::size_t i = 0; i < right[rank].size(); ++i) {
            auto ranks = right;
            ranks[rank].erase(ranks[rank].begin() + static_cast<std::ptrdiff_t>(i));
            EXPECT_NE(faults_of(ranks), Lines{}) << "rank " << rank << " without " << right[rank][i];
        }
    }
}

TEST_F(OneSided, every_two_steps_that_are_swapped_are_noticed) {
    int swapped = 0;
    for (const std::size_t rank : {0U, 1U}) {
        for (std::size_t i = 0; i + 1 < right[rank].size(); ++i) {
            if (right[rank][i] == "signal") continue;  // a rank that waits first is only later: see below
            auto ranks = right;
            std::swap(ranks[rank][i], ranks[rank][i + 1]);
            EXPECT_NE(faults_of(ranks), Lines{}) << right[rank][i] << " behind " << right[rank][i + 1];
            ++swapped;
        }
    }
    EXPECT_EQ(swapped, 10);
    auto ranks = right;
    for (Lines& lines : ranks) std::swap(lines[first_signal], lines[first_wait]);
    has_fault(ranks, "never completes (deadlock");
}

TEST_F(OneSided, a_wait_for_another_signal_is_noticed) {
    for (const auto& [at, value] : {std::pair{first_wait, 0}, {first_wait, 3}, {last_wait, 1}, {last_wait, 3}}) {
        auto ranks = right;
        ranks[1][at] = fmt::format("wait 0 {}", value);
        EXPECT_NE(faults_of(ranks), Lines{}) << ranks[1][at] << " in place of " << right[1][at];
    }
    auto ranks = right;
    ranks[0][first_wait] = "wait 1 2", ranks[1][first_wait] = "wait 0 2";  // each waits for what comes after its own
    has_fault(ranks, "never completes (deadlock");
    ranks = right;
    ranks[1][last_wait] = "wait 0 3";
    has_fault(ranks, "rank 1 step 6 (wait): waits for signal 3 of rank 0, which never comes: rank 0 has 2 of them");
}

TEST_F(OneSided, races_name_both_steps) {
    auto ranks = right;
    ranks[0].erase(ranks[0].begin() + first_wait);
    has_fault(ranks, "touch the same elements of rank 0, without order");
    ranks = right;
    ranks[0][get] = "get 1 output[0:2] output[0:2]";  // also the element that rank 1 gets out of rank 0's
    has_fault(ranks, "without order");
    // A third rank that writes where the owner's partner reads.
    const Recipe three = parse(
        "tutti schedule 1\nalgorithm a\ncollective barrier\nranks 3\nrank 0\nmeet output[0:1]\n"
        "rank 1\nmeet\nget 0 output[0:1] output[0:1]\nrank 2\nmeet\nput 0 output[0:1] input[0:1]\n",
        "a test");
    Budget budget = Budget::unlimited();
    const auto races = races_in(three.ranks, budget);
    ASSERT_EQ(races.size(), 1U);
    EXPECT_EQ(races[0].what, "and step 1 of rank 2 touch the same elements of rank 0, without order");
}

TEST_F(OneSided, buffers_are_held_until_the_others_are_through) {
    for (const StepKind kind : {StepKind::settle, StepKind::release}) {
        Recipe recipe = parse(text_of(right), "a test");
        std::erase_if(recipe.ranks[0].steps, [&](const Step& step) { return step.kind == kind; });
        EXPECT_NE(prove(recipe.ranks, recipe.contract), Lines{}) << to_string(kind);
    }
}

TEST_F(OneSided, only_ranks_of_one_host_reach_each_other) {
    Recipe recipe = parse(text_of(right), "a test");
    recipe.contract.host_of = {0, 1};
    const auto faults = prove(recipe.ranks, recipe.contract);
    ASSERT_FALSE(faults.empty());
    EXPECT_TRUE(std::ranges::any_of(faults, [](const std::string& fault) {
        return fault.find("which is not on its host") != std::string::npos;
    })) << testing::PrintToString(faults);
}

TEST_F(OneSided, what_the_engine_cannot_do_is_refused) {
    const auto with = [&](std::size_t at, const Lines& lines) {
        auto ranks = right;
        for (Lines& rank : ranks) {
            rank.erase(rank.begin() + static_cast<std::ptrdiff_t>(at));
            rank.insert(rank.begin() + static_cast<std::ptrdiff_t>(at), lines.begin(), lines.end());
        }
        return ranks;
    };
    has_fault(with(0, {"scratch 1", "meet output[0:2] scratch[0:1]"}), "opens a scratch buffer");
    has_fault(with(0, {"meet output[0:3]"}), "opens what lies outside of a buffer");
    has_fault(with(0, {"meet output[0:2]", "meet"}), "meets more than once");
    has_fault(with(0, {"use_rounds 2", "meet output[0:2]"}), "meets in another round than 0");
    has_fault(with(0, {"copy output[0:1] input[0:1]", "meet output[0:2]"}), "writes the output before meet");
    has_fault(with(0, {}), "comes before meet: expected meet as the first step");
    auto ranks = right;
    ranks[0][put] = "send 1 input[1:2]", ranks[1][put] = "receive 0 output[1:2]";
    has_fault(ranks, "sends or receives a message, in place: expected put, get, signal and wait");
    ranks = right;
    ranks[0][get] = "combine_in_place -1 output[1:2] 1@output[1:2]";
    has_fault(ranks, "combines other ranks' buffers: expected meet maps, or get and combine");
    ranks = right;
    for (Lines& lines : ranks) lines[0] = "meet maps output[0:2]";
    EXPECT_EQ(faults_of(ranks), Lines{});
    ranks[0][get] = "combine_in_place -1 output[1:2] 0@output[1:2]";
    has_fault(ranks, "reaches for its own buffers as for another rank's");
    ranks = right;
    ranks[0][put] = "put 1 input[1:2] input[1:2]";
    has_fault(ranks, "writes into an input");
    ranks = right;
    ranks[0][0] = "meet maps output[0:2]";
    has_fault(ranks, "unlike rank 0");
}

TEST_F(OneSided, values_that_are_no_signals_are_no_text) {
    for (const auto& [line, words] : {std::pair{"wait 0", "the line is too short: expected signal"},
                                      {"wait 1 1", "rank 1 itself: expected another rank"},
                                      {"wait 0 -1", "\"-1\" is no signal: expected a number from 0 to 1048576"},
                                      {"signal 1", "\"1\" is too much"},
                                      {"get 0 output[0:2] output[0:1]", "2 elements from 1"}}) {
        auto ranks = right;
        ranks[1][last_wait] = line;
        try {
            (void)parse(text_of(ranks), "a test");
            ADD_FAILURE() << line;
        } catch (const InvalidArgument& error) {
            EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
        }
    }
}

// Each rank reads an element of the other's input, and overwrites the element of its own output.
TEST_F(OneSided, it_shows_where_an_input_may_lie_in_its_output) {
    const auto same = [](const std::string& order) {
        std::string text = "tutti schedule 1\nalgorithm a\ncollective all_reduce\nranks 2\ncount 1\n";
        for (const Rank rank : {0, 1}) {
            text +=
                fmt::format("rank {}\nscratch 1\nmeet input[0:1]\nget {} scratch[0:1] input[0:1]\n", rank, 1 - rank);
            if (!order.empty()) text += fmt::format("signal\nwait {} {}\n", 1 - rank, order);
            text += fmt::format("combine output[0:1] {} finish\n",
                                rank == 0 ? "input[0:1] scratch[0:1]" : "scratch[0:1] input[0:1]");
        }
        const Recipe recipe = parse(text, "a test");
        EXPECT_EQ(prove(recipe.ranks, recipe.contract), Lines{});
        Budget budget = Budget::unlimited();
        const std::vector<bool> found = same_in_place(recipe.ranks, budget);
        EXPECT_EQ(found[0], found[1]);
        if (!found[0]) return false;
        Recipe in_place = parse(text, "a test", InputIs::output);
        for (Schedule& s : in_place.ranks) s.input_is_output = true;
        in_place.contract.in_place = true;
        // Where the ranks have opened no more than their inputs, they have now opened their outputs.
        EXPECT_EQ(prove(in_place.ranks, in_place.contract), Lines{});
        return true;
    };
    EXPECT_FALSE(same(""));
    EXPECT_TRUE(same("1"));
}

}  // namespace
}  // namespace tutti::schedule
