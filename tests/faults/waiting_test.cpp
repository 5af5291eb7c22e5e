// Waiting well: it costs next to nothing, Ctrl-C ends it, and operations go on while the caller computes.
#include "faults/job.hpp"
#include "faults/leftovers.hpp"
#include "support/covers.hpp"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <atomic>
#include <cstdlib>

namespace {

std::atomic<long> yields{0};

}  // namespace

// In place of the C library's: counts.
extern "C" int sched_yield() noexcept {
    ++yields;
    return static_cast<int>(::syscall(SYS_sched_yield));
}

namespace tutti::test {
namespace {

class Waiting : public LeftoverCheck, public ::testing::WithParamInterface<TransportKind> {};
INSTANTIATE_TEST_SUITE_P(Over, Waiting, ::testing::Values(TransportKind::shm, TransportKind::tcp),
                         [](const auto& instance) { return to_string(instance.param); });

double cpu_seconds() {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    const auto seconds = [](const timeval& t) {
        return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// The share of a core that a call takes while it waits for about a second.
template <class F>
void expect_cheap(const RankProcess& me, const char* what, F wait) {
    const double cpu = cpu_seconds();
    const auto start = SteadyClock::now();
    wait();
    const double wall = std::chrono::duration<double>(SteadyClock::now() - start).count();
    const double share = (cpu_seconds() - cpu) / wall;
    const bool cheap = share < 0.05 && wall > 0.8;
    me.report(
        std::string(what) + ": " + std::to_string(share * 100) + " % of a core for " + std::to_string(wall) + " s",
        cheap ? 0 : 1);
}

TEST_P(Waiting, a_second_in_any_call_burns_less_than_a_twentieth_of_a_core) {
    covers("S8-031", "S6-002", "S7-006");
    Job job(2, [](const RankProcess& me) {
        const ProcessGroup g = me.join(GetParam());
        std::vector<float> x(100'000);
        all_reduce(x, {.group = g});
        if (me.rank() == 1) {
            const auto late = [&](auto call) {
                std::this_thread::sleep_for(1s);
                call();
            };
            late([&] { barrier({.group = g}); });
            late([&] { all_reduce(x, {.group = g}); });
            late([&] { send(x, 0, {.group = g}); });
            late([&] { all_reduce(x, {.group = g}); });
            late([&] { barrier({.group = g}); });
            me.report("late");
            return;
        }
        expect_cheap(me, "barrier", [&] { barrier({.group = g}); });
        expect_cheap(me, "all_reduce", [&] { all_reduce(x, {.group = g}); });
        expect_cheap(me, "recv", [&] { recv(x, {.src = 1, .group = g}); });
        expect_cheap(me, "Work.wait", [&] { async::all_reduce(x, {.group = g}).wait(); });
        expect_cheap(me, "nobody waits", [&] {
            const Work gate = async::barrier({.group = g});
            while (!gate.is_completed()) std::this_thread::sleep_for(20ms);
        });
    });
    const auto reports = job.collect(6);
    EXPECT_EQ(reports.size(), 6U);
    for (const Report& r : reports) EXPECT_EQ(r.code, 0) << r.text;
}

TEST_P(Waiting, is_ended_by_ctrl_c_with_an_error_when_the_program_wants_one) {
    covers("S17-001");
    Job job(2, [](const RankProcess& me) {
        const ProcessGroup g = me.join(GetParam());
        std::vector<int> x(10);
        barrier({.group = g});
        if (me.rank() == 1) {  // dies of it, as programs do
            me.report("waiting");
            me.report_end_of([&] { recv(x, {.src = 0, .tag = 1, .group = g}); });
            return;
        }
        const InterruptHandler handler;
        Work pending = irecv(x, {.src = 1, .tag = 1, .group = g});
        me.report("waiting");
        me.report_end_of([&] { pending.wait(); });
        me.report(pending.is_completed() ? "completed" : "goes on");
        me.store().backend()->wait(std::vector<std::string>{"go on"}, 20s);
        me.report_end_of([&] { pending.wait(); });
    });
    ASSERT_EQ(job.collect(2).size(), 2U);
    std::this_thread::sleep_for(100ms);
    const auto sent = job.signal(0, SIGINT);
    const auto reports = job.collect(2, 5s);
    ASSERT_EQ(reports.size(), 2U);
    EXPECT_EQ(reports[0].code, static_cast<int>(ErrorCode::interrupted)) << reports[0].text;
    EXPECT_LT(reports[0].at - sent, 500ms);
    EXPECT_STREQ(reports[1].text, "goes on") << "a wait was interrupted, not the operation";
    job.signal(1, SIGINT);
    const int status = job.wait(1);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT) << status;
    job.store().set("go on", "1");
    const auto last = job.next();
    ASSERT_TRUE(last);
    EXPECT_EQ(last->code, static_cast<int>(ErrorCode::peer_lost)) << last->text;
    EXPECT_EQ(last->peer, 1);
}

// The buffer is the caller's again, and may be gone, so the operation must not go on; and the others must not wait for
// it.
TEST_P(Waiting, of_a_blocking_call_that_ctrl_c_ends_ends_the_call_on_all_ranks) {
    Job job(2, [](const RankProcess& me) {
        const ProcessGroup g = me.join(GetParam());
        auto x = std::make_unique<std::vector<int>>(10);
        barrier({.group = g});
        const InterruptHandler handler;
        me.report("waiting");
        me.report_end_of([&] { recv(*x, {.src = 1 - me.rank(), .tag = 1, .group = g}); });
        x.reset();
        me.report_end_of([&] { barrier({.group = g}); });
    });
    ASSERT_EQ(job.collect(2).size(), 2U);
    std::this_thread::sleep_for(100ms);
    job.signal(0, SIGINT);
    int interrupted = 0, aborted = 0;
    for (const Report& report : job.collect(4, 5s)) {
        interrupted += report.code == static_cast<int>(ErrorCode::interrupted);
        aborted += report.code == static_cast<int>(ErrorCode::aborted);
    }
    EXPECT_EQ(interrupted, 1);
    EXPECT_EQ(aborted, 3) << "the call of the other rank, and what both call next";
}

TEST_P(Waiting, is_not_needed_for_an_operation_to_go_on) {
    covers("S7-002", "S7-005");
    Job job(2, [](const RankProcess& me) {
        const ProcessGroup g = me.join(GetParam());
        std::vector<float> x(1 << 20, 1.0F);
        int finished = 0;
        double overlapped = 0;
        for (int round = 0; round < 5; ++round) {
            std::fill(x.begin(), x.end(), 1.0F);
            barrier({.group = g});
            const Work work = async::all_reduce(x, {.group = g});
            const auto until = SteadyClock::now() + 100ms;
            volatile double burn = 1;
            while (SteadyClock::now() < until) {
                for (int i = 0; i < 1000; ++i) burn = burn * 1.0000001;
            }
            finished += work.is_completed() ? 1 : 0;
            barrier({.group = g});
            overlapped += x[12345] == 2.0F ? 1 : 0;
        }
        me.report(std::to_string(finished) + " of 5 were complete after 100 ms of computing",
                  finished >= 1 && overlapped == 5 ? 0 : 1);  // all of them on a quiet machine; without progress none
    });
    for (const Report& r : job.collect(2)) EXPECT_EQ(r.code, 0) << "rank " << r.rank << ": " << r.text;
}

TEST_P(Waiting, with_TUTTI_WAIT_sleep_a_rank_that_waits_never_yields) {
    Job job(2, [](const RankProcess& me) {
        ::setenv("TUTTI_WAIT", "sleep", 1);
        const ProcessGroup g = me.join(GetParam());
        std::vector<float> x(1);
        all_reduce(x, {.group = g});
        const long before = yields;
        for (int i = 0; i < 50; ++i) {
            if (me.rank() == 1) std::this_thread::sleep_for(2ms);
            all_reduce(x, {.group = g});
            async::all_reduce(x, {.group = g}).wait();
        }
        const long more = yields - before;
        me.report(std::to_string(more) + " yields", more > 5 ? 1 : 0);
    });
    const auto reports = job.collect(2);
    EXPECT_EQ(reports.size(), 2U);
    for (const Report& r : reports) EXPECT_EQ(r.code, 0) << r.text;
}

// As many processes that compute, for as long as it lives.
class Computing {
 public:
    explicit Computing(int processes) {
        for (int i = 0; i < processes; ++i) {
            processes_.push_back(::fork());
            if (processes_.back() != 0) continue;
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (volatile unsigned steps = 0;;) steps = steps + 1;
        }
    }
    ~Computing() {
        for (const pid_t process : processes_) {
            ::kill(process, SIGKILL);
            ::waitpid(process, nullptr, 0);
        }
    }
    Computing(const Computing&) = delete;
    Computing& operator=(const Computing&) = delete;

 private:
    std::vector<pid_t> processes_;
};

// What 100 short collectives take, ms.
int time_of_a_hundred(const char* wait, TransportKind transport) {
    Job job(2, [=](const RankProcess& me) {
        ::setenv("TUTTI_WAIT", wait, 1);
        const ProcessGroup g = me.join(transport, 100s);
        std::vector<float> x(1);
        for (int i = 0; i < 20; ++i) all_reduce(x, {.group = g});
        const auto start = SteadyClock::now();
        for (int i = 0; i < 100; ++i) all_reduce(x, {.group = g});
        const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(SteadyClock::now() - start);
        me.report("done", static_cast<int>(took.count()));
    });
    const auto reports = job.collect(2);
    EXPECT_EQ(reports.size(), 2U);
    return reports.empty() ? -1 : reports.front().code;
}

TEST_P(Waiting, beside_processes_that_compute_a_rank_learns_that_yielding_loses_its_turn) {
    const Computing beside(4 * static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)));
    int yielding = 0, learning = 0;
    for (int turn = 0; turn < 3; ++turn) {
        yielding += time_of_a_hundred("yield", GetParam());
        learning += time_of_a_hundred("auto", GetParam());
    }
    RecordProperty("yielding_ms", yielding);
    RecordProperty("learning_ms", learning);
    EXPECT_LT(2 * learning, yielding);
}

}  // namespace
}  // namespace tutti::test
