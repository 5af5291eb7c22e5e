// The ring, counters and dumps by themselves.
#include "record/dump_writer.hpp"
#include "record/public_call.hpp"
#include "record/recorder.hpp"
#include "record/replays.hpp"
#include "record/test_dumps.hpp"
#include "record/timeline.hpp"
#include "support/patience.hpp"

#include <tutti/error.hpp>
#include <tutti/store.hpp>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <thread>

namespace tutti::record {
namespace {

using namespace std::chrono_literals;
using test::describe_number;
using test::dump_of;
using test::entry_of;
using test::message_of;

Ticket call(Recorder& recorder, std::uint64_t sequence, std::uint64_t fingerprint = 7, std::uint64_t bytes = 0) {
    return recorder.begin({.sequence = sequence, .fingerprint = fingerprint, .bytes = bytes}, State::started);
}

TEST(Recorder, keeps_the_last_4096_operations_in_order_with_their_states) {
    Recorder recorder("g", 1, 3, &describe_number);
    for (std::uint64_t i = 1; i <= 5000; ++i) {
        const Ticket ticket = call(recorder, i, i);
        if (i != 4999) recorder.end(ticket, i == 5000 ? State::failed : State::completed);
    }
    const Dump dump = recorder.snapshot("test");
    ASSERT_EQ(dump.entries.size(), Recorder::capacity);
    for (std::size_t i = 0; i < dump.entries.size(); ++i) {
        const Entry& entry = dump.entries[i];
        ASSERT_EQ(entry.sequence, 5000 - Recorder::capacity + 1 + i);
        EXPECT_EQ(entry.what, describe_number(entry.sequence));
        EXPECT_LE(entry.enqueued_ns, dump.taken_ns);
        if (!entry.open()) {
            EXPECT_LE(entry.enqueued_ns, entry.ended_ns);
        }
    }
    EXPECT_EQ(dump.entries[4094].state, State::started);
    EXPECT_EQ(dump.entries[4094].ended_ns, 0);
    EXPECT_EQ(dump.entries[4095].state, State::failed);
    EXPECT_EQ(dump.rank, 1);
    EXPECT_EQ(dump.size, 3);
    EXPECT_EQ(dump.process, ::getpid());
}

TEST(Recorder, names_the_node_of_each_replay_that_has_calls_of_its_group) {
    const Recorder mine("mine", 0, 1, &describe_number), other("other", 0, 1, &describe_number);
    ReplayRecord replay({"one", "two \x1b[2J"}, {&mine}), compute_steps({"a step"}, {});
    EXPECT_TRUE(mine.snapshot("").replays.empty()) << "none is under way";
    for (int i = 0; i < 3; ++i) replay.begin();
    replay.at(1);
    compute_steps.begin();
    compute_steps.at(0);
    const std::string step = "graph replay #1 at node 1 of 1: a step";
    EXPECT_EQ(mine.snapshot("").replays,
              (std::vector<std::string>{"graph replay #3 at node 2 of 2: two \x1b[2J", step}));
    EXPECT_EQ(other.snapshot("").replays, std::vector{step});
    EXPECT_EQ(decode(encode(mine.snapshot("")), "test").replays,
              (std::vector<std::string>{"graph replay #3 at node 2 of 2: two \\x1b[2J", step}));
    replay.end();
    EXPECT_EQ(mine.snapshot("").replays, std::vector{step});
    EXPECT_THROW(decode("{\"tutti_dump\":1,\"replays\":[1]}\n", "test"), InvalidArgument);
    EXPECT_THROW(decode("{\"tutti_dump\":1,\"replays\":\"x\"}\n", "test"), InvalidArgument);
}

TEST(Recorder, keeps_the_times_of_the_last_replays_of_its_graphs) {
    auto mine = std::make_unique<Recorder>("g", 0, 2, &describe_number);
    Recorder other("h", 0, 2, &describe_number);
    const auto replayed = [&] { return mine->snapshot("test").graphs; };
    {
        ReplayRecord replay({"one", "two"}, {mine.get()});
        EXPECT_TRUE(replayed().empty()) << "it has not been replayed";
        for (int i = 0; i < 40; ++i) {
            replay.begin();
            replay.at(0);
            if (i == 39) break;
            replay.at(1);
            replay.end();
        }
        ASSERT_EQ(replayed().size(), 1U);
        const std::vector<Replay> replays = replayed().front().replays;
        ASSERT_EQ(replays.size(), replays_of_graph_max);
        for (std::size_t i = 0; i < replays.size(); ++i) {
            EXPECT_EQ(replays[i].number, 40 - replays_of_graph_max + 1 + i);
            ASSERT_EQ(replays[i].began_ns.size(), i + 1 < replays.size() ? 2U : 1U);
            EXPECT_LE(replays[i].began_ns.front(), replays[i].began_ns.back());
            if (i + 1 < replays.size()) {
                EXPECT_LE(replays[i].began_ns.back(), replays[i].ended_ns);
                EXPECT_LE(replays[i].ended_ns, replays[i + 1].began_ns.front());
            }
        }
        EXPECT_EQ(replays.back().ended_ns, 0) << "it is under way";
        replay.end();
    }
    ASSERT_EQ(replayed().size(), 1U) << "a graph that is gone before its groups";
    EXPECT_EQ(replayed().front().nodes, (std::vector<std::string>{"one", "two"}));
    EXPECT_NE(replayed().front().replays.back().ended_ns, 0);
    EXPECT_EQ(decode(encode(mine->snapshot("test")), "test").graphs, replayed());
    EXPECT_TRUE(mine->snapshot("", 4).graphs.empty()) << "a tail";
    EXPECT_TRUE(other.snapshot("test").graphs.empty());
    const Recorder* const place = mine.get();
    std::destroy_at(mine.get());
    std::construct_at(mine.get(), "g", 0, 2, &describe_number);
    ASSERT_EQ(mine.get(), place);
    EXPECT_TRUE(replayed().empty()) << "those of another group, whose recorder was in the same place";
}

TEST(Replays, are_read_while_they_go_on) {
    const Recorder mine("g", 0, 2, &describe_number);
    ReplayRecord replay({"one", "two", "three"}, {&mine});
    std::atomic<bool> stop{false};
    std::thread running([&] {
        while (!stop) {
            replay.begin();
            for (std::size_t node = 0; node < 3; ++node) replay.at(node);
            replay.end();
        }
    });
    for (int i = 0; i < 300; ++i) {
        for (const Replay& one : replay.replayed(TickScale()).replays) {
            ASSERT_TRUE(std::ranges::is_sorted(one.began_ns));
            if (one.ended_ns == 0) continue;
            ASSERT_EQ(one.began_ns.size(), 3U);
            ASSERT_LE(one.began_ns.back(), one.ended_ns);
        }
    }
    stop = true;
    running.join();
}

TEST(Dumps, with_too_much_of_graphs_are_refused) {
    const std::string head = "{\"tutti_dump\":1}\n";
    const auto refuses = [&](const std::string& lines) { EXPECT_THROW(decode(head + lines, "test"), InvalidArgument); };
    refuses("{\"graph\":0,\"node\":\"x\"}\n");
    refuses("{\"graph\":1,\"node\":5}\n");
    refuses("{\"graph\":1,\"replay\":1,\"began_ns\":[-1]}\n");
    std::string graphs, nodes, replays;
    for (std::size_t i = 1; i <= dump_graphs_max + 1; ++i)
        graphs += fmt::format("{{\"graph\":{},\"node\":\"x\"}}\n", i);
    for (std::size_t i = 0; i <= replayed_nodes_max; ++i) nodes += "{\"graph\":1,\"node\":\"x\"}\n";
    for (std::size_t i = 1; i <= replays_of_graph_max + 1; ++i)
        replays += fmt::format("{{\"graph\":1,\"replay\":{}}}\n", i);
    for (const std::string& lines : {graphs, nodes, replays}) refuses(lines);
}

TEST(Recorder, gives_a_tail_with_what_is_still_open_however_old) {
    Recorder recorder("g", 0, 1, &describe_number);
    const Ticket open = call(recorder, 1, 1);
    for (std::uint64_t i = 2; i <= 100; ++i) recorder.end(call(recorder, i, i), State::completed);
    const Dump tail = recorder.snapshot("", 4);
    ASSERT_EQ(tail.entries.size(), 5U);
    EXPECT_EQ(tail.entries[0].number, open);
    EXPECT_EQ(tail.entries[1].sequence, 97U);
}

TEST(Recorder, need_not_look_at_the_clock_when_an_operation_is_over_in_a_moment) {
    Recorder recorder("g", 0, 1, &describe_number);
    const Ticket ticket = recorder.begin_brief({.sequence = 1, .fingerprint = 7, .bytes = 8});
    Entry entry = recorder.snapshot("test").entries.at(0);
    EXPECT_EQ(entry.state, State::started);
    EXPECT_EQ(entry.started_ns, entry.enqueued_ns);
    EXPECT_EQ(recorder.counters().completed, 0U);
    recorder.complete(ticket);
    entry = recorder.snapshot("test").entries.at(0);
    EXPECT_EQ(entry.state, State::completed);
    EXPECT_EQ(entry.ended_ns, 0);
    EXPECT_EQ(recorder.counters().completed, 1U);
    EXPECT_EQ(recorder.counters().bytes, 8U);
    EXPECT_EQ(recorder.counters().seconds, 0);
}

TEST(Recorder, prolongs_what_turns_out_not_to_be_over_in_a_moment) {
    Recorder recorder("g", 0, 1, &describe_number);
    recorder.complete(recorder.begin_brief({.sequence = 1, .fingerprint = 7}));
    const Ticket ticket = recorder.begin_brief({.sequence = 2, .fingerprint = 7});
    recorder.prolong(ticket);
    Entry entry = recorder.snapshot("test").entries.at(1);
    EXPECT_EQ(entry.state, State::started);
    EXPECT_EQ(entry.started_ns, entry.enqueued_ns);
    recorder.end(ticket, State::failed);
    recorder.complete(recorder.begin_brief({.sequence = 3, .fingerprint = 7}));
    const Dump dump = recorder.snapshot("test");
    EXPECT_EQ(dump.entries.at(0).state, State::completed);
    EXPECT_EQ(dump.entries.at(1).state, State::failed);
    EXPECT_GE(dump.entries.at(1).ended_ns, dump.entries.at(1).started_ns);
    EXPECT_EQ(dump.entries.at(2).state, State::completed);
    EXPECT_EQ(recorder.counters().completed, 2U);
    EXPECT_EQ(recorder.counters().failed, 1U);
}

TEST(Recorder, numbers_the_messages_that_go_one_way_between_two_ranks) {
    Recorder recorder("g", 0, 3, &describe_number);
    const auto message = [&](Kind kind, int peer) {
        return recorder.begin({.sequence = recorder.number_message(kind, peer), .peer = peer, .kind = kind},
                              State::started);
    };
    message(Kind::send, 1);
    message(Kind::receive, 1);
    message(Kind::send, 1);
    message(Kind::send, 2);
    const Ticket any = message(Kind::receive, -1);
    EXPECT_EQ(recorder.snapshot("test").entries.at(4).message, 0U);
    recorder.note_source(any, 1);
    std::vector<std::pair<int, std::uint64_t>> seen;
    for (const Entry& entry : decode(encode(recorder.snapshot("test")), "itself").entries) {
        EXPECT_EQ(entry.sequence, 0U);
        seen.emplace_back(entry.peer, entry.message);
    }
    EXPECT_EQ(seen, (std::vector<std::pair<int, std::uint64_t>>{{1, 1}, {1, 1}, {1, 2}, {2, 1}, {1, 2}}));
}

TEST(Recorder, keeps_what_each_rank_sends_and_for_whom_it_was_seen_to_wait) {
    Recorder recorder("g", 0, 3, &describe_number);
    recorder.set_world(5, 7);
    call(recorder, 1);
    const std::vector<std::uint64_t> sent{1, 2, 3}, received{4, 5, 6};
    recorder.note_splits(call(recorder, 2), sent, received);
    recorder.note_wait(2, 20ms);
    const Dump dump = decode(encode(recorder.snapshot("test")), "itself");
    EXPECT_EQ(dump.world, 5U);
    EXPECT_EQ(dump.home, 7U);
    EXPECT_EQ(dump.waits_for, std::vector{2});
    EXPECT_TRUE(dump.entries.at(0).sent.empty());
    EXPECT_EQ(dump.entries.at(1).sent, sent);
    EXPECT_EQ(dump.entries.at(1).received, received);
    const Ticket last = recorder.begin({.sequence = 3}, State::started);
    for (Ticket ticket = 1; ticket < last; ++ticket) recorder.end(ticket, State::completed);
    EXPECT_TRUE(recorder.snapshot("test").waits_for.empty());  // that was in an earlier one
    for (std::uint64_t i = 0; i < Recorder::capacity; ++i) call(recorder, 4 + i);
    for (const Entry& entry : recorder.snapshot("test").entries) EXPECT_TRUE(entry.sent.empty());
}

// A thread that is interrupted between two clocks reads them as of different moments.
TEST(Recorder, shows_a_wait_for_a_rank_just_after_the_operation_began_however_the_clocks_are_read) {
    Recorder recorder("g", 0, 3, &describe_number);
    for (std::uint64_t i = 1; i <= 20'000; ++i) {
        const Ticket ticket = call(recorder, i);
        recorder.note_wait(2, 1us);
        ASSERT_EQ(recorder.snapshot("test", 1).waits_for, std::vector{2}) << "operation " << i;
        recorder.end(ticket, State::completed);
    }
}

TEST(Recorder, ignores_the_end_of_an_operation_that_is_overwritten) {
    Recorder recorder("g", 0, 1, &describe_number);
    const Ticket old = call(recorder, 1);
    for (std::uint64_t i = 2; i <= Recorder::capacity + 1; ++i) call(recorder, i);
    recorder.end(old, State::failed);
    for (const Entry& entry : recorder.snapshot("test").entries) EXPECT_EQ(entry.state, State::started);
    EXPECT_EQ(recorder.counters().failed, 0U);
}

TEST(Recorder, can_be_read_while_it_is_written_and_never_shows_half_a_record) {
    Recorder recorder("g", 0, 1, &describe_number);
    std::atomic<bool> stop{false};
    std::thread writer([&] {
        for (std::uint64_t i = 1; !stop; ++i) recorder.end(call(recorder, i, i * 3), State::completed);
    });
    std::size_t seen = 0;
    for (int round = 0; round < 50 || seen == 0; ++round) {
        for (const Entry& entry : recorder.snapshot("test").entries) {
            ASSERT_EQ(entry.fingerprint, entry.sequence * 3);
            ASSERT_EQ(entry.number, entry.sequence);
            ++seen;
        }
    }
    stop = true;
    writer.join();
}

TEST(Recorder, dates_records_by_the_time_of_day) {
    Recorder recorder("g", 0, 1, &describe_number);
    const auto now = [] {
        return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
            .count();
    };
    std::this_thread::sleep_for(20ms);
    const std::int64_t before = now();
    call(recorder, 1);
    const std::int64_t after = now();
    std::this_thread::sleep_for(20ms);
    const Entry entry = recorder.snapshot("test").entries.at(0);
    EXPECT_GT(entry.enqueued_ns, before - 2'000'000);
    EXPECT_LT(entry.enqueued_ns, after + 2'000'000);
}

[[gnu::noinline]] std::string called_from_here(Recorder& recorder) {
    const CallSite site;
    const auto inner = [&] {
        const CallSite ignored;  // the outermost counts
        call(recorder, 1);
    };
    inner();
    return recorder.snapshot("test").entries.at(0).site;
}

TEST(CallSite, is_where_the_outermost_function_was_called) {
    Recorder recorder("g", 0, 1, &describe_number);
    const std::string place = called_from_here(recorder);
    EXPECT_NE(place.find("record_test"), std::string::npos) << place;
    EXPECT_NE(place.find("TestBody"), std::string::npos)
        << "a function that the dynamic linker does not know: " << place;
    EXPECT_EQ(current_call_site, nullptr);
    EXPECT_EQ(describe_call_site(nullptr), "");
}

TEST(Recorder, shows_messages_that_no_receive_has_met_until_they_are_gone) {
    Recorder recorder("g", 0, 2, &describe_number);
    recorder.note_unmatched({{.from = 1, .tag = 3, .fingerprint = 7}});
    const Dump dump = recorder.snapshot("test");
    ASSERT_EQ(dump.unmatched.size(), 1U);
    EXPECT_EQ(dump.unmatched[0].what, "operation 7");
    EXPECT_EQ(unmatched_in_words(dump), "a message with tag 3 from rank 1 is here");
    recorder.note_unmatched({});
    EXPECT_TRUE(recorder.snapshot("test").unmatched.empty());
}

TEST(Recorder, knows_where_its_group_was_made) {
    given_call_site = call_site_at("train.py:3 in main");
    std::optional<Recorder> recorder;
    [&] {
        const CallSite site;
        recorder.emplace("g", 0, 1, &describe_number);
    }();
    given_call_site = nullptr;
    EXPECT_EQ(recorder->snapshot("test").made_at, "train.py:3 in main");
}

TEST(CallSite, is_the_text_that_a_binding_gives) {
    Recorder recorder("g", 0, 1, &describe_number);
    given_call_site = call_site_at("train.py:12 in step");
    EXPECT_EQ(called_from_here(recorder), "train.py:12 in step");
    given_call_site = call_site_at(nullptr);
    Recorder another("h", 0, 1, &describe_number);
    EXPECT_NE(called_from_here(another).find("record_test"), std::string::npos);
    EXPECT_EQ(current_call_site, nullptr);
}

void hooked(const char* name, bool fails) {
    const PublicCall call(name);
    [] { const PublicCall inner("inner"); }();
    if (fails) throw std::runtime_error("x");
}

TEST(Hooks, are_called_around_the_outermost_call_as_long_as_they_are_wanted) {
    std::string seen;
    const auto hooks_named = [&seen](const std::string& name) {
        return Hooks{[&seen, name](std::string_view operation) { seen += fmt::format("{}<{} ", name, operation); },
                     [&seen, name](std::string_view operation, bool failed) {
                         seen += fmt::format("{}>{}{} ", name, operation, failed ? "!" : "");
                     }};
    };
    hooked("none", false);
    const auto a = add_hooks(hooks_named("a"));
    const auto b = add_hooks(hooks_named("b"));
    hooked("one", false);
    EXPECT_THROW(hooked("two", true), std::runtime_error);
    remove_hooks(a);
    hooked("three", false);
    remove_hooks(b);
    hooked("none", false);
    EXPECT_EQ(seen, "a<one b<one b>one a>one a<two b<two b>two! a>two! b<three b>three ");
    EXPECT_FALSE(hooks_wanted);
}

TEST(Counters, add_up_and_are_told_to_prometheus) {
    Recorder recorder("a \"b\"", 1, 3, &describe_number);
    recorder.end(call(recorder, 1, 7, 100), State::completed);
    recorder.end(call(recorder, 2, 7, 20), State::failed);
    recorder.note_wait(2, 1500ms);
    const Counters c = recorder.counters();
    EXPECT_EQ(c.issued, 2U);
    EXPECT_EQ(c.completed, 1U);
    EXPECT_EQ(c.failed, 1U);
    EXPECT_EQ(c.bytes, 120U);
    EXPECT_EQ(c.waited_s, (std::vector<double>{0, 0, 1.5}));
    const std::string text = prometheus_text();
    EXPECT_NE(text.find("# TYPE tutti_operations_issued_total counter\n"), std::string::npos) << text;
    EXPECT_NE(text.find("tutti_bytes_total{group=\"a \\\"b\\\"\",rank=\"1\"} 120\n"), std::string::npos) << text;
    EXPECT_NE(text.find("tutti_waited_seconds_total{group=\"a \\\"b\\\"\",rank=\"1\",peer=\"2\"} 1.5\n"),
              std::string::npos)
        << text;
}

// ---- dumps

TEST(Dumps, are_read_as_they_were_written) {
    Dump dump = dump_of(1, 3, {entry_of(41, State::completed), message_of(Kind::send, 2, State::started)});
    const std::string text = encode(dump);
    const Dump again = decode(text, "test");
    EXPECT_EQ(encode(again), text);
    EXPECT_EQ(again.world, dump.world);
    EXPECT_EQ(again.group, dump.group);
    EXPECT_EQ(again.reason, dump.reason);
    ASSERT_EQ(again.entries.size(), 2U);
    EXPECT_EQ(again.entries[0].title({}), "#41 operation 7");
    EXPECT_EQ(again.entries[1].title({}), "send of operation 7 to rank 2");
    EXPECT_EQ(again.entries[1].state, State::started);
    dump.entries[1].tag = 0;
    dump.made_at = "train.cpp:12 in main";
    dump.unmatched = {{.from = 2, .tag = 7, .what = "operation 7"}};
    const Dump more = decode(encode(dump), "test");
    EXPECT_EQ(more.entries[1].title({}), "send of operation 7 to rank 2 with tag 0");
    EXPECT_EQ(more.entries[0].tag, -1);
    EXPECT_EQ(more.made_at, dump.made_at);
    EXPECT_EQ(more.unmatched, dump.unmatched);
    dump.group = "\xff broken \x01";
    EXPECT_NO_THROW((void)decode(encode(dump), "test")) << "a name that is no text";
}

TEST(Dumps, that_are_none_are_refused_by_name_and_line) {
    const std::string good = encode(dump_of(0, 2, {entry_of(1, State::completed)}));
    const std::string head = good.substr(0, good.find('\n') + 1);
    const std::pair<std::string, const char*> cases[] = {
        {"", "not a dump"},
        {"{}", "not a dump"},
        {"hello\n", "line 1: expected a JSON object"},
        {R"({"tutti_dump":99})", "version 99: expected 1"},
        {R"({"tutti_dump":1,"world":"1","rank":5,"size":2})", "rank: expected an integer from 0 to 1"},
        {R"({"tutti_dump":1,"world":"1","size":1000000000})", "size: expected"},
        {R"({"tutti_dump":1,"world":"1","taken_ns":18446744073709551615})", "taken_ns: expected"},
        {R"({"tutti_dump":1,"world":"1","taken_ns":-1})", "taken_ns: expected"},
        {R"({"tutti_dump":1,"group":7})", "group: expected a string"},
        {R"({"tutti_dump":1,"world":"1","unmatched":[7]})", "unmatched: expected at most 16 objects"},
        {R"({"tutti_dump":1,"world":"1","unmatched":[{"from":1}]})", "from: expected an integer from 0 to 0"},
        {head + R"({"number":1,"fingerprint":"7","kind":"send","state":"started","tag":-2})",
         "tag: expected an integer"},
        {R"({"tutti_dump":1,"world":"xyz"})", "world: expected hexadecimal"},
        {head + "[" + std::string(60000, '['), "line 2: expected a JSON object"},
        {head + std::string(100000, ' '), "line 2: longer than"},
        {head + R"({"what":"x"})", "line 2"},
        {head + R"({"fingerprint":"1","kind":"dance","state":"started"})", "kind: \"dance\" is unknown"},
        {head + R"({"fingerprint":"1","kind":"send","state":"started","peer":2})",
         "peer: expected an integer from -1 to 1"},
    };
    for (const auto& [text, complaint] : cases) {
        try {
            (void)decode(text, "file.dump");
            ADD_FAILURE() << complaint;
        } catch (const InvalidArgument& error) {
            EXPECT_NE(std::string(error.what()).find(complaint), std::string::npos) << error.what();
            EXPECT_TRUE(std::string(error.what()).starts_with("file.dump, line ")) << error.what();
        }
    }
    EXPECT_THROW((void)read_dump("/dev/zero"), InvalidArgument);
    EXPECT_THROW((void)read_dump("/nowhere/at.all"), InvalidArgument);
}

TEST(Dumps, with_control_characters_cannot_steer_a_terminal) {
    Dump dump = dump_of(0, 1, {entry_of(1, State::started)});
    dump.host = "\x1b[31mred";
    EXPECT_EQ(decode(encode(dump), "test").host, "\\x1b[31mred");
    dump.group = "a\nrank 0 (host, pid 1): forged\xc2\x9b";
    EXPECT_EQ(decode(encode(dump), "test").group, "a\\nrank 0 (host, pid 1): forged\\xc2\\x9b");
}

TEST(Dumps, that_were_damaged_are_read_or_refused_and_nothing_else) {
    std::mt19937 random(4711);
    std::vector<Dump> good;
    for (int rank = 0; rank < 3; ++rank) {
        good.push_back(dump_of(rank, 3,
                               {entry_of(1, State::completed), entry_of(2, State::failed, 3000, 4000 + rank),
                                message_of(Kind::receive, (rank + 1) % 3, State::started)}));
    }
#ifdef __SANITIZE_ADDRESS__  // five times as slow
    constexpr int rounds = 4'000, read_at_least = 200;
#else
    constexpr int rounds = 20'000, read_at_least = 1'000;
#endif
    int read = 0;
    for (int round = 0; round < rounds; ++round) {
        std::vector<Dump> dumps{good[0]};
        std::string text = encode(good[static_cast<std::size_t>(round % 3)]);
        for (std::uint_fast32_t changes = 1 + random() % 3; changes > 0; --changes) {
            const std::size_t at = random() % text.size();
            switch (random() % 4) {
                case 0: text[at] = static_cast<char>(random()); break;
                case 1: text[at] = "0123456789-"[random() % 11]; break;
                case 2: text.insert(at, text.substr(random() % text.size(), random() % 40)); break;
                default: text.erase(at, random() % 20); break;
            }
            if (text.empty()) text.push_back('x');
        }
        try {
            dumps.push_back(decode(text, "damaged"));
            const auto worlds = merge(dumps);
            for (const WorldTimeline& world : worlds) EXPECT_FALSE(describe(world).empty());
            EXPECT_FALSE(chrome_trace(worlds).empty());
            ++read;
        } catch (const InvalidArgument&) {
        }
    }
    EXPECT_GT(read, read_at_least) << "the damage was too great to show anything";
}

TEST(Dumps, of_all_groups_go_to_a_folder_that_is_made) {
    Recorder first("one/../x", 0, 2, &describe_number), second("two", 1, 2, &describe_number);
    call(first, 1);
    const auto folder = std::filesystem::path(testing::TempDir()) / fmt::format("record_test_{}", ::getpid()) / "deep";
    const auto files = dump_all(folder, "why not");
    ASSERT_EQ(files.size(), 2U);
    EXPECT_EQ(files[0].parent_path(), folder);
    const Dump dump = read_dump(files[0]);
    EXPECT_EQ(dump.group, "one/../x");
    EXPECT_EQ(dump.reason, "why not");
    EXPECT_EQ(dump.entries.size(), 1U);
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 2) << "no temporary files stay";
    std::filesystem::remove_all(folder.parent_path());
    EXPECT_THROW((void)dump_all("/proc/nowhere", "x"), InvalidArgument);
}

TEST(Ranks, are_listed_in_short) {
    EXPECT_EQ(Members().list_of({3}), "rank 3");
    EXPECT_EQ(Members().list_of({0, 1}), "ranks 0, 1");
    EXPECT_EQ(Members().list_of({0, 2, 3, 4, 5, 7}), "ranks 0, 2-5, 7");
}

}  // namespace
}  // namespace tutti::record
