// Survivors that go on without the dead, in the same processes.
#include "faults/job.hpp"
#include "faults/leftovers.hpp"
#include "faults/use.hpp"
#include "support/covers.hpp"

#include <algorithm>

namespace tutti::test {
namespace {

class Shrinking : public LeftoverCheck, public ::testing::WithParamInterface<TransportKind> {};
INSTANTIATE_TEST_SUITE_P(Over, Shrinking, ::testing::Values(TransportKind::shm, TransportKind::tcp),
                         [](const auto& instance) { return to_string(instance.param); });

// Runs until the group ends, and says "lost".
void run_until_lost(const RankProcess& me, const ProcessGroup& g, std::size_t count) {
    std::vector<float> x(count);
    try {
        for (;;) all_reduce(x, {.group = g});
    } catch (const PeerLost& error) {
        me.report("lost", 0, error.context().peer);
    }
}

std::string list_of(const ProcessGroup& g) {
    return g.name() + ": " + std::to_string(g.rank()) + " of " + std::to_string(g.size()) + ", " + g.description();
}

// Takes the next `count` reports with that text; the last one's moment.
SteadyClock::time_point expect_all(Job& job, int count, const std::string& text, int peer = -1) {
    SteadyClock::time_point last{};
    const auto reports = job.collect(count, 10s);
    EXPECT_EQ(reports.size(), static_cast<std::size_t>(count)) << text;
    for (const Report& r : reports) {
        EXPECT_EQ(r.code, 0) << r.text;
        EXPECT_EQ(std::string(r.text).substr(0, text.size()), text);
        if (peer >= 0) {
            EXPECT_EQ(r.peer, peer) << r.text;
        }
        last = std::max(last, r.at);
    }
    return last;
}

TEST_P(Shrinking, after_a_death_in_the_middle_of_an_all_reduce_takes_less_than_a_second) {
    for (const int victim : {0, 1, 2, 3}) {
        Job job(4, [](const RankProcess& me) {
            ProcessGroup g = me.join(GetParam());
            me.report("running");
            run_until_lost(me, g, 4 << 20);
            me.report_end_of([&] {
                ProcessGroup smaller = g.shrink();
                use(smaller);
                me.report(list_of(smaller));
                try {
                    barrier({.group = g});
                    me.report("the old group still works", -1);
                } catch (const PeerLost&) {
                    g.destroy();
                }
                g = smaller;
                use(g);
                g.destroy();
            });
        });
        expect_all(job, 4, "running");
        std::this_thread::sleep_for(43ms);
        job.signal(victim, SIGKILL);
        const auto lost = expect_all(job, 3, "lost", victim);
        SteadyClock::time_point done = lost;
        std::vector<std::string> names;
        int ended = 0;
        for (const Report& r : job.collect(6, 10s)) {
            EXPECT_EQ(r.code, 0) << r.text;
            if (std::string(r.text) == "done") {
                ++ended;
                continue;
            }
            done = std::max(done, r.at);
            names.emplace_back(r.text);
        }
        EXPECT_EQ(ended, 3);
        std::ranges::sort(names);
        std::string left;
        for (int r = 0; r < 4; ++r) {
            if (r != victim) left += (left.empty() ? "" : ", ") + std::to_string(r);
        }
        ASSERT_EQ(names.size(), 3U);
        for (int r = 0; r < 3; ++r) {
            EXPECT_EQ(names[static_cast<std::size_t>(r)],
                      "world.1: " + std::to_string(r) + " of 3, ranks " + left + " of \"world\"");
        }
        EXPECT_LT(done - lost, 1s) << "victim " << victim;
        for (int rank = 0; rank < 4; ++rank) {
            const int status = job.wait(rank);
            EXPECT_TRUE(rank == victim ? WIFSIGNALED(status) : status == 0) << rank;
        }
    }
}

// 2 is 3's only neighbour among the lifelines: nobody hears that 3 has died too.
TEST_P(Shrinking, after_two_deaths_at_once_also_of_a_rank_whose_death_nobody_hears_of) {
    for (const auto& [first, second] : {std::pair{2, 3}, std::pair{0, 1}}) {
        Job job(5, [](const RankProcess& me) {
            const ProcessGroup g = me.join(GetParam());
            me.report("running");
            run_until_lost(me, g, 1 << 20);
            me.report_end_of([&] {
                const ProcessGroup smaller = g.shrink();
                if (smaller.size() != 3) throw std::runtime_error(list_of(smaller));
                use(smaller);
            });
        });
        expect_all(job, 5, "running");
        std::this_thread::sleep_for(29ms);
        job.signal(second, SIGSTOP);  // it has no time to tell of the first one's death
        job.signal(first, SIGKILL);
        job.signal(second, SIGKILL);
        const auto lost = expect_all(job, 3, "lost");
        EXPECT_LT(expect_all(job, 3, "done") - lost, 1s) << first << " and " << second;
    }
}

TEST_P(Shrinking, can_be_done_again_after_another_death) {
    Job job(4, [](const RankProcess& me) {
        ProcessGroup g = me.join(GetParam());
        me.report("running");
        while (g.size() > 1) {
            run_until_lost(me, g, 100'000);
            me.report_end_of([&] {
                g = g.shrink();
                use(g);
            });
        }
        me.report(list_of(g));
    });
    expect_all(job, 4, "running");
    for (const int victim : {1, 0, 3}) {
        std::this_thread::sleep_for(20ms);
        job.signal(victim, SIGKILL);
        const int left = victim == 1 ? 3 : victim == 0 ? 2 : 1;
        const auto lost = expect_all(job, left, "lost");
        EXPECT_LT(expect_all(job, left, "done") - lost, 1s);
    }
    expect_all(job, 1, "world.3: 0 of 1");
}

TEST_P(Shrinking, waits_for_a_rank_that_lives_until_the_timeout_and_names_it) {
    Job job(4, [](const RankProcess& me) {
        const ProcessGroup g = me.join(GetParam());
        me.report("running");
        run_until_lost(me, g, 1000);
        if (me.rank() == 2) std::this_thread::sleep_for(1500ms);
        me.report_end_of([&] { (void)g.shrink({.timeout = 400ms}); });
        me.report_end_of([&] { use(g.shrink({.timeout = 8s})); });  // all of them once more
    });
    expect_all(job, 4, "running");
    job.signal(1, SIGKILL);
    expect_all(job, 3, "lost");
    int late = 0, well = 0;
    for (const Report& r : job.collect(6, 10s)) {
        if (r.code == 0) {
            ++well;
            continue;
        }
        ++late;
        EXPECT_EQ(r.code, static_cast<int>(ErrorCode::timeout)) << r.text;
        EXPECT_EQ(r.peer, 2) << r.text;
        EXPECT_NE(std::string(r.text).find("within 400 ms by rank 2"), std::string::npos) << r.text;
    }
    EXPECT_EQ(late, 3);
    EXPECT_EQ(well, 3);
}

TEST_P(Shrinking, with_patience_goes_on_without_ranks_that_do_not_come) {
    for (const int stopped : {0, 3}) {
        Job job(4, [stopped](const RankProcess& me) {
            const ProcessGroup g = me.join(GetParam());
            me.report("running");
            run_until_lost(me, g, 1000);
            if (me.rank() == stopped) std::this_thread::sleep_for(1s);
            me.report_end_of([&] {
                const ProcessGroup smaller = g.shrink({.timeout = 8s, .patience = 200ms});
                if (smaller.size() != 2) throw std::runtime_error(list_of(smaller));
                use(smaller);
                std::this_thread::sleep_for(1s);  // the late one is told while the store is there
            });
        });
        expect_all(job, 4, "running");
        job.signal(1, SIGKILL);
        const auto lost = expect_all(job, 3, "lost");
        for (const Report& r : job.collect(3, 10s)) {
            EXPECT_EQ(r.code, r.rank == stopped ? static_cast<int>(ErrorCode::peer_lost) : 0) << r.text;
            if (r.rank == stopped) {
                EXPECT_NE(std::string(r.text).find("go on without this rank"), std::string::npos) << r.text;
            } else {
                EXPECT_LT(r.at - lost, 2s + 500ms);
            }
        }
    }
}

TEST_P(Shrinking, of_a_part_makes_a_world_of_its_survivors) {
    Job job(6, [](const RankProcess& me) {
        const ProcessGroup g = me.join(GetParam());
        const ProcessGroup half = g.split({.color = me.rank() % 2, .group_desc = "half"});
        me.report("running");
        try {
            run_until_lost(me, half, 10'000);
        } catch (const DistError& error) {
            me.report(error.what(), -1);
        }
        me.report_end_of([&] {
            ProcessGroup smaller = half.shrink();
            if (smaller.size() != (me.rank() % 2 == 0 ? 2 : 3)) throw std::runtime_error(list_of(smaller));
            use(smaller);
            const ProcessGroup pair = smaller.split({.color = smaller.rank() < 2 ? 0 : 1});  // a whole world
            use(pair);
        });
    });
    expect_all(job, 6, "running");
    job.signal(2, SIGKILL);
    int done = 0;
    for (const Report& r : job.collect(10, 10s)) {  // one half may be done before the other has noticed
        EXPECT_EQ(r.code, 0) << r.text;
        done += std::string(r.text) == "done" ? 1 : 0;
    }
    EXPECT_EQ(done, 5);
}

TEST_P(Shrinking, says_so_when_the_store_died_with_a_rank) {
    Job job(3, [](const RankProcess& me) {
        std::optional<TCPStore> served;
        if (me.rank() == 0) {
            served.emplace(TCPStoreOptions{.is_master = true});
            Store(me.store()).set("port", std::to_string(served->port()));
        }
        const auto port = static_cast<std::uint16_t>(std::stoi(Store(me.store()).get("port")));
        const Store store = me.rank() == 0 ? Store(*served) : TCPStore({.port = port});
        const ProcessGroup g(
            {.store = store, .rank = me.rank(), .world_size = me.size(), .timeout = 20s, .transport = GetParam()});
        me.report("running");
        run_until_lost(me, g, 1000);
        me.report_end_of([&] { (void)g.shrink(); });
    });
    expect_all(job, 3, "running");
    const auto died = job.signal(0, SIGKILL);
    int raised = 0;
    for (const Report& r : job.collect(4, 10s)) {
        if (std::string(r.text) == "lost") continue;
        ++raised;
        EXPECT_EQ(r.code, static_cast<int>(ErrorCode::store)) << r.text;
        EXPECT_NE(std::string(r.text).find("is gone, as is rank 0"), std::string::npos) << r.text;
        EXPECT_NE(std::string(r.text).find("TCPStore("), std::string::npos) << r.text;
        EXPECT_LT(r.at - died, 3s);
    }
    EXPECT_EQ(raised, 2);
}

}  // namespace
}  // namespace tutti::test
