// Ranks that get no (more) threads: an error that says so, or they do without; never the end of the process.
#include "core/thread.hpp"
#include "faults/job.hpp"
#include "faults/leftovers.hpp"

#include <sys/resource.h>

#include <cstdlib>

namespace tutti::test {
namespace {

class Threads : public LeftoverCheck {};

struct Ends {
    int good = 0, without_thread = 0;
};

// Joins, and calls what needs threads of the library's. No rank may end by a signal.
Ends ends_of(int ranks, const std::function<std::shared_ptr<void>(const RankProcess&)>& limit) {
    Job job(ranks, [&](const RankProcess& me) {
        ::setenv("TUTTI_TUNE", "nocache", 1);
        const auto limited = limit(me);
        me.report_end_of([&] {
            const ProcessGroup g = me.join(TransportKind::automatic, 3s);
            std::vector<int> x{1};
            all_reduce(x, {.group = g});
            async::all_reduce(x, {.group = g}).wait();
            bool told = false;
            const Future next = async::all_reduce(x, {.group = g}).get_future().then([&](const auto& reduced) {
                (void)reduced.value();  // a rank without threads may be gone before it has said goodbye
                told = true;
            });
            next.wait();
            if (x[0] != me.size() * me.size() * me.size() || !told) throw std::runtime_error("a wrong result");
        });
    });
    Ends ends;
    const auto reports = job.collect(ranks, 30s);
    EXPECT_EQ(static_cast<int>(reports.size()), ranks);
    for (const Report& report : reports) {
        EXPECT_NE(report.code, -1) << report.text;
        const std::string_view text = report.text;
        ends.good += report.code == 0;
        const bool without = text.find("no thread to be had") != std::string_view::npos;
        ends.without_thread += without;
        EXPECT_TRUE(!without || text.find("ulimit -u") != std::string_view::npos) << text;
    }
    for (int rank = 0; rank < ranks; ++rank) EXPECT_TRUE(WIFEXITED(job.wait(rank))) << "rank " << rank;
    return ends;
}

TEST_F(Threads, that_one_rank_cannot_have_end_no_process) {
    Ends all;
    for (int threads = 0; threads <= 5; ++threads) {
        SCOPED_TRACE(threads);
        const Ends ends = ends_of(2, [=](const RankProcess& me) -> std::shared_ptr<void> {
            return me.rank() == 1 ? std::make_shared<thread::Scarcity>(threads) : nullptr;
        });
        all.good += ends.good;
        all.without_thread += ends.without_thread;
    }
    EXPECT_GE(all.without_thread, 1);
    EXPECT_GE(all.good, 4) << "most of them are no more than a help";
}

TEST_F(Threads, that_the_first_rank_cannot_have_for_measuring_are_done_without) {
    for (int threads = 1; threads <= 3; ++threads) {
        SCOPED_TRACE(threads);
        ends_of(2, [=](const RankProcess& me) -> std::shared_ptr<void> {
            return me.rank() == 0 ? std::make_shared<thread::Scarcity>(threads) : nullptr;
        });
    }
}

TEST_F(Threads, that_the_system_refuses_end_no_process) {
    if (::geteuid() != 0) GTEST_SKIP() << "only root can become a user who has no other processes";
    Ends scarce;
    for (const rlim_t processes : {3, 4, 5, 6, 8, 10}) {
        SCOPED_TRACE(processes);
        const Ends ends = ends_of(3, [=](const RankProcess&) -> std::shared_ptr<void> {
            const rlimit limit{processes, processes};
            if (::setresuid(61234, 61234, 61234) != 0 || ::setrlimit(RLIMIT_NPROC, &limit) != 0) ::_exit(9);
            ::prctl(PR_SET_DUMPABLE, 1);
            return nullptr;
        });
        scarce.without_thread += ends.without_thread;
    }
    EXPECT_GE(scarce.without_thread, 1);
}

}  // namespace
}  // namespace tutti::test
