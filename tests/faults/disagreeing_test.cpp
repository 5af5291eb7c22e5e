// Ranks that cannot come together: one fails, dies or contradicts the others while they join. All learn it at once.
#include "faults/job.hpp"
#include "faults/leftovers.hpp"
#include "support/covers.hpp"

#include <filesystem>
#include <map>
#include <thread>

namespace tutti::test {
namespace {

/// By which the ranks meet.
enum class Way { environment, store, file };

class Disagreeing : public LeftoverCheck, public ::testing::WithParamInterface<Way> {
 protected:
    static constexpr auto limit = 60s;  // nobody needs it
    const int port_ = TCPStore({.is_master = true}).port();
    const std::string file_ = ::testing::TempDir() + "tutti_disagreeing_" + std::to_string(::getpid());
    void TearDown() override {
        std::filesystem::remove(file_);
        LeftoverCheck::TearDown();
    }

    void join(const RankProcess& me, int rank, int size) const {
        switch (GetParam()) {
            case Way::environment:
                ::setenv("MASTER_ADDR", "127.0.0.1", 1);
                ::setenv("MASTER_PORT", std::to_string(port_).c_str(), 1);
                ::setenv("RANK", std::to_string(rank).c_str(), 1);
                ::setenv("WORLD_SIZE", std::to_string(size).c_str(), 1);
                init_process_group({.timeout = limit});
                break;
            case Way::store:
                init_process_group({.timeout = limit, .world_size = size, .rank = rank, .store = me.store()});
                break;
            case Way::file:
                init_process_group(
                    {.init_method = "file://" + file_, .timeout = limit, .world_size = size, .rank = rank});
        }
    }
    /// What each of `count` ranks threw, which they all do within 2 s (a second, on a machine that has nothing else to
    /// do) after the moment that `since` tells.
    std::map<int, Report> all_fail(Job& job, int count, SteadyClock::time_point since = SteadyClock::now()) const {
        std::map<int, Report> reports;
        for (const Report& r : job.collect(count, 10s)) {
            EXPECT_NE(r.code, 0) << "rank " << r.rank;
            EXPECT_LT(r.at - since, 3s) << "rank " << r.rank << ": " << r.text;
            reports[r.rank] = r;
        }
        EXPECT_EQ(static_cast<int>(reports.size()), count);
        return reports;
    }
    static void expect_text(const Report& report, const std::string& part) {
        EXPECT_NE(std::string(report.text).find(part), std::string::npos)
            << "rank " << report.rank << ": " << report.text;
    }
};

TEST_P(Disagreeing, about_the_world_size_all_ranks_say_who_says_what) {
    covers("S1-001");
    const std::vector<std::vector<int>> cases{{2, 3}, {3, 2}, {3, 4, 3}, {4, 3, 3}, {3, 3, 4}};
    for (const std::vector<int>& sizes : cases) {
        Job job(static_cast<int>(sizes.size()), [&](const RankProcess& me) {
            me.report_end_of([&] { join(me, me.rank(), sizes[static_cast<std::size_t>(me.rank())]); });
        });
        int wrong = 1;
        while (sizes[static_cast<std::size_t>(wrong)] == sizes[0]) ++wrong;
        for (const auto& [rank, report] : all_fail(job, static_cast<int>(sizes.size()))) {
            expect_text(report, "says " + std::to_string(sizes[static_cast<std::size_t>(wrong)]) +
                                    " ranks, rank 0 says " + std::to_string(sizes[0]));
        }
        std::filesystem::remove(file_);
    }
}

// A size by which a rank does not even exist: it could not join anything.
TEST_P(Disagreeing, a_rank_that_does_not_exist_by_its_own_world_size_tells_the_others) {
    Job job(3, [&](const RankProcess& me) {
        if (me.rank() == 2) std::this_thread::sleep_for(300ms);
        me.report_end_of([&] { join(me, me.rank(), me.rank() == 2 ? 2 : 3); });
    });
    const auto reports = all_fail(job, 3);
    expect_text(reports.at(2), "rank 2: expected 0 to 1");
    for (const int rank : {0, 1})
        expect_text(reports.at(rank), "rank 2 failed while joining: init_process_group: rank 2: expected 0 to 1");
}

TEST_P(Disagreeing, a_rank_that_throws_says_why_to_those_who_wait_for_it) {
    for (const int bad : {0, 1, 2}) {
        Job job(3, [&](const RankProcess& me) {
            if (me.rank() == bad) {
                std::this_thread::sleep_for(300ms);
                ::setenv("TUTTI_TRANSPORT", "rdma", 1);
            }
            me.report_end_of([&] { join(me, me.rank(), 3); });
        });
        for (const auto& [rank, report] : all_fail(job, 3)) {
            expect_text(report, "TUTTI_TRANSPORT=rdma");
            if (rank == bad) continue;
            expect_text(report, "rank " + std::to_string(bad) + " failed while joining");
            EXPECT_EQ(report.code, static_cast<int>(ErrorCode::peer_lost));
            EXPECT_EQ(report.peer, bad);
        }
        std::filesystem::remove(file_);
    }
}

// Rank 0 alone reads the table of TUTTI_TUNE, and does when all are on their way.
TEST_P(Disagreeing, rank_0_that_fails_after_it_has_reached_the_store_says_why) {
    Job job(3, [&](const RankProcess& me) {
        ::setenv("TUTTI_TUNE", "/no/such/table", 1);
        me.report_end_of([&] { join(me, me.rank(), 3); });
    });
    for (const auto& [rank, report] : all_fail(job, 3)) {
        expect_text(report, "/no/such/table");
        if (rank != 0) expect_text(report, "rank 0 failed while joining");
    }
}

TEST_P(Disagreeing, a_rank_that_is_killed_while_it_joins_is_named_at_once) {
    Job job(4, [&](const RankProcess& me) {
        if (me.rank() == 3) {  // it never comes, so that the others stay
            ::pause();
            return;
        }
        if (me.rank() == 2) {
            std::thread([&] {
                std::this_thread::sleep_for(700ms);
                me.report("dying", 1);
                ::raise(SIGKILL);
            }).detach();
        }
        me.report_end_of([&] { join(me, me.rank(), 4); });
    });
    const auto dying = job.next(10s);
    ASSERT_TRUE(dying);
    ASSERT_EQ(dying->rank, 2);
    for (const auto& [rank, report] : all_fail(job, 2, dying->at)) {
        expect_text(report, "rank 2 is gone: process ");
        EXPECT_EQ(report.code, static_cast<int>(ErrorCode::peer_lost)) << report.text;
        EXPECT_EQ(report.peer, 2);
    }
}

TEST_P(Disagreeing, ranks_may_try_again_after_a_failure) {
    Job job(3, [&](const RankProcess& me) {
        if (me.rank() == 1) ::setenv("TUTTI_TRANSPORT", "rdma", 1);
        if (me.rank() == 1 && GetParam() != Way::file) std::this_thread::sleep_for(200ms);
        me.report_end_of([&] { join(me, me.rank(), 3); });
        ::unsetenv("TUTTI_TRANSPORT");
        if (GetParam() == Way::file) return;  // "use a new one for each start"
        me.report_end_of([&] {
            join(me, me.rank(), 3);
            std::vector<int> x{1};
            all_reduce(x);
            if (x[0] != 3) throw std::runtime_error("a wrong sum");
            destroy_process_group();
        });
    });
    int good = 0;
    for (const Report& r : job.collect(GetParam() == Way::file ? 3 : 6, 15s)) good += r.code == 0 ? 1 : 0;
    EXPECT_EQ(good, GetParam() == Way::file ? 0 : 3);
}

std::string name_of(const ::testing::TestParamInfo<Way>& way) {
    constexpr const char* names[] = {"environment", "store", "file"};
    return names[static_cast<int>(way.param)];
}
INSTANTIATE_TEST_SUITE_P(By, Disagreeing, ::testing::Values(Way::environment, Way::store, Way::file), name_of);

}  // namespace
}  // namespace tutti::test
