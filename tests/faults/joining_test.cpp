// Jobs that start wrongly: two on one port, two ranks with one number, a file that another job left.
#include "faults/job.hpp"
#include "faults/leftovers.hpp"
#include "support/covers.hpp"

#include <map>
#include <thread>

namespace tutti::test {
namespace {

class Joining : public LeftoverCheck {};

// Nobody who is not root may look into this process; root may into any.
void become_hidden(bool hide) {
    constexpr uid_t nobody = 65534;
    if (::geteuid() == 0 && ::setresuid(nobody, nobody, nobody) != 0) throw std::runtime_error("setresuid");
    ::prctl(PR_SET_DUMPABLE, hide ? 0 : 1);
}

void set_environment(int rank, int world_size, int port) {
    ::setenv("MASTER_ADDR", "127.0.0.1", 1);
    ::setenv("MASTER_PORT", std::to_string(port).c_str(), 1);
    ::setenv("RANK", std::to_string(rank).c_str(), 1);
    ::setenv("WORLD_SIZE", std::to_string(world_size).c_str(), 1);
}

// Members of one job say so through their own store; `numbers` are the ranks that the processes believe to have.
void run_job_beside_another(const RankProcess& me, int port, const char* second_secret) {
    const bool first = me.rank() < 2;
    if (!first) {
        me.store().backend()->wait(std::vector<std::string>{"first works"}, 20s);
        if (second_secret != nullptr) ::setenv("TUTTI_JOB_SECRET", second_secret, 1);
    }
    set_environment(me.rank() % 2, 2, port);
    if (!first) {
        me.report_end_of([&] { init_process_group({.timeout = 3s}); });
        return;
    }
    init_process_group({.timeout = 20s});
    std::vector<int> x{1};
    all_reduce(x);
    Store store = me.store();
    if (me.rank() == 0) store.set("first works", "1");
    me.report_end_of([&] {
        for (;;) {  // goes on while the second job fails
            x[0] = store.check({"stop"}) ? 1 : 0;
            all_reduce(x);
            if (x[0] == 2) break;
            std::this_thread::sleep_for(5ms);
        }
        destroy_process_group();
    });
}

TEST_F(Joining, a_second_job_on_the_same_port_gets_a_clear_error_and_the_first_goes_on) {
    covers("S1-001", "S1-032", "S1-040", "S17-003");
    for (const char* secret : {static_cast<const char*>(nullptr), "another job's secret"}) {
        const int port = TCPStore({.is_master = true}).port();
        Job job(4, [&](const RankProcess& me) { run_job_beside_another(me, port, secret); });
        std::map<int, Report> reports;
        for (const Report& r : job.collect(2, 10s)) reports[r.rank] = r;
        ASSERT_EQ(reports.size(), 2U);
        ASSERT_TRUE(reports.contains(2) && reports.contains(3)) << "the first job ended";
        const auto text = [&](int rank) { return std::string(reports[rank].text); };
        // Its rank 0 cannot listen; its rank 1 meets the first job, which has a rank 1, or another secret.
        EXPECT_EQ(reports[2].code, static_cast<int>(ErrorCode::network)) << text(2);
        EXPECT_NE(text(2).find(std::to_string(port)), std::string::npos) << text(2);
        EXPECT_NE(text(2).find("in use"), std::string::npos) << text(2);
        EXPECT_NE(reports[3].code, 0) << text(3);
        EXPECT_NE(text(3).find(secret == nullptr ? "another process has this rank" : "secret"), std::string::npos)
            << text(3);
        job.store().set("stop", "1");
        for (const Report& r : job.collect(2, 10s)) EXPECT_EQ(r.code, 0) << "rank " << r.rank << ": " << r.text;
    }
}

TEST_F(Joining, a_wrong_variable_is_refused_before_anyone_is_waited_for) {
    const int port = TCPStore({.is_master = true}).port();  // nobody listens there any more
    set_environment(1, 2, port);
    const std::pair<const char*, const char*> wrong[] = {
        {"TUTTI_TRANSPORT", "rdma"},          {"TUTTI_DETERMINISM", "sometimes"},
        {"TUTTI_ALGORITHM", "magic"},         {"TUTTI_WAIT", "never"},
        {"TUTTI_TIMEOUT_MS", "soon"},         {"TUTTI_TUNE", "magic"},
        {"TUTTI_LIFELINE_TIMEOUT_MS", "1"},   {"TUTTI_TCP_CONGESTION", "warp"},
        {"TUTTI_INSECURE", "maybe"},          {"TUTTI_STORE_LOCAL", "maybe"},
        {"TUTTI_HANDSHAKE_TIMEOUT_MS", "-1"}, {"TUTTI_TCP_CONNECTIONS", "0"},
        {"TUTTI_HUGE_PAGES", "some"},         {"TUTTI_PROGRESS_NICE", "20"},
        {"TUTTI_TCP_CHECKSUM", "crc"},        {"TUTTI_SPREAD", "far"},
    };
    for (const auto& [variable, value] : wrong) {
        ::setenv(variable, value, 1);
        const auto began = SteadyClock::now();
        try {
            init_process_group({.timeout = 3s});
            ADD_FAILURE() << variable << " is taken";
        } catch (const DistError& error) {
            EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
            const std::string text = error.what();
            EXPECT_NE(text.find(variable), std::string::npos) << text;
            EXPECT_NE(text.find(value), std::string::npos) << text;
            EXPECT_NE(text.find("expected"), std::string::npos) << text;
        }
        EXPECT_LT(SteadyClock::now() - began, 2s) << variable;
        ::unsetenv(variable);
    }
    for (const char* variable : {"MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"}) ::unsetenv(variable);
}

TEST_F(Joining, two_ranks_with_one_number_end_the_joining_of_all_at_once) {
    covers("A-04", "S1-013");
    const int port = TCPStore({.is_master = true}).port();
    Job job(3, [&](const RankProcess& me) {
        // Processes 0, 1, 2 have the ranks 0, 1, 1 of 3.
        set_environment(std::min(me.rank(), 1), 3, port);
        me.report_end_of([&] { init_process_group({.timeout = 20s}); });
    });
    const auto began = SteadyClock::now();
    const auto reports = job.collect(3, 10s);
    ASSERT_EQ(reports.size(), 3U);
    EXPECT_LT(SteadyClock::now() - began, 5s);
    for (const Report& r : reports) {
        EXPECT_EQ(r.code, static_cast<int>(ErrorCode::invalid_argument)) << "process " << r.rank << ": " << r.text;
        EXPECT_NE(std::string(r.text).find("two processes say that they are rank 1"), std::string::npos) << r.text;
    }
}

TEST_F(Joining, a_file_that_a_killed_job_left_is_refused_by_the_next_with_a_sentence) {
    covers("S1-026", "S1-028", "S1-029", "S1-030", "A-40", "S17-004");
    const std::string file = ::testing::TempDir() + "tutti_rendezvous_" + std::to_string(::getpid());
    const InitOptions options{.init_method = "file://" + file, .timeout = 3s, .world_size = 2};
    const auto start = [&](const RankProcess& me) {
        InitOptions mine = options;
        mine.rank = me.rank();
        me.report_end_of([&] { init_process_group(mine); });
        if (!is_initialized()) return;
        std::vector<int> x{1};
        all_reduce(x);
        me.store().backend()->wait(std::vector<std::string>{"leave"}, 20s);
        destroy_process_group();
    };
    {
        Job killed(2, start);
        for (const Report& r : killed.collect(2)) ASSERT_EQ(r.code, 0) << r.text;
        killed.signal(0, SIGKILL);
        killed.signal(1, SIGKILL);
    }
    EXPECT_TRUE(std::filesystem::exists(file)) << "a crash leaves it";
    {
        Job next(2, start);
        const auto reports = next.collect(2, 10s);
        EXPECT_EQ(reports.size(), 2U);
        for (const Report& r : reports) {
            EXPECT_EQ(r.code, static_cast<int>(ErrorCode::store)) << r.text;
            EXPECT_NE(std::string(r.text).find(file), std::string::npos) << r.text;
            EXPECT_NE(std::string(r.text).find("remove"), std::string::npos) << "what to do: " << r.text;
        }
    }
    std::filesystem::remove(file);
    Job fresh(2, start);
    for (const Report& r : fresh.collect(2)) EXPECT_EQ(r.code, 0) << r.text;
    fresh.store().set("leave", "1");
    for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(fresh.wait(rank), 0);
    EXPECT_FALSE(std::filesystem::exists(file)) << "the last user removes it";
}

TEST_F(Joining, a_rank_that_dies_while_joining_is_missed_by_name) {
    covers("S1-001", "S1-015");
    Job job(3, [](const RankProcess& me) {
        if (me.rank() == 2) {
            me.report("dying");
            ::raise(SIGKILL);
        }
        me.report_end_of([&] { (void)me.join(TransportKind::automatic, 500ms); });
    });
    for (const Report& r : job.collect(3, 10s)) {
        if (r.rank == 2) continue;
        EXPECT_EQ(r.code, static_cast<int>(ErrorCode::timeout)) << r.text;
        EXPECT_NE(std::string(r.text).find("missing: rank 2"), std::string::npos) << r.text;
    }
}

TEST_F(Joining, a_rank_that_dies_at_any_moment_of_it_keeps_nobody_for_long) {
    for (int moment = 0; moment < 12; ++moment) {
        Job job(3, [moment](const RankProcess& me) {
            std::thread killer;
            if (me.rank() == 2) {
                killer = std::thread([moment] {
                    std::this_thread::sleep_for(500us * moment);
                    ::raise(SIGKILL);
                });
            }
            me.report_end_of([&] {
                const ProcessGroup g = me.join(TransportKind::shm, 1s);
                for (;;) barrier({.group = g});
            });
            if (killer.joinable()) killer.join();
        });
        for (int ended = 0; ended < 2;) {
            const auto report = job.next(4s);
            ASSERT_TRUE(report) << "moment " << moment;
            if (report->rank == 2) continue;
            EXPECT_GT(report->code, 0) << "moment " << moment << ": " << report->text;
            ++ended;
        }
    }
}

TEST_F(Joining, rank_0_may_leave_as_soon_as_it_has_joined) {
    for (const bool hidden : {false, true}) {  // the others find its memory, or ask it for it
        for (int round = 0; round < 5; ++round) {
            Job job(4, [hidden](const RankProcess& me) {
                if (hidden) become_hidden(me.rank() == 0);
                me.report_end_of([&] {
                    const ProcessGroup g = me.join(TransportKind::shm);
                    std::vector<int> token{me.rank()};
                    if (me.rank() == 1) send(token, 3, {.group = g});
                    if (me.rank() == 3) recv(token, {.src = 1, .group = g});
                    if (token[0] == 3) throw std::runtime_error("nothing came");
                });
            });
            for (const Report& r : job.collect(4, 10s)) EXPECT_STREQ(r.text, "done") << "rank " << r.rank;
        }
    }
}

// As in a container of another user, or under a policy that hides processes from each other: the memory cannot be
// found, and is handed over.
TEST_F(Joining, ranks_whose_processes_may_not_be_looked_into_share_memory_all_the_same) {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, to be somebody else";
    Job job(3, [](const RankProcess& me) {
        become_hidden(me.rank() == 0);
        me.report_end_of([&] {
            const ProcessGroup g = me.join(TransportKind::shm);
            std::vector<int> x(5000, me.rank());
            all_reduce(x, {.group = g});
            if (x != std::vector<int>(5000, 3)) throw std::runtime_error("wrong sum");
            barrier({.group = g});
        });
    });
    for (const Report& r : job.collect(3, 10s)) EXPECT_STREQ(r.text, "done") << "rank " << r.rank;
}

}  // namespace
}  // namespace tutti::test
