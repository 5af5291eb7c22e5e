// Windows whose ranks die, stop, leave or are interrupted while others wait for their signals or for their memory.
#include "faults/job.hpp"
#include "faults/leftovers.hpp"
#include "support/patience.hpp"

#include <tutti/interrupt.hpp>
#include <tutti/window.hpp>

#include <chrono>

namespace tutti::test {
namespace {

class WindowFaults : public LeftoverCheck, public ::testing::WithParamInterface<TransportKind> {};
INSTANTIATE_TEST_SUITE_P(Over, WindowFaults, ::testing::Values(TransportKind::shm, TransportKind::tcp),
                         [](const auto& instance) { return to_string(instance.param); });

bool says(const Report& report, const std::string& part) {
    return std::string(report.text).find(part) != std::string::npos;
}

TEST_P(WindowFaults, a_death_ends_the_waits_for_a_signal_and_all_later_calls) {
    Job job(3, [](const RankProcess& me) {
        const ProcessGroup g = me.join(GetParam());
        const Window window(float32, {1000}, {.group = g});
        for (int target = 0; target < 3; ++target) window.signal(target, 4, 2);
        window.wait_signal(4, 6);
        me.report("running");
        if (me.rank() == 1) std::this_thread::sleep_for(20s);
        me.report_end_of([&] { window.wait_signal(4, 7); });
        std::vector<float> values(1000);
        me.report_end_of([&] { window.put(values, 1); });
        me.report_end_of([&] { window.close(); });
    });
    ASSERT_EQ(job.collect(3).size(), 3U);
    std::this_thread::sleep_for(150ms);
    job.signal(1, SIGKILL);
    const auto reports = job.collect(6, 5s);
    ASSERT_EQ(reports.size(), 6U) << "every survivor raises, three times";
    int waits = 0;
    for (const Report& r : reports) {
        EXPECT_EQ(r.code, static_cast<int>(ErrorCode::peer_lost)) << r.text;
        EXPECT_EQ(r.peer, 1) << r.text;
        if (!says(r, "wait_signal")) continue;
        ++waits;
        const std::string subject =
            "(3 ranks), rank " + std::to_string(r.rank) + ": signal 4 is 6, expected at least 7";
        EXPECT_TRUE(says(r, subject)) << r.text;
    }
    EXPECT_EQ(waits, 2);
    for (const int rank : {0, 2}) EXPECT_EQ(job.wait(rank), 0) << "the destructors wait for nobody";
}

// Copies inside a host wait for nobody: they have to look for the news by themselves.
TEST_P(WindowFaults, calls_that_wait_for_nobody_notice_a_death) {
    Job job(3, [](const RankProcess& me) {
        const ProcessGroup g = me.join(GetParam());
        const Window window(float32, {1000}, {.group = g});
        barrier({.group = g});
        me.report("running");
        if (me.rank() == 1) std::this_thread::sleep_for(20s);
        std::vector<float> values(1000);
        me.report_end_of([&] {
            for (;;) {
                if (me.rank() == 0) window.put_signal(values, 1, {.signal = 1});
                if (me.rank() == 2) window.get(values, 1);
                (void)window.fetch_add(1.0F, 1);
                window.flush(1);
            }
        });
        me.report_end_of([&] { window.signal(2 - me.rank(), 3); });
        me.report_end_of([&] { (void)window.compare_and_swap(0.0F, 1.0F, 2 - me.rank()); });
    });
    ASSERT_EQ(job.collect(3).size(), 3U);
    std::this_thread::sleep_for(150ms);
    const auto begin = std::chrono::steady_clock::now();
    job.signal(1, SIGKILL);
    const auto reports = job.collect(6, 5s);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, patience(3s));
    ASSERT_EQ(reports.size(), 6U) << "both survivors raise, three times";
    for (const Report& r : reports) {
        EXPECT_EQ(r.code, static_cast<int>(ErrorCode::peer_lost)) << r.text;
        EXPECT_EQ(r.peer, 1) << r.text;
    }
    for (const int rank : {0, 2}) EXPECT_EQ(job.wait(rank), 0);
}

TEST_P(WindowFaults, an_abort_and_an_interrupt_end_a_wait) {
    Job job(2, [](const RankProcess& me) {
        const InterruptHandler handler;
        const ProcessGroup g = me.join(GetParam());
        const Window window(float32, {1}, {.group = g});
        me.report("running");
        if (me.rank() == 0) me.report_end_of([&] { window.wait_signal(0, 1); });
        if (me.rank() == 1) {
            window.wait_signal(1, 1);
            ProcessGroup(g).abort("enough");
        } else {
            window.signal(1, 1);
            me.report_end_of([&] { window.wait_signal(0, 1); });
        }
    });
    ASSERT_EQ(job.collect(2).size(), 2U);
    std::this_thread::sleep_for(150ms);
    job.signal(0, SIGINT);
    const auto reports = job.collect(2, 5s);
    ASSERT_EQ(reports.size(), 2U);
    EXPECT_EQ(reports[0].code, static_cast<int>(ErrorCode::interrupted)) << reports[0].text;
    EXPECT_EQ(reports[1].code, static_cast<int>(ErrorCode::aborted)) << reports[1].text;
    EXPECT_TRUE(says(reports[1], "enough")) << reports[1].text;
    EXPECT_TRUE(says(reports[1], "signal 0 is 0, expected at least 1")) << reports[1].text;
}

TEST_P(WindowFaults, a_rank_that_is_stopped_costs_no_more_than_the_time_limit) {
    Job job(2, [](const RankProcess& me) {
        const ProcessGroup g = me.join(GetParam());
        const Window window(float32, {500'000}, {.group = g});
        me.report("running");
        if (me.rank() == 1) std::this_thread::sleep_for(30s);
        std::this_thread::sleep_for(300ms);  // rank 1 is stopped by now
        std::vector<float> values(500'000, 1.0F);
        me.report_end_of([&] {
            window.put(values, 1, {.timeout = 1s});
            window.flush(1, 1s);
        });
    });
    ASSERT_EQ(job.collect(2).size(), 2U);
    job.signal(1, SIGSTOP);
    const auto reports = job.collect(1, 10s);
    job.signal(1, SIGCONT);
    ASSERT_EQ(reports.size(), 1U);
    // Memory that both map needs no help from the target.
    const int expected = GetParam() == TransportKind::shm ? 0 : static_cast<int>(ErrorCode::timeout);
    EXPECT_EQ(reports[0].code, expected) << reports[0].text;
}

TEST_P(WindowFaults, a_forked_child_is_refused_and_disturbs_nobody) {
    Job job(2, [](const RankProcess& me) {
        const ProcessGroup g = me.join(GetParam());
        Window window(float32, {10}, {.group = g});
        std::vector<float> values(10, 1.0F);
        const pid_t child = ::fork();
        if (child == 0) {
            int status = 1;
            try {
                window.put(values, 1 - me.rank());
            } catch (const InvalidArgument& error) {
                status = std::string(error.what()).find("fork") != std::string::npos ? 0 : 2;
            }
            window = {};
            ::_exit(status);
        }
        int status = -1;
        ::waitpid(child, &status, 0);
        window.put_signal(values, 1 - me.rank());
        window.wait_signal(0, 1);
        window.close();
        me.report("closed", status);
    });
    const auto reports = job.collect(2, 10s);
    ASSERT_EQ(reports.size(), 2U);
    for (const Report& r : reports) EXPECT_EQ(r.code, 0) << "the child of rank " << r.rank;
}

}  // namespace
}  // namespace tutti::test
