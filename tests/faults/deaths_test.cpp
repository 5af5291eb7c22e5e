// Ranks that die, leave or stop while others count on them.
#include "faults/job.hpp"
#include "faults/leftovers.hpp"
#include "support/covers.hpp"

namespace tutti::test {
namespace {

class Deaths : public LeftoverCheck, public ::testing::WithParamInterface<TransportKind> {};
INSTANTIATE_TEST_SUITE_P(Over, Deaths, ::testing::Values(TransportKind::shm, TransportKind::tcp),
                         [](const auto& instance) { return to_string(instance.param); });

void expect_lost(const std::vector<Report>& reports, std::size_t count, int victim, SteadyClock::time_point died,
                 std::chrono::milliseconds within = 2s) {
    EXPECT_EQ(reports.size(), count) << "every survivor raises";
    for (const Report& r : reports) {
        EXPECT_EQ(r.code, static_cast<int>(ErrorCode::peer_lost)) << "rank " << r.rank << ": " << r.text;
        EXPECT_EQ(r.peer, victim) << "rank " << r.rank << ": " << r.text;
        EXPECT_NE(std::string(r.text).find("rank " + std::to_string(victim)), std::string::npos) << r.text;
        EXPECT_LT(r.at - died, within) << "rank " << r.rank;
    }
}

TEST_P(Deaths, in_the_middle_of_a_large_all_reduce_are_named_by_all_within_two_seconds) {
    covers("S17-002", "S1-040");
    for (const int victim : {0, 1, 2}) {
        Job job(4, [](const RankProcess& me) {
            const ProcessGroup g = me.join(GetParam());
            std::vector<float> x(8 << 20);
            all_reduce(x, {.group = g});
            me.report("running");
            me.report_end_of([&] {
                for (;;) all_reduce(x, {.group = g});
            });
            me.report_end_of([&] { barrier({.group = g}); });  // unusable from now on, with the same cause
        });
        ASSERT_EQ(job.collect(4).size(), 4U);
        std::this_thread::sleep_for(77ms);
        const auto died = job.signal(victim, SIGKILL);
        expect_lost(job.collect(6, 5s), 6, victim, died);
        for (int rank = 0; rank < 4; ++rank) {
            const int status = job.wait(rank);
            EXPECT_TRUE(rank == victim ? WIFSIGNALED(status) : status == 0) << "rank " << rank << ": " << status;
        }
    }
}

TEST_P(Deaths, of_ranks_of_other_groups_are_told_to_a_receive_by_its_own_groups_name) {
    Job job(3, [](const RankProcess& me) {
        const ProcessGroup g = me.join(GetParam());
        const ProcessGroup pair = new_group({0, 1}, {.world = g});
        me.report("running");
        std::vector<float> x(3);
        if (me.rank() == 2) std::this_thread::sleep_for(20s);
        me.report_end_of([&] { irecv(x, {.src = 1 - me.rank(), .group = pair}).wait(); });
    });
    ASSERT_EQ(job.collect(3).size(), 3U);
    std::this_thread::sleep_for(100ms);
    const auto died = job.signal(2, SIGKILL);
    const auto reports = job.collect(2, 5s);
    expect_lost(reports, 2, 2, died);
    for (const Report& r : reports)
        EXPECT_EQ(std::string_view(r.text).find("recv in group \"group_1\" (2 ranks)"), 0U) << r.text;
}

TEST_P(Deaths, of_ranks_whose_memory_the_others_read_or_wait_for_are_named_too) {
    enum class While { combining, allocating };
    for (const While what : {While::combining, While::allocating}) {
        for (const int victim : {0, 2}) {
            Job job(3, [what](const RankProcess& me) {
                const ProcessGroup g = me.join(GetParam());
                const Tensor x = empty_symmetric(float32, {4 << 20}, {.group = g});
                all_reduce(x.view(), {.group = g});
                me.report("running");
                me.report_end_of([&] {
                    while (what == While::combining) all_reduce(x.view(), {.group = g});
                    for (;;) empty_symmetric(float32, {1000}, {.group = g});
                });
            });
            ASSERT_EQ(job.collect(3).size(), 3U);
            std::this_thread::sleep_for(31ms);
            const auto died = job.signal(victim, SIGKILL);
            expect_lost(job.collect(2, 5s), 2, victim, died);
            for (int rank = 0; rank < 3; ++rank) {
                const int status = job.wait(rank);
                EXPECT_TRUE(rank == victim ? WIFSIGNALED(status) : status == 0) << "rank " << rank << ": " << status;
            }
        }
    }
}

TEST_P(Deaths, of_one_rank_end_the_waits_for_another_and_those_of_asynchronous_operations) {
    Job job(3, [](const RankProcess& me) {
        const ProcessGroup g = me.join(GetParam());
        std::vector<float> x(100);
        barrier({.group = g});
        if (me.rank() == 2) {
            me.report("ready");
            std::this_thread::sleep_for(30s);
        }
        Work pending = irecv(x, {.src = 1 - me.rank(), .group = g});  // from a rank that lives
        me.report("ready");
        if (me.rank() == 1) {
            for (int i = 0; i < 400 && !pending.is_completed(); ++i)
                std::this_thread::sleep_for(10ms);  // nobody drives
        }
        me.report_end_of([&] { pending.wait(); });
    });
    ASSERT_EQ(job.collect(3).size(), 3U);
    std::this_thread::sleep_for(50ms);
    const auto died = job.signal(2, SIGKILL);
    expect_lost(job.collect(2, 5s), 2, 2, died);
}

TEST_P(Deaths, while_nobody_communicates_are_known_at_the_next_call) {
    Job job(3, [](const RankProcess& me) {
        const ProcessGroup g = me.join(GetParam());
        std::vector<float> x(1000);
        all_reduce(x, {.group = g});
        me.report("idle");
        std::this_thread::sleep_for(me.rank() == 1 ? 30s : 700ms);
        me.report_end_of([&] {
            for (int i = 0; i < 3; ++i) all_reduce(x, {.group = g});
        });
    });
    ASSERT_EQ(job.collect(3).size(), 3U);
    const auto died = job.signal(1, SIGKILL);
    expect_lost(job.collect(2, 5s), 2, 1, died);
}

TEST_P(Deaths, by_exit_without_leaving_are_deaths_too) {
    Job job(3, [](const RankProcess& me) {
        const ProcessGroup g = me.join(GetParam());
        std::vector<float> x(1000);
        if (me.rank() == 1) {
            all_reduce(x, {.group = g});
            me.report("bye");
            ::_exit(0);
        }
        me.report_end_of([&] {
            for (;;) all_reduce(x, {.group = g});
        });
    });
    const auto reports = job.collect(3, 5s);
    ASSERT_EQ(reports.size(), 3U);
    ASSERT_STREQ(reports[0].text, "bye");
    expect_lost({reports[1], reports[2]}, 2, 1, reports[0].at);
}

// News of a rank's death overtake the last of its data, where the others have not looked since.
TEST_P(Deaths, do_not_take_back_what_the_dead_had_sent) {
    struct LastCall {
        std::size_t count;
        void (*call)(const RankProcess& me, const ProcessGroup& g, std::vector<int>& x);
    };
    const auto message = [](const RankProcess& me, const ProcessGroup& g, std::vector<int>& x) {
        if (me.rank() == 1)
            send(x, 0, {.group = g});
        else
            recv(x, {.src = 1, .group = g});
    };
    const auto collective = [](const RankProcess& /*me*/, const ProcessGroup& g, std::vector<int>& x) {
        broadcast(x, {.src = 1, .group = g});
    };
    // 40 KB are copied before send() returns; the kernel may copy longer ones, which are no longer there then.
    std::vector<LastCall> last_calls{{2, message}, {10'000, message}, {2, collective}};
    if (GetParam() == TransportKind::tcp) last_calls.push_back({20'000, collective});  // its root waits for nobody
    for (const auto& [count, call] : last_calls) {
        Job job(2, [count, call](const RankProcess& me) {
            const ProcessGroup g = me.join(GetParam());
            std::vector<int> x(count, me.rank());
            barrier({.group = g});
            if (me.rank() == 1) {
                std::this_thread::sleep_for(300ms);  // the other is no longer in the barrier
                call(me, g, x);
                me.report("bye");
                ::_exit(0);
            }
            std::this_thread::sleep_for(1s);  // the news has come, and nobody has heard it
            me.report_end_of([&] {
                call(me, g, x);
                if (x != std::vector<int>(count, 1)) throw std::runtime_error("other values have come");
            });
            me.report_end_of([&] { barrier({.group = g}); });
        });
        const auto reports = job.collect(3, 5s);
        ASSERT_EQ(reports.size(), 3U);
        ASSERT_STREQ(reports[0].text, "bye");
        EXPECT_STREQ(reports[1].text, "done") << count << " elements";
        expect_lost({reports[2]}, 1, 1, reports[0].at);
    }
}

TEST_P(Deaths, are_told_to_ranks_that_keep_sending_to_each_other) {
    Job job(3, [](const RankProcess& me) {
        const ProcessGroup g = me.join(GetParam());
        std::vector<char> x(3 << 20);
        barrier({.group = g});
        me.report("running");
        if (me.rank() == 2) std::this_thread::sleep_for(20s);
        me.report_end_of([&] {
            for (;;) {
                std::vector<Work> works;
                for (int i = 0; i < 8; ++i) {
                    works.push_back(me.rank() == 0 ? isend(x, 1, {.group = g}) : irecv(x, {.src = 0, .group = g}));
                }
                for (Work& work : works) work.wait();
            }
        });
    });
    ASSERT_EQ(job.collect(3).size(), 3U);
    std::this_thread::sleep_for(100ms);
    const auto died = job.signal(2, SIGKILL);
    expect_lost(job.collect(2, 5s), 2, 2, died);
}

TEST_P(Deaths, are_not_what_a_rank_that_leaves_dies_of) {
    covers("S18-001", "S18-002");
    for (const std::size_t count : {1, 1000, 1'000'000}) {
        const auto start = std::chrono::steady_clock::now();
        Job job(3, [count](const RankProcess& me) {
            ProcessGroup g = me.join(GetParam());
            std::vector<float> x(count);
            all_reduce(x, {.group = g});
            if (me.rank() == 1) {
                g.destroy();
                me.report_end_of([&] { barrier({.group = g}); });
                std::this_thread::sleep_for(1s);  // its process lives on
                return;
            }
            // The others can go on without it...
            if (me.rank() == 0) send(x, 2, {.group = g});
            if (me.rank() == 2) recv(x, {.src = 0, .group = g});
            // ...until they need it.
            me.report_end_of([&] { all_reduce(x, {.group = g}); });
        });
        for (const Report& r : job.collect(3, 10s)) {
            if (r.rank == 1) {
                EXPECT_EQ(r.code, static_cast<int>(ErrorCode::aborted)) << r.text;
            } else {
                EXPECT_EQ(r.code, static_cast<int>(ErrorCode::peer_lost)) << r.text;
                EXPECT_NE(std::string(r.text).find("rank 1 has left"), std::string::npos) << r.text;
            }
        }
        EXPECT_LT(std::chrono::steady_clock::now() - start, 5s) << count << " elements";
        for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(job.wait(rank), 0) << rank;
    }
}

TEST_P(Deaths, do_not_explain_a_rank_that_is_stopped_but_its_timeout_names_it) {
    covers("S1-016", "S7-007");
    Job job(3, [](const RankProcess& me) {
        const ProcessGroup g = me.join(GetParam(), 700ms);
        std::vector<float> x(2 << 20);
        all_reduce(x, {.group = g});
        me.report("running");
        me.report_end_of([&] {
            for (;;) all_reduce(x, {.group = g});
        });
        if (me.rank() == 0) std::this_thread::sleep_for(200ms);
    });
    ASSERT_EQ(job.collect(3).size(), 3U);
    job.signal(1, SIGSTOP);
    const auto reports = job.collect(2, 6s);
    EXPECT_EQ(reports.size(), 2U);
    bool named = false;
    for (const Report& r : reports) {  // who gives up first; the other may be told that he has gone
        named |=
            r.code == static_cast<int>(ErrorCode::timeout) && std::string(r.text).find("rank 1") != std::string::npos;
        EXPECT_NE(r.code, 0) << r.text;
    }
    EXPECT_TRUE(named) << reports[0].text;
}

TEST_P(Deaths, of_ranks_in_the_middle_of_sending_leave_the_receiver_whole) {
    Job job(2, [](const RankProcess& me) {
        const ProcessGroup g = me.join(GetParam());
        std::vector<char> x(64 << 20, me.rank() == 0 ? 'x' : 'o');
        me.report("running");
        me.report_end_of([&] {
            for (;;) {
                if (me.rank() == 0)
                    send(x, 1, {.group = g});
                else
                    recv(x, {.group = g});
            }
        });
    });
    ASSERT_EQ(job.collect(2).size(), 2U);
    std::this_thread::sleep_for(120ms);
    const auto died = job.signal(0, SIGKILL);
    expect_lost(job.collect(1, 5s), 1, 0, died);
    EXPECT_EQ(job.wait(1), 0);
}

}  // namespace
}  // namespace tutti::test
