// Verdicts, the graph of waiting ranks and timelines, from dumps.
#include "record/verdict.hpp"
#include "record/dump_writer.hpp"
#include "record/test_dumps.hpp"
#include "record/timeline.hpp"
#include "support/patience.hpp"

#include <tutti/error.hpp>
#include <tutti/store.hpp>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <thread>

namespace tutti::record {
namespace {

using namespace std::chrono_literals;
using test::dump_of;
using test::entry_of;
using test::message_of;

const Subject waiting{.headline = "all_reduce #2: timed out", .sequence = 2, .rank = 0, .peer = 1};

TEST(Verdicts, say_who_has_not_called_who_called_something_else_and_who_is_silent) {
    const Judgement j = judge(waiting,
                              {dump_of(0, 6, {entry_of(1, State::completed), entry_of(2, State::started)}),
                               dump_of(1, 6, {entry_of(1, State::completed), entry_of(2, State::started)}),
                               dump_of(2, 6, {entry_of(1, State::completed, 1000, 3'000'000'000)}),
                               dump_of(3, 6, {entry_of(2, State::started, 1000, 0, 8)}), std::nullopt, std::nullopt},
                              {.departed = {5}, .silent = {4}});
    EXPECT_EQ(j.text,
              "all_reduce #2: timed out\n"
              "  ranks 0, 1: called #2 operation 7, called at train+0x12\n"
              "  rank 2: has not called it: its last operation was #1 operation 7 (completed 2.000 s ago), called at "
              "train+0x12\n"
              "  rank 3: called #2 operation 8, called at train+0x12\n"
              "  rank 4: gave no answer: it is stopped, or cut off\n"
              "  rank 5: has left the group");
    EXPECT_EQ(j.peer, 4) << "others may not have come so far because of it";
    EXPECT_FALSE(j.disagreement);
}

TEST(Verdicts, show_the_messages_that_a_waiting_receive_did_not_meet) {
    Dump receiver = dump_of(1, 3, {message_of(Kind::receive, 0, State::started), entry_of(1, State::completed)});
    receiver.entries[0].tag = 2;
    receiver.unmatched = {{.from = 2, .tag = 9}, {.from = 0, .tag = 1}, {.from = 0, .tag = 1}};
    const Subject message{.headline = "recv: timed out", .rank = 1, .peer = 0};
    EXPECT_EQ(judge(message, {dump_of(0, 3, {}), receiver, std::nullopt}, {.departed = {2}}).text,
              "recv: timed out\n"
              "  rank 0: it has called nothing in this group\n"
              "  rank 1: it is in receive of operation 7 from rank 0 with tag 2 for 5.000 s, called at train+0x12; 2 "
              "messages with tag 1 from rank 0, a message with tag 9 from rank 2 are here\n"
              "  rank 2: has left the group")
        << "the receive is open, though it is not the last call";
    receiver.unmatched.clear();
    EXPECT_EQ(judge(message, {std::nullopt, receiver, std::nullopt}, {}).text.find(" here"), std::string::npos);
}

TEST(Verdicts, blame_nobody_who_lives_for_a_tail_that_is_missing) {
    const std::vector<std::optional<Dump>> tails{dump_of(0, 3, {entry_of(2, State::started)}), std::nullopt,
                                                 std::nullopt};
    const Judgement j = judge(waiting, tails, {.silent = {2}});
    EXPECT_NE(j.text.find("rank 1: lives as far as is known, but did not say"), std::string::npos) << j.text;
    EXPECT_NE(j.text.find("rank 2: gave no answer"), std::string::npos) << j.text;
    EXPECT_EQ(j.peer, 2);
}

TEST(Verdicts, name_the_rank_without_an_answer_where_all_others_have_called) {
    const auto called = [](int rank) { return dump_of(rank, 3, {entry_of(2, State::started)}); };
    EXPECT_EQ(judge(waiting, {called(0), called(1), std::nullopt}, {}).peer, 2) << "rank 1 waits for it as well";
    EXPECT_EQ(judge(waiting, {called(0), dump_of(1, 3, {}), std::nullopt}, {}).peer, 1) << "one that has not called";
    EXPECT_EQ(judge(waiting, {called(0), std::nullopt, called(2)}, {.departed = {1}}).peer, 1);
    const Subject message{.headline = "recv: timed out", .rank = 0, .peer = 1};
    EXPECT_EQ(judge(message, {called(0), called(1), std::nullopt}, {}).peer, 1) << "a message concerns its two ranks";
}

TEST(Verdicts, without_tails_name_the_silent_ranks) {
    const Subject part{.headline = "late", .sequence = 2, .rank = 0, .peer = 1, .members = Members({4, 6, 8})};
    const Judgement j = judge(part, Absent{.silent = {2}});
    EXPECT_EQ(j.text, "late\n  rank 8: gave no answer: it is stopped, or cut off");
    EXPECT_EQ(j.peer, 2);
    EXPECT_EQ(judge(part, Absent{}).peer, 1);
}

TEST(Verdicts, are_told_as_text_and_read_with_care) {
    const Judgement long_one{.text = std::string(100'000, 'x'), .peer = 3, .sequence = 7, .disagreement = true};
    const std::string text = to_text(long_one);
    EXPECT_LT(text.size(), 8192U);
    const auto read = read_judgement(text);
    ASSERT_TRUE(read);
    EXPECT_TRUE(read->peer == 3 && read->sequence == 7 && read->disagreement && long_one.text.starts_with(read->text));
    for (const char* bad : {"", "{", "[]", "{\"text\":1}", "{\"text\":\"x\",\"peer\":\"0\"}"})
        EXPECT_FALSE(read_judgement(bad)) << bad;
}

TEST(Verdicts, stay_short_however_many_ranks_differ) {
    std::vector<std::optional<Dump>> tails;
    for (int rank = 0; rank < 100; ++rank)
        tails.emplace_back(
            dump_of(rank, 100, {entry_of(2, State::started, 1000, 0, static_cast<std::uint64_t>(rank))}));
    EXPECT_LT(judge(waiting, tails, {}).text.size(), 2000U);
}

TEST(Verdicts, are_the_same_on_all_ranks_and_do_not_wait_for_ever) {
    const HashStore store;
    for (const bool silent : {false, true}) {
        const Store world = PrefixStore(silent ? "a" : "b", store);
        std::vector<Judgement> judgements(3);
        std::vector<std::thread> ranks;
        const auto begin = std::chrono::steady_clock::now();
        for (int rank = 0; rank < 3; ++rank) {
            ranks.emplace_back([&, rank] {
                if (silent && rank == 2) return;
                Inquiry inquiry(world);
                inquiry.publish(dump_of(rank, 3, {entry_of(2, State::started)}));
                Subject subject = waiting;
                subject.headline = fmt::format("as rank {} sees it", rank);
                const Absent absent{.silent = silent ? std::vector<int>{2} : std::vector<int>{}};
                judgements[static_cast<std::size_t>(rank)] = inquiry.decide(subject, 3, absent);
            });
        }
        for (auto& rank : ranks) rank.join();
        EXPECT_LT(std::chrono::steady_clock::now() - begin, test::patience(1s));
        EXPECT_EQ(judgements[0].text, judgements[1].text);
        if (!silent) {
            EXPECT_EQ(judgements[0].text, judgements[2].text);
        }
        EXPECT_EQ(judgements[0].text.find("gave no answer") != std::string::npos, silent) << judgements[0].text;
    }
}

TEST(Verdicts, about_a_rank_that_there_is_not_count_for_nobody) {
    for (const int peer : {-7, 3, 1 << 20}) {
        HashStore store;
        store.set("verdict", fmt::format(R"({{"text":"no","peer":{},"sequence":2,"disagreement":false}})", peer));
        Inquiry inquiry{store};
        inquiry.publish(dump_of(0, 3, {entry_of(2, State::started)}));
        const Judgement judgement = inquiry.decide(waiting, 3, {.departed = {1, 2}});
        EXPECT_NE(judgement.text, "no") << peer;
        EXPECT_LT(judgement.peer, 3);
    }
    EXPECT_FALSE(read_judgement(R"({"text":"no","peer":-7,"sequence":2,"disagreement":false})"));
}

TEST(Verdicts, without_a_store_are_what_a_rank_knows_by_itself) {
    HashStore store;
    Inquiry inquiry{store};
    store.abort("gone");
    inquiry.publish(dump_of(0, 2, {}));
    EXPECT_EQ(inquiry.decide(waiting, 2, {}).text, waiting.headline);
    EXPECT_FALSE(inquiry.learn());
}

// ---- timelines

TEST(WaitForGraph, shows_who_has_not_come_who_differs_and_who_left_nothing) {
    const auto worlds = merge(
        {dump_of(0, 4, {entry_of(1, State::completed), entry_of(2, State::failed, 0, 1'500'000'000)}),
         dump_of(1, 4, {entry_of(1, State::completed)}), dump_of(2, 4, {entry_of(2, State::started, 1000, 0, 8)})});
    ASSERT_EQ(worlds.size(), 1U);
    const std::string text = describe(worlds[0]);
    EXPECT_NE(text.find("4 ranks; no dump of rank 3"), std::string::npos) << text;
    EXPECT_NE(text.find("rank 0 waits for rank 1 for 1.500 s in #2 operation 7: it has not called it; its last was #1 "
                        "operation 7 (completed)"),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("rank 0 waits for rank 2 for 1.500 s in #2 operation 7: it called #2 operation 8"),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("rank 0 waits for rank 3 for 1.500 s in #2 operation 7: it left no dump"), std::string::npos)
        << text;
    EXPECT_NE(text.find("a circle: 0 → 2 → 0"), std::string::npos) << text;
}

TEST(WaitForGraph, follows_messages_and_finds_their_circles) {
    std::vector<Dump> dumps;
    for (int rank = 0; rank < 3; ++rank)
        dumps.push_back(dump_of(rank, 3, {message_of(Kind::receive, (rank + 1) % 3, State::started)}));
    const auto waits = wait_for_graph(merge(dumps)[0]);
    ASSERT_EQ(waits.size(), 3U);
    EXPECT_EQ(waits[2].peers, std::vector<int>{0});
    EXPECT_EQ(circles(waits), (std::vector<std::vector<int>>{{0, 1, 2}}));
    EXPECT_TRUE(circles(std::span(waits).first(2)).empty());
}

TEST(WaitForGraph, knows_that_only_the_root_waits_for_all) {
    std::vector<Dump> dumps;
    for (int rank = 0; rank < 3; ++rank) {
        Entry e = entry_of(1, State::started);
        e.kind = Kind::from_root;
        e.peer = 2;
        dumps.push_back(dump_of(rank, 3, rank == 0 ? std::vector<Entry>{e} : std::vector<Entry>{}));
    }
    const auto waits = wait_for_graph(merge(dumps)[0]);
    ASSERT_EQ(waits.size(), 1U);
    EXPECT_EQ(waits[0].peers, std::vector<int>{2}) << "rank 1 is late too, but rank 0 does not need it";
}

TEST(Timelines, bring_the_clocks_of_machines_together) {
    Dump far = dump_of(1, 2, {entry_of(1, State::completed, 1'000'000'500, 1'000'001'000)});
    far.machine = "other";
    const auto worlds = merge({dump_of(0, 2, {entry_of(1, State::completed, 0, 1000)}), far});
    const std::int64_t offset = worlds[0].offset_ns[1];
    EXPECT_LE(1'000'000'500 + offset, 1000) << "it began before the other had ended";
    EXPECT_GE(1'000'001'000 + offset, 0);
    far.machine = "m";
    EXPECT_EQ(merge({dump_of(0, 2, {entry_of(1, State::completed, 0, 1000)}), far})[0].offset_ns[1], 0);
}

TEST(Timelines, are_json_with_slices_and_arrows_from_the_last_to_the_others) {
    const auto worlds = merge({dump_of(0, 3, {entry_of(1, State::completed, 1000, 9000)}),
                               dump_of(1, 3,
                                       {entry_of(1, State::completed, 5000, 9500),
                                        message_of(Kind::send, 2, State::completed, 10000, 11000)}),
                               dump_of(2, 3,
                                       {entry_of(1, State::completed, 2000, 9600),
                                        message_of(Kind::receive, 1, State::completed, 10000, 12000)})});
    const auto trace = nlohmann::json::parse(chrome_trace(worlds));
    std::multimap<std::string, nlohmann::json> by_phase;
    for (const auto& event : trace["traceEvents"]) by_phase.emplace(event["ph"], event);
    EXPECT_EQ(by_phase.count("X"), 5U);
    ASSERT_EQ(by_phase.count("s"), 3U);
    EXPECT_EQ(by_phase.count("f"), 3U);
    int from_the_last = 0, messages = 0;
    const auto [first, last] = by_phase.equal_range("s");
    for (auto it = first; it != last; ++it) {
        from_the_last += it->second["name"] == "came last" && it->second["pid"] == 1 && it->second["ts"] == 4.0;
        messages += it->second["name"] == "message" && it->second["pid"] == 1;
    }
    EXPECT_EQ(from_the_last, 2);
    EXPECT_EQ(messages, 1);
}

TEST(Timelines, end_what_was_over_in_a_moment_when_the_last_rank_came) {
    const auto worlds = merge({dump_of(0, 2, {entry_of(1, State::completed, 1000, 0)}),
                               dump_of(1, 2, {entry_of(1, State::completed, 5000, 0)})});
    const auto trace = nlohmann::json::parse(chrome_trace(worlds));
    std::vector<double> durations;
    int arrows = 0;
    for (const auto& event : trace["traceEvents"]) {
        if (event["ph"] == "X") durations.push_back(event["dur"]);
        arrows += event["ph"] == "f";
    }
    EXPECT_EQ(durations, (std::vector<double>{4, 0}));
    EXPECT_EQ(arrows, 1);
}

TEST(Timelines, show_a_replay_with_its_nodes_beneath_it) {
    Dump dump = dump_of(0, 2, {entry_of(1, State::completed, 3000, 5000)});
    dump.taken_ns = 30'000;
    dump.graphs = {{.id = 3,
                    .nodes = {"step", "all_reduce"},
                    .replays = {{.number = 7, .ended_ns = 6000, .began_ns = {1000, 3000}},
                                {.number = 8, .ended_ns = 0, .began_ns = {10'000}}}}};
    Dump of_other_group = dump;  // whose calls the graph has, too
    of_other_group.group = "other";
    of_other_group.world = 5;
    of_other_group.entries.clear();
    const auto trace = nlohmann::json::parse(chrome_trace(merge({dump, of_other_group})));
    std::vector<std::tuple<std::string, double, double, std::string>> slices;
    std::vector<int> tracks;
    for (const auto& event : trace["traceEvents"]) {
        if (event["ph"] != "X" || event["cat"] != "replay") continue;
        slices.emplace_back(event["name"], event["ts"], event["dur"], event["args"]["state"]);
        tracks.push_back(event["tid"]);
    }
    EXPECT_EQ(slices, (std::vector<std::tuple<std::string, double, double, std::string>>{
                          {"graph replay #7", 0, 5, "over"},
                          {"step", 0, 2, "over"},
                          {"all_reduce", 2, 3, "over"},
                          {"graph replay #8", 9, 20, "under way"},
                          {"step", 9, 20, "under way"}}));
    EXPECT_EQ(tracks, std::vector<int>(5, 2)) << "behind the tracks of both groups";
}

TEST(Timelines, of_dumps_that_do_not_fit_together_are_refused) {
    EXPECT_THROW((void)merge({dump_of(0, 2, {}), dump_of(1, 3, {})}), InvalidArgument);
}

}  // namespace
}  // namespace tutti::record
