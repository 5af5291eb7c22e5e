// spawn(): ranks that are processes and ranks that are threads, and how they fail.
#include "support/covers.hpp"

#include <tutti/tutti.hpp>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <new>
#include <thread>
#include <vector>

namespace tutti::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// Memory that this process shares with the children that it forks.
struct Shared {
    std::atomic<int> started{0}, sum{0};
    static Shared& make() {
        void* memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        return *new (memory) Shared;
    }
};

bool is_gone(int pid) {
    return ::kill(pid, 0) != 0 && errno == ESRCH;
}

void wait_for_start_of(const Shared& shared, int count) {
    const auto end = Clock::now() + 20s;
    while (shared.started < count && Clock::now() < end) std::this_thread::sleep_for(1ms);
    ASSERT_EQ(shared.started, count);
}

[[noreturn]] void sleep_for_ever() {
    for (;;) ::pause();
}

template <class Error, class Call>
Error error_of(const Call& call) {
    try {
        call();
    } catch (const Error& error) {
        return error;
    }
    throw std::runtime_error("no such error");
}

void expect_words(const DistError& error, std::initializer_list<const char*> words) {
    for (const char* word : words) EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
}

TEST(Spawn, calls_the_function_once_for_each_rank) {
    covers("S15-001");
    Shared& shared = Shared::make();
    for (const auto method : {SpawnMethod::processes, SpawnMethod::threads}) {
        shared.sum = shared.started = 0;
        const int self = ::getpid();
        SpawnContext context = spawn(
            [&](int rank) {
                ++shared.started;
                shared.sum += 1 << rank;
                if ((method == SpawnMethod::processes) == (::getpid() == self)) shared.sum += 1000;
            },
            5, {.method = method});
        EXPECT_EQ(shared.started, 5);
        EXPECT_EQ(shared.sum, 31);
        EXPECT_TRUE(context.join());
        EXPECT_EQ(context.pids().size(), method == SpawnMethod::processes ? 5U : 0U);
        for (const int pid : context.pids()) EXPECT_TRUE(is_gone(pid));
    }
}

TEST(Spawn, gives_ranks_that_meet_by_the_environment_of_their_parent) {
    covers("S15-002");
    ::setenv("MASTER_ADDR", "127.0.0.1", 1);
    ::setenv("MASTER_PORT", std::to_string(TCPStore({.is_master = true}).port()).c_str(), 1);
    spawn(
        [](int rank) {
            init_process_group({.world_size = 4, .rank = rank});
            std::vector<int> x{rank + 1};
            all_reduce(x);
            if (x[0] != 10) throw std::runtime_error("sum " + std::to_string(x[0]));
            destroy_process_group();
        },
        4);
    ::unsetenv("MASTER_ADDR");
    ::unsetenv("MASTER_PORT");
}

// The sum of rank + 1 in the default group, in which this process expects to be rank `rank` of `size`.
void expect_world(int rank, int size) {
    if (get_rank() != rank || get_world_size() != size)
        throw std::runtime_error("rank " + std::to_string(get_rank()) + " of " + std::to_string(get_world_size()));
    std::vector<int> x{rank + 1};
    all_reduce(x);
    if (x[0] != size * (size + 1) / 2) throw std::runtime_error("sum " + std::to_string(x[0]));
    destroy_process_group();
}

void join_without_a_word(int rank, int size) {
    for (int time = 0; time < 2; ++time) {
        init_process_group({.timeout = 20s});
        expect_world(rank, size);
    }
}

// Variables of a job, while it lives.
class InAJob {
 public:
    InAJob() {
        for (const auto& [name, value] : variables_) ::setenv(name, value, 1);
    }
    ~InAJob() {
        for (const auto& [name, value] : variables_) ::unsetenv(name);
    }

 private:
    std::vector<std::pair<const char*, const char*>> variables_{{"RANK", "1"},
                                                                {"WORLD_SIZE", "2"},
                                                                {"LOCAL_RANK", "1"},
                                                                {"LOCAL_WORLD_SIZE", "2"},
                                                                {"MASTER_ADDR", "127.0.0.1"},
                                                                {"MASTER_PORT", "1"}};
};

TEST(Spawn, gives_a_rank_that_says_none_its_own_and_the_world_of_all) {
    covers("S15-001");
    for (const int nprocs : {1, 3}) spawn([=](int rank) { join_without_a_word(rank, nprocs); }, nprocs);
    const InAJob in_a_job;
    for (const int nprocs : {1, 3}) spawn([=](int rank) { join_without_a_word(rank, nprocs); }, nprocs);
}

TEST(Spawn, gives_a_rank_what_it_says_itself_and_the_spawn_the_rest) {
    const auto reversed = [](int rank) {
        init_process_group({.timeout = 20s, .rank = 2 - rank});
        expect_world(2 - rank, 3);
    };
    spawn(reversed, 3);
    const InAJob in_a_job;
    spawn(
        [](int rank) {
            init_process_group({.timeout = 20s, .world_size = 3, .rank = 2 - rank});
            expect_world(2 - rank, 3);
        },
        3);
    const std::uint16_t port = TCPStore({.is_master = true}).port();
    spawn(
        [=](int rank) {  // by the environment, as a program without arguments does
            ::setenv("RANK", std::to_string(2 - rank).c_str(), 1);
            ::setenv("WORLD_SIZE", "3", 1);
            ::setenv("MASTER_ADDR", "127.0.0.1", 1);
            ::setenv("MASTER_PORT", std::to_string(port).c_str(), 1);
            init_process_group({.timeout = 20s});
            expect_world(2 - rank, 3);
        },
        3);
    const HashStore alone;
    spawn(
        [&](int) {
            init_process_group({.world_size = 1, .rank = 0, .store = alone});
            expect_world(0, 1);
        },
        2);
}

TEST(Spawn, inside_a_spawn_makes_a_world_of_its_own) {
    spawn(
        [](int outer) {
            spawn([](int rank) { join_without_a_word(rank, 2); }, 2);
            join_without_a_word(outer, 3);
        },
        3);
}

TEST(Spawn, says_that_threads_have_one_default_group) {
    expect_words(error_of<ProcessRaisedException>(
                     [] { spawn([](int) { init_process_group(); }, 2, {.method = SpawnMethod::threads}); }),
                 {"is a thread of spawn()", "expected a ProcessGroup for each"});
    spawn([](int rank) { join_without_a_word(rank, 1); }, 1, {.method = SpawnMethod::threads});
}

TEST(Spawn, gives_threads_that_meet_by_a_store) {
    covers("S2-022", "A-48");  // one device, one rank, one thread
    const HashStore store;
    spawn(
        [&](int rank) {
            ProcessGroup group({.store = store, .rank = rank, .world_size = 3});
            std::vector<int> x{rank + 1};
            all_reduce(x, {.group = group});
            if (x[0] != 6) throw std::runtime_error("sum " + std::to_string(x[0]));
            group.destroy();
        },
        3, {.method = SpawnMethod::threads});
}

TEST(Spawn, tells_what_a_rank_threw_and_ends_the_others) {
    Shared& shared = Shared::make();
    SpawnContext context = spawn(
        [&](int rank) {
            ++shared.started;
            if (rank != 2) sleep_for_ever();
            while (shared.started < 4) std::this_thread::sleep_for(1ms);
            throw InvalidArgument("the disk is full");
        },
        4, {.join = false});
    const auto pids = context.pids();
    const auto error = error_of<ProcessRaisedException>([&] { context.join(); });
    EXPECT_EQ(error.rank(), 2);
    EXPECT_EQ(error.pid(), pids[2]);
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    expect_words(error, {"rank 2", std::to_string(pids[2]).c_str(), "the disk is full"});
    for (const int pid : pids) EXPECT_TRUE(is_gone(pid));
    EXPECT_THROW(context.join(), ProcessRaisedException) << "again";
    // Whatever is thrown, however long its text.
    expect_words(error_of<ProcessException>([] { spawn([](int) { throw 5; }); }), {"rank 0", "std::exception"});
    const std::string text(200'000, 'x');
    expect_words(error_of<ProcessException>([&] { spawn([&](int) { throw std::runtime_error(text); }, 2); }),
                 {text.substr(0, 1000).c_str()});
}

TEST(Spawn, tells_how_a_process_ended) {
    const auto exited =
        error_of<ProcessExitedException>([] { spawn([](int rank) { rank == 1 ? ::_exit(3) : sleep_for_ever(); }, 3); });
    EXPECT_EQ(exited.rank(), 1);
    EXPECT_EQ(exited.exit_code(), 3);
    EXPECT_EQ(exited.signal_name(), "");
    expect_words(exited, {"rank 1", "exited with status 3"});
    const auto killed = error_of<ProcessExitedException>([] {
        spawn(
            [](int rank) {
                if (rank == 0) ::raise(SIGKILL);
                sleep_for_ever();
            },
            2);
    });
    EXPECT_EQ(killed.exit_code(), -SIGKILL);
    EXPECT_EQ(killed.signal_name(), "SIGKILL");
    EXPECT_EQ(killed.code(), ErrorCode::peer_lost);
    expect_words(killed, {"rank 0", "SIGKILL"});
}

TEST(Spawn, names_the_rank_that_died_and_not_those_that_noticed) {
    const std::uint16_t port = TCPStore({.is_master = true}).port();
    const auto error = error_of<ProcessExitedException>([&] {
        spawn(
            [&](int rank) {
                init_process_group(
                    {.init_method = "tcp://127.0.0.1:" + std::to_string(port), .world_size = 4, .rank = rank});
                std::vector<float> x(1000);
                for (int turn = 0;; ++turn) {
                    all_reduce(x);
                    if (rank == 3 && turn == 20) ::raise(SIGKILL);
                }
            },
            4);
    });
    EXPECT_EQ(error.rank(), 3);
}

TEST(Spawn, kills_who_ignores_being_asked_to_end) {
    Shared& shared = Shared::make();
    const auto start = Clock::now();
    EXPECT_THROW(spawn(
                     [&](int rank) {
                         ::signal(SIGTERM, SIG_IGN);
                         ++shared.started;
                         while (shared.started < 2) std::this_thread::sleep_for(1ms);
                         if (rank == 0) throw std::runtime_error("x");
                         sleep_for_ever();
                     },
                     2, {.grace_period = 100ms}),
                 ProcessRaisedException);
    EXPECT_LT(Clock::now() - start, 20s);
}

TEST(Spawn, waits_no_longer_than_it_is_told) {
    Shared& shared = Shared::make();
    for (const auto method : {SpawnMethod::processes, SpawnMethod::threads}) {
        shared.sum = 0;
        const auto start = Clock::now();
        SpawnContext context = spawn(
            [&](int) {
                while (shared.sum == 0) std::this_thread::sleep_for(1ms);
            },
            2, {.method = method, .join = false});
        EXPECT_FALSE(context.join(0ms));
        EXPECT_FALSE(context.join(50ms));
        EXPECT_GE(Clock::now() - start, 50ms);
        shared.sum = 1;
        EXPECT_TRUE(context.join(20s));
        EXPECT_TRUE(context.join(0ms));
    }
}

TEST(Spawn, leaves_nobody_behind_when_its_context_goes) {
    Shared& shared = Shared::make();
    std::vector<int> pids;
    {
        const SpawnContext context = spawn(
            [&](int) {
                ++shared.started;
                sleep_for_ever();
            },
            3, {.join = false});
        pids = context.pids();
        wait_for_start_of(shared, 3);
    }
    for (const int pid : pids) EXPECT_TRUE(is_gone(pid));
    // Threads are asked.
    const SpawnContext threads = spawn(
        [](int, const std::stop_token& stop) {
            while (!stop.stop_requested()) std::this_thread::sleep_for(1ms);
        },
        3, {.method = SpawnMethod::threads, .join = false});
}

TEST(Spawn, asks_the_other_threads_to_stop_when_one_fails) {
    try {
        spawn(
            [](int rank, const std::stop_token& stop) {
                if (rank == 1) throw CollectiveMismatch("another shape");
                while (!stop.stop_requested()) std::this_thread::sleep_for(1ms);
            },
            3, {.method = SpawnMethod::threads});
        FAIL();
    } catch (const ProcessRaisedException& error) {
        EXPECT_EQ(error.rank(), 1);
        EXPECT_EQ(error.code(), ErrorCode::collective_mismatch);
        expect_words(error, {"rank 1", "another shape"});
        EXPECT_THROW(std::rethrow_if_nested(error), CollectiveMismatch);
    }
}

TEST(Spawn, names_the_thread_that_failed_and_not_those_that_noticed) {
    const HashStore store;
    const auto error = error_of<ProcessRaisedException>([&] {
        spawn(
            [&](int rank) {
                const ProcessGroup group({.store = store, .rank = rank, .world_size = 3});
                std::vector<int> x{1};
                all_reduce(x, {.group = group});
                if (rank == 2) throw std::runtime_error("out of luck");
                all_reduce(x, {.group = group});
            },
            3, {.method = SpawnMethod::threads});
    });
    EXPECT_EQ(error.rank(), 2);
    expect_words(error, {"out of luck"});
}

TEST(Spawn, says_what_is_wrong_with_its_arguments) {
    expect_words(error_of<InvalidArgument>([] { spawn([](int) {}, 0); }), {"nprocs 0", "1 to 65536"});
    expect_words(error_of<InvalidArgument>([] { spawn([](int) {}, -3); }), {"nprocs -3"});
    expect_words(error_of<InvalidArgument>([] { spawn(std::function<void(int)>(), 2); }), {"fn is empty"});
    expect_words(error_of<InvalidArgument>([] { spawn([](int) {}, 1, {.grace_period = -1ms}); }),
                 {"grace_period -1 ms"});
}

TEST(Spawn, is_not_needed_to_start_processes_by_hand) {
    covers("S15-003");
    const std::uint16_t port = TCPStore({.is_master = true}).port();
    std::vector<SpawnContext> workers;
    for (int rank = 0; rank < 3; ++rank) {
        workers.push_back(spawn(
            [=](int) {
                init_process_group(
                    {.init_method = "tcp://127.0.0.1:" + std::to_string(port), .world_size = 3, .rank = rank});
                std::vector<int> x{rank};
                all_reduce(x, {.op = ReduceOp::max});
                if (x[0] != 2) throw std::runtime_error("max " + std::to_string(x[0]));
                destroy_process_group();
            },
            1, {.join = false}));
    }
    for (SpawnContext& worker : workers) EXPECT_TRUE(worker.join(20s));
}

}  // namespace
}  // namespace tutti::test
