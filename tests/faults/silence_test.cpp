// Ranks that are stopped: whoever is left says the same about the same rank, on whichever side of it in the tree of
// lifelines; and what happens meanwhile is known on all sides.
#include "faults/job.hpp"
#include "faults/leftovers.hpp"
#include "support/covers.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>

namespace tutti::test {
namespace {

class Silence : public LeftoverCheck, public ::testing::WithParamInterface<TransportKind> {};
INSTANTIATE_TEST_SUITE_P(Over, Silence, ::testing::Values(TransportKind::shm, TransportKind::tcp),
                         [](const auto& instance) { return to_string(instance.param); });

void expect_one_verdict(const std::vector<Report>& reports, std::size_t count, ErrorCode code, int culprit,
                        const std::vector<std::string>& parts) {
    EXPECT_EQ(reports.size(), count) << "every survivor raises";
    for (const Report& r : reports) {
        EXPECT_EQ(r.code, static_cast<int>(code)) << "rank " << r.rank << ": " << r.text;
        EXPECT_EQ(r.peer, culprit) << "rank " << r.rank << ": " << r.text;
        EXPECT_STREQ(r.text, reports.front().text) << "rank " << r.rank;
        for (const std::string& part : parts) EXPECT_NE(std::string(r.text).find(part), std::string::npos) << r.text;
    }
}

// Some call it long before the others, as ranks do.
void call_late(const RankProcess& me, const ProcessGroup& g, const std::set<int>& early) {
    std::vector<float> x(1000);
    if (!early.contains(me.rank())) std::this_thread::sleep_for(500ms);
    me.report_end_of([&] { all_reduce(x, {.group = g}); });
}

// 0 ─ 1, 2, 4;  2 ─ 3;  4 ─ 5, 6;  6 ─ 7
TEST_P(Silence, of_any_rank_is_what_all_others_say_whoever_notices_first) {
    covers("S1-016", "S17-002");
    struct Case {
        int size;
        std::set<int> stopped, early;
    };
    for (const Case& c :
         {Case{4, {2}, {3}}, Case{4, {0}, {1}}, Case{8, {4}, {7}}, Case{8, {6}, {0, 1, 2}}, Case{8, {0}, {5, 6}},
          Case{8, {4, 6}, {7}}, Case{8, {0, 2, 6}, {3, 7, 1}}, Case{3, {2}, {}}}) {
        Job job(c.size, [&c](const RankProcess& me) {
            const ProcessGroup g = me.join(GetParam(), 1s);
            std::vector<float> x(1000);
            all_reduce(x, {.group = g});
            me.report("running");
            if (c.stopped.contains(me.rank())) ::raise(SIGSTOP);
            call_late(me, g, c.early);
        });
        ASSERT_EQ(job.collect(c.size).size(), static_cast<std::size_t>(c.size));
        const auto start = SteadyClock::now();
        const std::size_t survivors = static_cast<std::size_t>(c.size) - c.stopped.size();
        const auto reports = job.collect(static_cast<int>(survivors), 10s);
        expect_one_verdict(reports, survivors, ErrorCode::timeout, *c.stopped.begin(),
                           {"gave no answer: it is stopped, or cut off", "called #2 all_reduce"});
        for (const Report& r : reports) EXPECT_LT(r.at - start, 4s) << "rank " << r.rank;
        for (int rank = 0; rank < c.size; ++rank) {
            if (!c.stopped.contains(rank)) {
                EXPECT_EQ(job.wait(rank), 0) << rank;
            }
        }
    }
}

// Nobody can read what the others were doing then.
TEST_P(Silence, of_the_rank_that_serves_the_store_is_what_all_others_say) {
    for (const int size : {3, 6}) {
        Job job(size, [size](const RankProcess& me) {
            Store meeting = me.store(), store;
            if (me.rank() == 0) {
                const TCPStore served({.is_master = true});
                meeting.set("port", std::to_string(served.port()));
                store = served;
            } else {
                store = TCPStore({.port = static_cast<std::uint16_t>(std::stoi(meeting.get("port")))});
            }
            const ProcessGroup g(
                {.store = store, .rank = me.rank(), .world_size = size, .timeout = 1s, .transport = GetParam()});
            std::vector<float> x(1000);
            all_reduce(x, {.group = g});
            me.report("running");
            if (me.rank() == 0) ::raise(SIGSTOP);
            call_late(me, g, {1});
        });
        ASSERT_EQ(job.collect(size).size(), static_cast<std::size_t>(size));
        expect_one_verdict(job.collect(size - 1, 12s), static_cast<std::size_t>(size) - 1, ErrorCode::timeout, 0,
                           {"rank 0: gave no answer: it is stopped, or cut off"});
    }
}

TEST_P(Silence, hides_no_death_from_those_behind_it) {
    for (const int victim : {1, 7}) {
        Job job(8, [victim](const RankProcess& me) {
            const ProcessGroup g = me.join(GetParam(), 20s);
            std::vector<float> x(1000);
            all_reduce(x, {.group = g});
            me.report("running");
            if (me.rank() == 4 || me.rank() == 2) ::raise(SIGSTOP);
            if (me.rank() == victim) std::this_thread::sleep_for(30s);
            me.report_end_of([&] { all_reduce(x, {.group = g}); });
        });
        ASSERT_EQ(job.collect(8).size(), 8U);
        std::this_thread::sleep_for(200ms);
        const auto died = job.signal(victim, SIGKILL);
        const auto reports = job.collect(5, 10s);
        EXPECT_EQ(reports.size(), 5U);
        for (const Report& r : reports) {
            EXPECT_EQ(r.code, static_cast<int>(ErrorCode::peer_lost)) << "rank " << r.rank << ": " << r.text;
            EXPECT_EQ(r.peer, victim) << "rank " << r.rank << ": " << r.text;
            EXPECT_LT(r.at - died, 2s) << "rank " << r.rank;
        }
    }
}

TEST_P(Silence, hides_no_disagreement_from_those_behind_it) {
    Job job(8, [](const RankProcess& me) {
        const ProcessGroup g = me.join(GetParam(), 20s);
        std::vector<float> x(1000);
        all_reduce(x, {.group = g});
        me.report("running");
        if (me.rank() == 4) ::raise(SIGSTOP);
        std::this_thread::sleep_for(100ms);
        me.report_end_of([&] {
            if (me.rank() == 1)
                broadcast(x, {.src = 1, .group = g});
            else
                all_reduce(x, {.group = g});
            barrier({.group = g});
        });
    });
    ASSERT_EQ(job.collect(8).size(), 8U);
    const auto reports = job.collect(7, 10s);
    ASSERT_EQ(reports.size(), 7U);
    // Rank 1, which only sends, may be through with its broadcast: then it is its barrier that hears of it.
    const auto judgement = [](const Report& r) {
        constexpr std::string_view before = " cannot start: ";
        const std::string text = r.text;
        const std::size_t at = text.find(before);
        return at == std::string::npos ? text : text.substr(at + before.size());
    };
    for (const Report& r : reports) {
        EXPECT_EQ(r.code, static_cast<int>(ErrorCode::collective_mismatch)) << r.text;
        EXPECT_EQ(judgement(r), judgement(reports.front())) << "rank " << r.rank;
        EXPECT_NE(std::string(r.text).find("rank 1 called broadcast"), std::string::npos) << r.text;
        EXPECT_NE(std::string(r.text).find("rank 4: gave no answer"), std::string::npos) << r.text;
    }
}

// A rank that goes on after the others have given up learns of itself what they said.
TEST_P(Silence, is_what_the_silent_rank_hears_of_itself_when_it_goes_on) {
    Job job(4, [](const RankProcess& me) {
        const ProcessGroup g = me.join(GetParam(), 800ms);
        std::vector<float> x(1000);
        all_reduce(x, {.group = g});
        me.report("running");
        if (me.rank() == 2) ::raise(SIGSTOP);
        me.report_end_of([&] {
            all_reduce(x, {.group = g});  // all contributions are there already
            barrier({.group = g});
        });
        std::this_thread::sleep_for(3s);
    });
    ASSERT_EQ(job.collect(4).size(), 4U);
    auto reports = job.collect(3, 10s);
    job.signal(2, SIGCONT);
    if (const auto last = job.next(5s)) reports.push_back(*last);
    expect_one_verdict(reports, 4, ErrorCode::timeout, 2, {"rank 2: gave no answer"});
}

// Stopped for a while only: nothing has happened.
TEST_P(Silence, that_ends_in_time_is_no_failure) {
    Job job(4, [](const RankProcess& me) {
        const ProcessGroup g = me.join(GetParam(), 10s);
        std::vector<float> x(1000, 1);
        all_reduce(x, {.group = g});
        me.report("running");
        if (me.rank() == 2) ::raise(SIGSTOP);
        me.report_end_of([&] {
            for (int i = 0; i < 3; ++i) {
                std::fill(x.begin(), x.end(), 1.0F);
                all_reduce(x, {.group = g});
                if (x.front() != 4.0F) throw std::runtime_error("the sum is wrong");
            }
        });
        barrier({.group = g});
    });
    ASSERT_EQ(job.collect(4).size(), 4U);
    std::this_thread::sleep_for(1200ms);
    job.signal(2, SIGCONT);
    for (const Report& r : job.collect(4, 10s)) EXPECT_STREQ(r.text, "done") << "rank " << r.rank;
}

}  // namespace
}  // namespace tutti::test
