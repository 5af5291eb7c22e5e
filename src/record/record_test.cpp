// The ring, dumps, verdicts and timelines by themselves.
#include "record/keeper.hpp"
#include "record/public_call.hpp"
#include "record/recorder.hpp"
#include "record/replays.hpp"
#include "record/timeline.hpp"
#include "record/verdict.hpp"
#include "support/patience.hpp"

#include <tutti/error.hpp>
#include <tutti/store.hpp>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <atomic>
#include <chrono>
#include <random>
#include <stdexcept>
#include <thread>

namespace tutti::record {
namespace {

using namespace std::chrono_literals;

std::string describe_number(std::uint64_t fingerprint) {
    return fmt::format("operation {}", fingerprint);
}

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
              (std::vector<std::string>{"graph replay #3 at node 2 of 2: two ?[2J", step}));
    replay.end();
    EXPECT_EQ(mine.snapshot("").replays, std::vector{step});
    EXPECT_THROW(decode("{\"tutti_dump\":1,\"replays\":[1]}\n", "test"), InvalidArgument);
    EXPECT_THROW(decode("{\"tutti_dump\":1,\"replays\":\"x\"}\n", "test"), InvalidArgument);
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
    EXPECT_NE(called_from_here(recorder).find("record_test+0x"), std::string::npos);
    EXPECT_EQ(current_call_site, nullptr);
    EXPECT_EQ(describe_call_site(nullptr), "");
}

TEST(CallSite, is_the_text_that_a_binding_gives) {
    Recorder recorder("g", 0, 1, &describe_number);
    given_call_site = call_site_at("train.py:12 in step");
    EXPECT_EQ(called_from_here(recorder), "train.py:12 in step");
    given_call_site = call_site_at(nullptr);
    Recorder another("h", 0, 1, &describe_number);
    EXPECT_NE(called_from_here(another).find("record_test+0x"), std::string::npos);
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

Entry entry_of(std::uint64_t sequence, State state, std::int64_t begin = 1000, std::int64_t end = 2000,
               std::uint64_t fingerprint = 7) {
    Entry e;
    e.number = sequence;
    e.sequence = sequence;
    e.fingerprint = fingerprint;
    e.what = describe_number(fingerprint);
    e.state = state;
    e.enqueued_ns = e.started_ns = begin;
    e.ended_ns = e.open() ? 0 : end;
    e.site = "train+0x12";
    return e;
}

Entry message_of(Kind kind, int peer, State state, std::int64_t begin = 1000, std::int64_t end = 2000) {
    Entry e = entry_of(1, state, begin, end);
    e.sequence = 0;
    e.kind = kind;
    e.peer = peer;
    return e;
}

Dump dump_of(int rank, int size, std::vector<Entry> entries) {
    return {.group = "dp \u00e9",
            .world = 0xabcdef0123456789,
            .rank = rank,
            .size = size,
            .host = "node",
            .machine = "m",
            .process = 4711,
            .reason = "a\nb",
            .taken_ns = 5'000'000'000,
            .entries = std::move(entries)};
}

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
    EXPECT_EQ(decode(encode(dump), "test").host, "?[31mred");
}

TEST(Dumps, that_were_damaged_are_read_or_refused_and_nothing_else) {
    std::mt19937 random(4711);
    std::vector<Dump> good;
    for (int rank = 0; rank < 3; ++rank) {
        good.push_back(dump_of(rank, 3,
                               {entry_of(1, State::completed), entry_of(2, State::failed, 3000, 4000 + rank),
                                message_of(Kind::receive, (rank + 1) % 3, State::started)}));
    }
#ifdef __SANITIZE_THREAD__  // there are no threads in it
    constexpr int rounds = 2'000, read_at_least = 100;
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

// ---- verdicts

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

TEST(Verdicts, blame_nobody_who_lives_for_a_tail_that_is_missing) {
    const std::vector<std::optional<Dump>> tails{dump_of(0, 3, {entry_of(2, State::started)}), std::nullopt,
                                                 std::nullopt};
    const Judgement j = judge(waiting, tails, {.silent = {2}});
    EXPECT_NE(j.text.find("rank 1: lives, but could not say what it is doing"), std::string::npos) << j.text;
    EXPECT_NE(j.text.find("rank 2: gave no answer"), std::string::npos) << j.text;
    EXPECT_EQ(j.peer, 2);
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

TEST(Timelines, of_dumps_that_do_not_fit_together_are_refused) {
    EXPECT_THROW((void)merge({dump_of(0, 2, {}), dump_of(1, 3, {})}), InvalidArgument);
}

}  // namespace
}  // namespace tutti::record
