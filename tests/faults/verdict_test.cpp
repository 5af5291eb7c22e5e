// What the ranks say together when one never calls, is stopped, or calls something else; and the dumps that they leave.
#include "faults/job.hpp"
#include "faults/leftovers.hpp"
#include "record/timeline.hpp"
#include "support/covers.hpp"

#include <tutti/graph.hpp>

#include <algorithm>
#include <filesystem>

namespace tutti::test {
namespace {

namespace fs = std::filesystem;

class Verdicts : public LeftoverCheck, public ::testing::WithParamInterface<TransportKind> {
 protected:
    void SetUp() override {
        LeftoverCheck::SetUp();
        folder_ = fs::path(::testing::TempDir()) / ("faults-dumps-" + std::to_string(::getpid()));
        fs::remove_all(folder_);
        ::setenv("TUTTI_TRACE_DIR", folder_.c_str(), 1);
    }
    void TearDown() override {
        ::unsetenv("TUTTI_TRACE_DIR");
        fs::remove_all(folder_);
        LeftoverCheck::TearDown();
    }
    /// The world of the job, from what its ranks have left.
    record::WorldTimeline dumped() const {
        std::vector<record::Dump> dumps;
        std::error_code none;
        for (const auto& file : fs::directory_iterator(folder_, none)) {
            EXPECT_EQ(file.path().extension(), ".dump") << file.path();
            dumps.push_back(record::read_dump(file.path()));
        }
        auto worlds = record::merge(std::move(dumps));
        EXPECT_EQ(worlds.size(), 1U);
        return worlds.empty() ? record::WorldTimeline{} : worlds.front();
    }
    fs::path folder_;
};
INSTANTIATE_TEST_SUITE_P(Over, Verdicts, ::testing::Values(TransportKind::shm, TransportKind::tcp),
                         [](const auto& instance) { return to_string(instance.param); });

void expect_the_same(const std::vector<Report>& reports, std::size_t count, ErrorCode code,
                     const std::vector<std::string>& parts) {
    ASSERT_EQ(reports.size(), count);
    for (const Report& r : reports) {
        EXPECT_EQ(r.code, static_cast<int>(code)) << "rank " << r.rank << ": " << r.text;
        EXPECT_STREQ(r.text, reports.front().text) << "rank " << r.rank;
        EXPECT_EQ(r.peer, reports.front().peer) << "rank " << r.rank;
        for (const std::string& part : parts) EXPECT_NE(std::string(r.text).find(part), std::string::npos) << r.text;
    }
}

bool waits(const record::WorldTimeline& world, int rank, int peer, const std::string& because) {
    return std::ranges::any_of(record::wait_for_graph(world), [&](const record::Wait& wait) {
        return wait.rank == rank && std::ranges::find(wait.peers, peer) != wait.peers.end() &&
               wait.because.find(because) != std::string::npos;
    });
}

void expect_wait(const record::WorldTimeline& world, int rank, int peer, const std::string& because) {
    EXPECT_TRUE(waits(world, rank, peer, because)) << describe(world);
}

TEST_P(Verdicts, name_the_rank_that_never_calls_on_all_ranks_within_a_second_of_the_timeout) {
    covers("S17-002");
    for (const std::size_t count : {std::size_t{10}, std::size_t{1} << 20}) {
        fs::remove_all(folder_);
        SteadyClock::time_point called;
        {
            Job job(3, [count](const RankProcess& me) {
                const ProcessGroup g = me.join(GetParam(), 600ms);
                std::vector<float> x(count);
                for (int i = 0; i < 5; ++i) all_reduce(x, {.group = g});
                me.report("running");
                if (me.rank() == 2) std::this_thread::sleep_for(1500ms);  // computes, forgets, whatever
                me.report_end_of([&] { all_reduce(x, {.group = g}); });
                std::this_thread::sleep_for(50ms);
            });
            ASSERT_EQ(job.collect(3).size(), 3U);
            called = SteadyClock::now();
            const auto reports = job.collect(3, 5s);
            expect_the_same(
                reports, 3, ErrorCode::timeout,
                {"all_reduce #6 in group \"world\" (3 ranks): timed out", "ranks 0, 1: called #6 all_reduce of float32",
                 ", called at ", "rank 2: has not called it: its last operation was #5 all_reduce of float32"});
            EXPECT_EQ(reports.front().peer, 2);
            for (const Report& r : reports) {
                if (r.rank != 2) {
                    EXPECT_LT(r.at - called, 1600ms) << r.text;
                }
            }
        }
        const record::WorldTimeline world = dumped();
        ASSERT_EQ(world.ranks.size(), 3U);
        expect_wait(world, 0, 2, "it has not called it");
        expect_wait(world, 1, 2, "it has not called it");
    }
}

TEST_P(Verdicts, show_the_node_at_which_a_replay_of_a_graph_hangs) {
    {
        Job job(2, [](const RankProcess& me) {
            const ProcessGroup g = me.join(GetParam(), 600ms);
            std::vector<float> x(10);
            bool hangs = false;
            graph::Executable step(graph::capture([&] {
                all_reduce(x, {.group = g});
                graph::compute({x}, {}, [&] { std::this_thread::sleep_for(hangs ? 1500ms : 0ms); }, {.name = "look"});
                all_reduce(x, {.group = g});
            }));
            for (int i = 0; i < 3; ++i) step.replay();
            hangs = me.rank() == 1;
            me.report_end_of([&] { step.replay(); });
            std::this_thread::sleep_for(50ms);
        });
        expect_the_same(job.collect(2, 5s), 2, ErrorCode::timeout,
                        {"all_reduce #8 in group \"world\" (2 ranks): timed out",
                         "rank 0: called #8 all_reduce of float32 × 10, sum, called at ",
                         "; it is in graph replay #4 at node 3 of 3: all_reduce of float32 × 10, sum (",
                         "rank 1: has not called it: its last operation was #7 all_reduce of float32 × 10, sum",
                         "; it is in graph replay #4 at node 2 of 3: compute step \"look\" (verdict_test.cpp:"});
    }
    const record::WorldTimeline world = dumped();
    ASSERT_EQ(world.ranks.size(), 2U);
    expect_wait(world, 0, 1, "it is in graph replay #4 at node 2 of 3: compute step \"look\" (verdict_test.cpp:");
    EXPECT_TRUE(describe(world).find("    graph replay #4 at node 2 of 3: compute") != std::string::npos)
        << describe(world);
}

TEST_P(Verdicts, name_a_rank_that_is_stopped_as_silent) {
    covers("S1-016");
    {
        Job job(3, [](const RankProcess& me) {
            const ProcessGroup g = me.join(GetParam(), 600ms);
            std::vector<float> x(1 << 20);
            all_reduce(x, {.group = g});
            me.report("running");
            if (me.rank() == 1) std::this_thread::sleep_for(10s);
            std::this_thread::sleep_for(200ms);
            me.report_end_of([&] { all_reduce(x, {.group = g}); });
        });
        ASSERT_EQ(job.collect(3).size(), 3U);
        const auto stopped = job.signal(1, SIGSTOP);
        const auto reports = job.collect(2, 5s);
        expect_the_same(reports, 2, ErrorCode::timeout, {"rank 1: gave no answer: it is stopped, or cut off"});
        for (const Report& r : reports) {
            EXPECT_LT(r.at - stopped, 1800ms);
            EXPECT_EQ(r.peer, 1);
        }
    }
    // In a ring rank 0 waits for rank 2, which waits for rank 1.
    const record::WorldTimeline world = dumped();
    EXPECT_TRUE(waits(world, 0, 1, "it left no dump") || waits(world, 2, 1, "it left no dump")) << describe(world);
}

TEST_P(Verdicts, show_the_calls_of_all_ranks_when_one_differs) {
    covers("A-34");
    {
        Job job(4, [](const RankProcess& me) {
            const ProcessGroup g = me.join(GetParam());
            std::vector<float> x(5000);
            me.report_end_of([&] {
                barrier({.group = g});  // in which the slowest may still be
                if (me.rank() == 2)
                    broadcast(x, {.src = 1, .group = g});
                else
                    all_reduce(x, {.group = g});
                barrier({.group = g});  // one that had nothing to wait for learns it now
            });
            std::this_thread::sleep_for(200ms);
        });
        const auto reports = job.collect(4, 5s);
        expect_the_same(reports, 4, ErrorCode::collective_mismatch,
                        {"operation #2", "rank 2: called #2 broadcast of float32 × 5000, root 1",
                         "called #2 all_reduce of float32 × 5000, sum"});
    }
    const record::WorldTimeline world = dumped();
    ASSERT_EQ(world.ranks.size(), 4U);
    for (const int rank : {0, 1, 3}) {
        ASSERT_TRUE(world.ranks[static_cast<std::size_t>(rank)]);
        EXPECT_NE(world.ranks[static_cast<std::size_t>(rank)]->reason.find("operation #2"), std::string::npos);
    }
}

TEST_P(Verdicts, of_a_message_that_never_comes_show_what_its_sender_does) {
    Job job(2, [](const RankProcess& me) {
        const ProcessGroup g = me.join(GetParam(), 500ms);
        std::vector<int> x(10);
        barrier({.group = g});
        if (me.rank() == 1) std::this_thread::sleep_for(1s);
        me.report_end_of([&] {
            if (me.rank() == 0) recv(x, {.src = 1, .group = g});
            barrier({.group = g});
        });
        std::this_thread::sleep_for(100ms);
    });
    expect_the_same(job.collect(2, 5s), 2, ErrorCode::timeout,
                    {"recv in group", "rank 0: it is in receive of int32 × 10 from rank 1 with tag 0 for",
                     "rank 1: its last operation was #1 barrier (completed"});
}

TEST_P(Verdicts, come_without_the_store_too) {
    Job job(2, [](const RankProcess& me) {
        const ProcessGroup g = me.join(GetParam(), 500ms);
        std::vector<float> x(10);
        barrier({.group = g});
        me.report("running");
        if (me.rank() == 1) std::this_thread::sleep_for(2s);
        me.report_end_of([&] { all_reduce(x, {.group = g}); });
        std::this_thread::sleep_for(50ms);
    });
    ASSERT_EQ(job.collect(2).size(), 2U);
    job.end_store();
    const auto begin = SteadyClock::now();
    const auto reports = job.collect(2, 5s);
    expect_the_same(reports, 2, ErrorCode::timeout, {"all_reduce #2", "rank 0 has nothing from rank 1"});
    EXPECT_EQ(reports.front().rank, 0);
    EXPECT_EQ(reports.front().peer, 1);
    EXPECT_LT(reports.front().at - begin, 1500ms);
    EXPECT_EQ(std::string(reports.front().text).find("called"), std::string::npos) << "there was a store";
}

TEST_P(Verdicts, are_not_needed_to_look_sigusr2_dumps_on_request) {
    {
        Job job(2, [](const RankProcess& me) {
            const ProcessGroup g = me.join(GetParam());
            std::vector<float> x(1 << 20);
            all_reduce(x, {.group = g});
            me.report("running");
            if (me.rank() == 0) all_reduce(x, {.group = g});
            me.store().backend()->wait(std::vector<std::string>{"go on"}, 20s);
            if (me.rank() == 1) all_reduce(x, {.group = g});
            me.report("done");
        });
        ASSERT_EQ(job.collect(2).size(), 2U);
        std::this_thread::sleep_for(100ms);
        for (const int rank : {0, 1}) job.signal(rank, SIGUSR2);
        for (int round = 0; round < 100; ++round) {
            std::error_code none;
            if (std::ranges::count_if(fs::directory_iterator(folder_, none),
                                      [](const auto& file) { return file.path().extension() == ".dump"; }) == 2)
                break;
            std::this_thread::sleep_for(50ms);
        }
        const record::WorldTimeline world = dumped();
        expect_wait(world, 0, 1, "it has not called it; its last was #1 all_reduce");
        for (const auto& dump : world.ranks) EXPECT_EQ(dump ? dump->reason : "", "asked for by SIGUSR2");
        job.store().set("go on", "1");
        for (const Report& r : job.collect(2)) EXPECT_STREQ(r.text, "done");
        for (const int rank : {0, 1}) EXPECT_EQ(job.wait(rank), 0);
    }
    for (const auto& dump : dumped().ranks)
        EXPECT_EQ(dump ? dump->reason : "", "group \"world\" was destroyed") << "one more at the end";
}

}  // namespace
}  // namespace tutti::test
