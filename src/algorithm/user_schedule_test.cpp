// Users' schedules: their proof, the calls that they serve, and the steps of a rank in place.
#include "algorithm/user_schedule.hpp"

#include "algorithm/explain.hpp"
#include "algorithm/plan.hpp"
#include "algorithm/select.hpp"
#include "algorithm/slots.hpp"
#include "schedule/prove.hpp"
#include "support/patience.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <numeric>
#include <string>

namespace tutti::algorithm {
namespace {

using schedule::Contract;
using schedule::Schedule;

Layout apart(int ranks) {
    Layout layout;
    layout.host_of.resize(static_cast<std::size_t>(ranks));
    std::iota(layout.host_of.begin(), layout.host_of.end(), 0);
    layout.machines = ranks;
    return layout;
}

// Of two elements between two ranks. `PEER`, `FIRST` and `SECOND` in the steps stand for the other rank, and for the
// buffers with rank 0's and rank 1's elements.
std::string exchange(std::string_view last_steps = "combine output[0:2] FIRST[0:2] SECOND[0:2] finish") {
    std::string text = "tutti schedule 1\nalgorithm exchange\ncollective all_reduce\nranks 2\ncount 2\n";
    for (const int rank : {0, 1}) {
        std::string steps = fmt::format("receive PEER scratch[0:2]\nsend PEER input[0:2]\n{}\n", last_steps);
        for (const auto& [word, meaning] :
             {std::pair<std::string_view, std::string_view>{"PEER", rank == 0 ? "1" : "0"},
              {"FIRST", rank == 0 ? "input" : "scratch"},
              {"SECOND", rank == 0 ? "scratch" : "input"}}) {
            for (std::size_t at; (at = steps.find(word)) != std::string::npos;) steps.replace(at, word.size(), meaning);
        }
        text += fmt::format("rank {}\nscratch 2\n{}", rank, steps);
    }
    return text;
}

// In place: each rank gets the other's values and combines them with its own. `ordered`: behind the other's signal that
// it has got this rank's.
std::string in_place_sum(bool ordered = true) {
    std::string text = "tutti schedule 1\nalgorithm swap\ncollective all_reduce\nranks 2\ncount 2\n";
    for (const int rank : {0, 1}) {
        text += fmt::format("rank {}\nscratch 2\nmeet input[0:2]\nget {} scratch[0:2] input[0:2]\n", rank, 1 - rank);
        if (ordered) text += fmt::format("signal\nwait {} 1\n", 1 - rank);
        text += fmt::format("combine output[0:2] {} finish\n",
                            rank == 0 ? "input[0:2] scratch[0:2]" : "scratch[0:2] input[0:2]");
    }
    return text;
}

// Each rank puts its values over the other's output, which combines them there.
std::string put_sum() {
    std::string text = "tutti schedule 1\nalgorithm put_sum\ncollective all_reduce\nranks 2\ncount 2\n";
    for (const int rank : {0, 1}) {
        text += fmt::format(
            "rank {0}\nmeet output[0:2]\nput {1} output[0:2] input[0:2]\nsignal\nwait {1} 1\n"
            "combine output[0:2] {2} finish\n",
            rank, 1 - rank, rank == 0 ? "input[0:2] output[0:2]" : "output[0:2] input[0:2]");
    }
    return text;
}

// The same, which writes the output before it has read all of the input.
constexpr std::string_view early =
    "combine output[0:1] FIRST[0:1] SECOND[0:1] finish\ncopy scratch[0:1] input[0:1]\n"
    "combine output[1:2] FIRST[1:2] SECOND[1:2] finish";

Request all_reduce(std::uint64_t count, bool in_place = false) {
    return {.collective = Collective::all_reduce, .element_bytes = 4, .count = count, .in_place = in_place};
}

std::vector<Schedule> plans(const Layout& layout, Request request) {
    std::vector<Schedule> all;
    for (int rank = 0; rank < layout.size(); ++rank) {
        request.rank = rank;
        all.push_back(plan(layout, request));
    }
    return all;
}

Layout with(const std::string& text, int ranks = 2) {
    Layout layout = apart(ranks);
    layout.tuning.schedules.push_back(std::make_shared<UserSchedule>(UserSchedule::proved(text, "my file")));
    return layout;
}

Layout on_one_host(const std::string& text) {
    Layout host = with(text);
    host.host_of.assign(host.host_of.size(), 0);
    host.machines = 1;
    host.shared_memory = host.pulls = true;
    host.slot_bytes = 1 << 17;
    host.slots = 8;
    return host;
}

TEST(UserSchedule, serves_multiples_of_its_counts_among_as_many_ranks) {
    const Layout layout = with(exchange());
    EXPECT_EQ(choose(layout, all_reduce(2)).algorithm, "exchange");
    EXPECT_EQ(choose(layout, all_reduce(100)).algorithm, "exchange");
    EXPECT_NE(choose(layout, all_reduce(101)).algorithm, "exchange");
    EXPECT_NE(choose(layout, all_reduce(0)).algorithm, "exchange");
    EXPECT_EQ(choose(layout, all_reduce(2, true)).algorithm, "exchange");
    Request broadcast = all_reduce(2);
    broadcast.collective = Collective::broadcast;
    EXPECT_NE(choose(layout, broadcast).algorithm, "exchange");
    Layout three = apart(3);
    three.tuning = layout.tuning;
    EXPECT_NE(choose(three, all_reduce(2)).algorithm, "exchange");
    Request named = all_reduce(2);
    named.algorithm = "ring";
    EXPECT_EQ(choose(layout, named).algorithm, "ring");
}

TEST(UserSchedule, is_for_one_type_where_it_says_so) {
    std::string text = exchange();
    text.insert(text.find("count"), "dtype float32\n");
    const Layout layout = with(text);
    Request request = all_reduce(2);
    EXPECT_NE(choose(layout, request).algorithm, "exchange") << "a type that nobody knows";
    request.dtype = DType::float32;
    EXPECT_EQ(choose(layout, request).algorithm, "exchange");
    request.dtype = DType::int32;
    EXPECT_NE(choose(layout, request).algorithm, "exchange");
}

// A function may read an element after it has written another one: not in place.
TEST(UserSchedule, saves_the_input_of_calls_in_place) {
    std::string text = exchange("call_combine f output[0:2] FIRST[0:2] SECOND[0:2] finish");
    text.insert(text.find("count"), "calls f\nop sum\n");
    const Layout layout = with(text);
    Request request = all_reduce(6, true);
    request.op = ReduceOp::Kind::sum;
    const Schedule in_place = plans(layout, request)[0];
    EXPECT_EQ(in_place.steps.front().kind, schedule::StepKind::copy);
    EXPECT_EQ(in_place.functions, std::vector<std::string>{"f"});
    // What --save writes has what its steps need.
    const std::string saved = to_text(recipe_of(layout, request));
    EXPECT_NE(saved.find("algorithm my_exchange\ncollective all_reduce\nranks 2\ncalls f\nop sum\n"), std::string::npos)
        << saved;
    // A function computes one thing: other operations take another algorithm.
    request.op = ReduceOp::Kind::max;
    EXPECT_NE(choose(layout, request).algorithm, "exchange");
}

TEST(UserSchedule, is_explained_in_bytes_of_its_types) {
    const std::string text =
        "tutti schedule 1\nalgorithm codes\ncollective broadcast\nranks 2\ndtype float32\ncalls f\ncount 1\n"
        "rank 0\nscratch uint8 1\ncall f scratch.uint8[0:1] output[0:1]\nsend 1 scratch.uint8[0:1]\n"
        "call f output[0:1] scratch.uint8[0:1]\n"
        "rank 1\nscratch uint8 1\nreceive 0 scratch.uint8[0:1]\ncall f output[0:1] scratch.uint8[0:1]\n";
    const Request request{
        .collective = Collective::broadcast, .element_bytes = 4, .dtype = DType::float32, .count = 1000};
    const std::string explained = explain(with(text), request, "assumed");
    EXPECT_NE(explained.find("rank 0: 3 steps, 1000 bytes sent,"), std::string::npos) << explained;
}

TEST(UserSchedule, takes_calls_off_the_slots) {
    Layout host = with(exchange());
    host.host_of = {0, 0};
    host.shared_memory = true;
    host.slot_bytes = 1 << 17;
    host.slots = 8;
    EXPECT_TRUE(slot_sizes(host, Collective::all_reduce, std::nullopt).empty());
    EXPECT_FALSE(slot_sizes(host, Collective::barrier, std::nullopt).empty());
}

TEST(UserSchedule, does_the_same_in_place) {
    for (const bool saves_input : {false, true}) {
        const Layout layout = with(saves_input ? exchange(early) : exchange());
        for (const bool in_place : {false, true}) {
            const std::vector<Schedule> schedules = plans(layout, all_reduce(6, in_place));
            const Contract contract{
                .collective = Collective::all_reduce, .count = 6, .in_place = in_place, .host_of = {0, 1}};
            EXPECT_EQ(prove(schedules, contract), std::vector<std::string>{});
            EXPECT_EQ(schedules[0].steps.front().kind == schedule::StepKind::copy, in_place && saves_input);
        }
    }
}

TEST(UserSchedule, is_refused_with_the_reason) {
    const auto refusal = [](const std::string& text) -> std::string {
        try {
            (void)UserSchedule::proved(text, "my file");
        } catch (const InvalidArgument& error) {
            return error.what();
        }
        return "no error";
    };
    EXPECT_EQ(refusal(exchange("copy output[0:2] input[0:2]")),
              "my file: algorithm \"exchange\" does not do what all_reduce promises: rank 0 step 3 (end): "
              "element 0 is not finished");
    std::string named = exchange();
    named.replace(named.find("exchange"), 8, "ring");
    EXPECT_EQ(refusal(named),
              "my file: \"ring\" is one of tutti's own algorithms: expected another name in its line "
              "\"algorithm NAME\"");
    EXPECT_EQ(
        refusal(exchange("publish 0 input[0:2]")),
        "my file: rank 0 has a step \"publish\", on the staging area: expected copy, combine, convert, call, send, "
        "receive, receive_combine and signals, or meet and then copy, combine, convert, call, get, put, signal, wait");
    EXPECT_EQ(
        refusal(exchange("signal")),
        "my file: rank 0 has a step \"signal\": expected copy, combine, convert, call, send, "
        "receive, receive_combine and signals, or meet and then copy, combine, convert, call, get, put, signal, wait");
    EXPECT_NE(refusal(exchange("release 1")).find("rank 0 has a step \"release\", on the staging area: expected"),
              std::string::npos);
    std::string apart = in_place_sum();
    apart.insert(apart.find("count"), "hosts 0 1\n");
    EXPECT_EQ(refusal(apart), "my file: ranks of several hosts, in place: expected one host");
    EXPECT_EQ(refusal(in_place_sum() + "otherwise\n"),
              "my file: rank 1 has steps behind \"otherwise\": expected none; where a buffer cannot be reached, the "
              "ranks run what they would without this text");
    std::string unsignalled = in_place_sum();
    unsignalled.erase(unsignalled.find("signal\n"), 7);
    EXPECT_TRUE(refusal(unsignalled).starts_with("my file: algorithm \"swap\" does not do what all_reduce promises: "))
        << refusal(unsignalled);
}

TEST(UserSchedule, in_place_is_for_ranks_of_one_host_that_reach_each_other) {
    const Layout host = on_one_host(in_place_sum());
    EXPECT_EQ(choose(host, all_reduce(100000)).algorithm, "swap");
    const Schedule s = plan(host, all_reduce(100000));
    EXPECT_TRUE(s.in_place);
    ASSERT_NE(s.otherwise, nullptr);
    EXPECT_EQ(s.otherwise->algorithm, "two_shot") << "the table's choice, on the staging area";
    EXPECT_NE(explain(host, all_reduce(100000), "a test")
                  .find("in place; where a rank's buffers cannot be reached, all ranks run two_shot instead"),
              std::string::npos);
    Layout two_hosts = host, no_copies = host, no_memory = host;
    two_hosts.host_of = {0, 1};
    no_copies.pulls = false;
    no_memory.shared_memory = false;
    for (const Layout& other : {two_hosts, no_copies, no_memory})
        EXPECT_NE(choose(other, all_reduce(100000)).algorithm, "swap");
    std::string mapped = in_place_sum();
    for (std::size_t at = 0; (at = mapped.find("meet i", at)) != std::string::npos;) mapped.insert(at + 4, " maps");
    const Layout symmetric = on_one_host(mapped);
    Request request = all_reduce(100000);
    EXPECT_NE(choose(symmetric, request).algorithm, "swap") << "no group has symmetric memory";
    request.symmetric = true;
    EXPECT_EQ(choose(symmetric, request).algorithm, "swap");
    EXPECT_EQ(plan(symmetric, request).otherwise->algorithm, "two_shot");
}

// Calls whose input is their output: they do the same where the order of the steps allows it, else they save an input
// that no other rank reads; else all ranks run what they would run otherwise.
TEST(UserSchedule, in_place_does_the_same_where_the_output_holds_the_input) {
    const Layout ordered = on_one_host(in_place_sum());
    const std::vector<Schedule> same = plans(ordered, all_reduce(6, true));
    const Contract contract{.collective = Collective::all_reduce, .count = 6, .in_place = true, .host_of = {0, 0}};
    EXPECT_EQ(prove(same, contract), std::vector<std::string>{});
    EXPECT_TRUE(same[0].input_is_output);
    const auto combine = std::ranges::find(same[0].steps, schedule::StepKind::combine, &schedule::Step::kind);
    const auto after = after_of(same[0], *combine);
    EXPECT_NE(std::ranges::find(after, 0U), after.end()) << "no value is overwritten before the ranks have met";

    const std::vector<Schedule> saved = plans(on_one_host(put_sum()), all_reduce(6, true));
    EXPECT_EQ(prove(saved, contract), std::vector<std::string>{});
    EXPECT_EQ(saved[0].steps.front().kind, schedule::StepKind::copy) << "the input is saved";

    const std::vector<Schedule> refused = plans(on_one_host(in_place_sum(false)), all_reduce(6, true));
    for (const Schedule& s : refused) {
        ASSERT_EQ(s.steps.size(), 1U);
        EXPECT_EQ(s.steps[0].kind, schedule::StepKind::meet);
        EXPECT_EQ(operands_of(s, s.steps[0])[0].chunk.buffer, schedule::Buffer::input);
    }
}

TEST(UserSchedule, is_made_of_each_algorithm_in_place) {
    Layout layout = on_one_host(in_place_sum());
    layout.tuning.schedules.clear();
    int made = 0;
    for (const bool symmetric : {false, true}) {
        for (int c = 1; c <= collective_count; ++c) {
            Request request{.collective = static_cast<Collective>(c), .element_bytes = 4, .count = 64, .even = true};
            request.counts.assign(2, 16);
            request.symmetric = symmetric;
            request.algorithm = symmetric ? "in_place" : "single_copy";
            const auto can = applicable(layout, request);
            if (std::ranges::find(can, *request.algorithm) == can.end()) continue;
            const std::string text = to_text(recipe_of(layout, request));
            const UserSchedule user = UserSchedule::proved(text, "my file");
            EXPECT_EQ(user.name(), "my_" + *request.algorithm);
            request.algorithm.reset();
            EXPECT_TRUE(user.serves(layout, request)) << to_string(request.collective) << ' ' << text;
            ++made;
        }
    }
    EXPECT_EQ(made, 9);
}

// A text whose ranks have one part each: the whole collective, by one algorithm.
std::string whole(Collective collective, std::string_view algorithm, int ranks) {
    const CollectiveTraits& traits = traits_of(collective);
    using Extent = CollectiveTraits::Extent;
    const bool is_exchanged = traits.input == Extent::exchanged;
    std::vector<std::string> all;
    for (int rank = 0; rank < ranks; ++rank) all.push_back(std::to_string(rank));
    // Blocks of 1, 2, 3 elements and so on.
    std::string counts;
    int sum = 0;
    for (int rank = 0; rank < ranks; ++rank) {
        counts += fmt::format(" {}", rank + 1);
        sum += rank + 1;
    }
    std::string text = fmt::format("tutti schedule 1\nalgorithm mine\ncollective {}\nranks {}\n", traits.name, ranks);
    const int root = traits.is_rooted() ? ranks - 1 : 0;
    if (root > 0) text += fmt::format("root {}\n", root);
    if (traits.has_blocks()) text += fmt::format("counts{}\n", counts);
    if (traits.input == Extent::whole) text += "count 7\n";
    for (int rank = 0; is_exchanged && rank < ranks; ++rank) {
        text += "blocks";
        for (int peer = 0; peer < ranks; ++peer) text += " 3";
        text += "\n";
    }
    for (int rank = 0; rank < ranks; ++rank) {
        const auto chunk = [&](Extent extent, std::string_view buffer) {
            const int count = extent == Extent::whole       ? 7
                              : extent == Extent::own_block ? rank + 1
                              : is_exchanged                ? 3 * ranks
                                                            : sum;
            return fmt::format(" {}[0:{}]", buffer, count);
        };
        text += fmt::format("rank {}\n  use {} {} {}", rank, traits.name, algorithm, fmt::join(all, ","));
        if (traits.is_rooted()) text += fmt::format(" root {}", root);
        if (traits.writes(rank, root)) text += chunk(traits.output, "output");
        if (traits.reads(rank, root) && collective != Collective::broadcast) text += chunk(traits.input, "input");
        if (traits.combines) text += " finish";
        if (traits.has_blocks()) text += " counts" + counts;
        text += "\n";
    }
    return text;
}

TEST(UserSchedule, has_parts_by_each_algorithm_that_sends_messages) {
    int made = 0;
    for (const int ranks : {1, 2, 3, 4, 5, 8}) {
        const Layout layout = apart(ranks);
        for (int c = 1; c <= collective_count; ++c) {
            Request request{.collective = static_cast<Collective>(c), .count = 7, .largest_count = 3, .even = true};
            const CollectiveTraits& traits = traits_of(request.collective);
            if (traits.exchanges() && traits.is_rooted()) continue;  // gather and scatter have counts in a text
            if (traits.has_blocks()) request.counts.assign(static_cast<std::size_t>(ranks), 1);
            for (const std::string& name : applicable(layout, request)) {
                EXPECT_NO_THROW((void)UserSchedule::proved(whole(request.collective, name, ranks), name))
                    << whole(request.collective, name, ranks);
                ++made;
            }
        }
    }
    EXPECT_GT(made, 100);
}

TEST(UserSchedule, has_no_parts_for_ranks_that_do_not_know_the_counts) {
    try {
        (void)UserSchedule::proved(whole(Collective::gather_v, "direct", 2), "my file");
        ADD_FAILURE() << "no error";
    } catch (const InvalidArgument& error) {
        EXPECT_NE(std::string(error.what()).find("expected gather or scatter, with counts"), std::string::npos)
            << error.what();
    }
}

TEST(UserSchedule, says_which_algorithms_parts_may_have) {
    try {
        (void)UserSchedule::proved(whole(Collective::all_reduce, "two_shot", 3), "my file");
        ADD_FAILURE() << "no error";
    } catch (const InvalidArgument& error) {
        EXPECT_EQ(
            std::string(error.what()),
            "my file: line 7 (\"use all_reduce two_shot 0,1,2 output[0:7] input[0:7] finish\"): \"two_shot\" is no "
            "algorithm for all_reduce among 3 ranks; did you mean \"two_shot_messages\"?: expected one of direct, "
            "recursive_doubling, recursive_halving, ring, two_shot_messages");
    }
}

TEST(UserSchedule, is_made_of_each_algorithm_that_sends_messages) {
    const Layout layout = apart(4);
    int made = 0;
    for (int c = 1; c <= collective_count; ++c) {
        Request request{.collective = static_cast<Collective>(c), .element_bytes = 4, .count = 64, .even = true};
        request.counts.assign(4, 16);
        request.largest_count = 16;
        request.send_counts = request.receive_counts = request.counts;
        request.send_offsets = request.receive_offsets = {0, 16, 32, 48};
        for (const std::string& name : applicable(layout, request)) {
            request.algorithm = name;
            const std::string text = to_text(recipe_of(layout, request));
            const UserSchedule user = UserSchedule::proved(text, name);
            EXPECT_EQ(user.name(), "my_" + name);
            request.algorithm.reset();
            const CollectiveTraits& traits = traits_of(request.collective);
            const bool is_known = !traits.exchanges() || !traits.is_rooted();  // whether it may serve, to all ranks
            EXPECT_EQ(user.serves(layout, request), is_known) << to_string(request.collective) << ' ' << text;
            ++made;
        }
    }
    EXPECT_GT(made, 20);
}

// ---- Texts that ask for too much

std::string with_steps_of_rank_0(std::string_view head, std::size_t count,
                                 const std::function<std::string(std::size_t)>& step) {
    std::string text =
        fmt::format("tutti schedule 1\nalgorithm mine\ncollective all_reduce\nranks 2\n{}rank 0\n", head);
    for (std::size_t i = 0; i < count; ++i) text += step(i);
    return text + "rank 1\n";
}

std::string refusal_of(const std::string& text) {
    const auto begin = std::chrono::steady_clock::now();
    std::string why = "taken";
    try {
        (void)UserSchedule::proved(text, "test");
    } catch (const InvalidArgument& error) {
        why = error.what();
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, test::patience(std::chrono::seconds(20))) << why;
    return why;
}

TEST(UserSchedule, whose_values_double_at_each_step_is_refused_with_the_limit) {
    const std::string text = with_steps_of_rank_0("count 1\n", 60, [](std::size_t i) {
        const std::string copy = i == 0 ? "scratch 64\ncopy scratch[0:1] input[0:1]\n" : "";
        return copy + fmt::format("combine scratch[{1}:{2}] scratch[{0}:{1}] scratch[{0}:{1}]\n", i, i + 1, i + 2);
    });
    EXPECT_EQ(refusal_of(text).find("test: algorithm \"mine\" is too large: its proof takes more than 512 MiB"), 0U);
}

TEST(UserSchedule, of_very_many_steps_is_refused_with_the_limit) {
    const auto chain = [](std::size_t i) {
        return (i == 0 ? "scratch 1\n" : "") + std::string("copy scratch[0:1] input[0:1]\n");
    };
    EXPECT_NE(refusal_of(with_steps_of_rank_0("count 1\n", 300'000, chain)).find("more than 262144 steps"),
              std::string::npos);
    EXPECT_NE(refusal_of(with_steps_of_rank_0("count 1\n", 250'000, chain)).find("is too large"), std::string::npos);
    // Writes cut a buffer into ever more pieces, all of which the next step reads.
    const auto shreds = [](std::size_t i) {
        return (i == 0 ? "scratch 16000\n" : "") + fmt::format("copy scratch[{}:{}] input[0:1]\n", i, i + 1) +
               "call nothing scratch[8000:16000] scratch[0:8000]\n";
    };
    EXPECT_NE(refusal_of(with_steps_of_rank_0("count 1\ncalls nothing\n", 8000, shreds)).find("stretches of elements"),
              std::string::npos);
}

TEST(UserSchedule, with_a_long_chain_of_steps_needs_no_deep_stack) {
    const std::string text = with_steps_of_rank_0("count 1\n", 8'000, [](std::size_t i) {
        return i == 0 ? std::string("scratch 2\ncopy scratch[0:1] input[0:1]\n")
                      : fmt::format("copy scratch[{}:{}] scratch[{}:{}]\n", i % 2, i % 2 + 1, 1 - i % 2, 2 - i % 2);
    });
    EXPECT_NE(refusal_of(text).find("does not do what all_reduce promises"), std::string::npos);
}

TEST(UserSchedule, has_a_name_that_can_be_printed) {
    std::string text = exchange();
    text.replace(text.find("exchange"), 8, "ex\x1b[2Jchange");
    EXPECT_NE(refusal_of(text).find("line 2 (\"algorithm ex\\x1b[2Jchange\"): the name has control characters"),
              std::string::npos)
        << refusal_of(text);
}

}  // namespace
}  // namespace tutti::algorithm
