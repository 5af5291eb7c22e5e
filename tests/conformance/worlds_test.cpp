// Worlds that meet in one store one after the other: of other ranks, of other sizes, after failures. Processes know
// nothing of worlds that they were not in.
#include "support/covers.hpp"
#include "support/message_of.hpp"
#include "support/patience.hpp"

#include <tutti/tutti.hpp>

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace tutti::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

enum class Kind { hash, file, tcp, prefix };

std::string name_of(const ::testing::TestParamInfo<Kind>& kind) {
    constexpr const char* names[] = {"hash", "file", "tcp", "prefix"};
    return names[static_cast<int>(kind.param)];
}

bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

pid_t start(const std::function<void()>& body) {
    std::fflush(nullptr);
    const pid_t child = ::fork();
    if (child != 0) return child;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    int status = 1;
    try {
        body();
        status = ::testing::Test::HasFailure() ? 1 : 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "process %d: %s\n", ::getpid(), error.what());
    }
    std::fflush(nullptr);
    ::_exit(status);
}

int end_of(pid_t child) {
    int status = 0;
    ::waitpid(child, &status, 0);
    return status;
}

class WorldsInOneStore : public ::testing::TestWithParam<Kind> {
 protected:
    void SetUp() override {
        path_ = ::testing::TempDir() + "tutti_worlds_" + std::to_string(::getpid());
        if (GetParam() == Kind::tcp || GetParam() == Kind::prefix)
            server_ = TCPStore({.is_master = true, .wait_for_workers = false});
    }
    void TearDown() override { std::filesystem::remove(path_); }

    Store open() const {
        switch (GetParam()) {
            case Kind::hash: return hash_;
            case Kind::file: return FileStore(path_);
            default: break;
        }
        const TCPStore client({.port = static_cast<const TCPStore&>(*server_).port()});
        return GetParam() == Kind::tcp ? Store(client) : PrefixStore("mine", client);
    }

    /// `body` in `count` participants: threads with a HashStore, otherwise processes.
    void run(int count, const std::function<void(const Store& store, int me)>& body) const {
        if (GetParam() == Kind::hash) {
            std::vector<std::thread> threads;
            for (int me = 0; me < count; ++me) {
                threads.emplace_back([&, me] {
                    try {
                        body(hash_, me);
                    } catch (const std::exception& error) {
                        ADD_FAILURE() << "thread " << me << ": " << error.what();
                    }
                });
            }
            for (std::thread& thread : threads) thread.join();
            return;
        }
        std::vector<pid_t> children;
        for (int me = 0; me < count; ++me) children.push_back(start([&, me] { body(open(), me); }));
        for (int me = 0; me < count; ++me) EXPECT_EQ(end_of(children[static_cast<std::size_t>(me)]), 0) << me;
    }

    static ProcessGroup join(const Store& store, int rank, int size, std::chrono::milliseconds timeout = 20s,
                             const std::string& name = "world") {
        return ProcessGroup({.store = store, .rank = rank, .world_size = size, .timeout = timeout, .name = name});
    }
    static void work_in(ProcessGroup group, int rank, int size) {
        std::vector<int> x{rank + 1};
        all_reduce(x, {.group = group});
        EXPECT_EQ(x[0], size * (size + 1) / 2);
        const ProcessGroup part = group.split({.color = rank % 2});
        barrier({.group = part});
        group.destroy();
    }
    static void meet(const Store& store, int rank, int size) { work_in(join(store, rank, size), rank, size); }

    HashStore hash_;
    std::string path_;
    std::optional<TCPStore> server_;
};
INSTANTIATE_TEST_SUITE_P(All, WorldsInOneStore, ::testing::Values(Kind::hash, Kind::file, Kind::tcp, Kind::prefix),
                         name_of);

TEST_P(WorldsInOneStore, may_be_of_other_ranks_each_time) {
    covers("S18-003", "A-47");
    const std::vector<std::vector<int>> worlds{{0, 1, 2}, {1, 2}, {2, 0}, {0, 1, 2}, {2, 1, 0}, {1}, {0, 1, 2, 3}};
    run(4, [&](Store store, int me) {
        for (std::size_t number = 0; number < worlds.size(); ++number) {
            const std::vector<int>& members = worlds[number];
            const auto own = std::ranges::find(members, me);
            if (own != members.end())
                meet(store, static_cast<int>(own - members.begin()), static_cast<int>(members.size()));
            // One after the other, as programs that share a store have to make them.
            const std::string all = "through " + std::to_string(number);
            if (store.add("went " + std::to_string(number), 1) == 4) store.set(all, "");
            store.wait({all});
        }
    });
}

TEST_P(WorldsInOneStore, may_be_of_processes_that_come_when_all_others_have_ended) {
    for (const int size : {2, 3, 2}) {
        run(size, [size](const Store& store, int me) { meet(store, me, size); });
    }
}

TEST_P(WorldsInOneStore, may_follow_each_other_while_ranks_of_the_last_still_leave) {
    run(3, [](const Store& store, int me) {
        for (int time = 0; time < 8; ++time) {
            if (time % 3 == me) std::this_thread::sleep_for(10ms);
            meet(store, me, 3);
        }
    });
}

TEST_P(WorldsInOneStore, take_a_rank_that_came_early_for_the_next_larger_one) {
    run(3, [](Store store, int me) {
        if (me == 2) {
            store.wait({"begun"});
            return meet(store, 2, 3);
        }
        if (me == 0) store.set("begun", "");
        if (me == 1) std::this_thread::sleep_for(300ms);
        meet(store, me, 2);
        meet(store, me, 3);
    });
}

TEST_P(WorldsInOneStore, come_together_after_one_that_came_too_late) {
    run(3, [](Store store, int me) {
        if (me < 2) {
            const std::string text = message_of<DistError>([&] { join(store, me, 3, 500ms); });
            EXPECT_TRUE(has(text, "2") || has(text, "rank 0 did not answer") || has(text, "failed while joining"))
                << text;
            store.add("failed", 1);
        } else {
            while (store.add("failed", 0) < 2) std::this_thread::sleep_for(5ms);
            // It learns of it at once, and comes again.
            const auto began = Clock::now();
            EXPECT_NE(message_of<DistError>([&] { join(store, me, 3, 20s); }), "");
            EXPECT_LT(Clock::now() - began, patience(3s));
            store.set("knows", "");
        }
        store.wait({"knows"});
        meet(store, me, 3);
    });
}

TEST_P(WorldsInOneStore, come_together_where_a_rank_tries_again_until_the_others_are_there) {
    run(3, [](const Store& store, int me) {
        if (me == 2) std::this_thread::sleep_for(1200ms);
        for (int tries = 0;; ++tries) {
            try {
                return work_in(join(store, me, 3, me == 2 ? 20s : 400ms), me, 3);
            } catch (const DistError& error) {
                ASSERT_LT(tries, 40) << error.what();
                std::this_thread::sleep_for(10ms);
            }
        }
    });
}

TEST_P(WorldsInOneStore, come_together_after_all_ranks_refused_their_own_options) {
    run(3, [](Store store, int me) {
        const ProcessGroupOptions wrong{.store = store, .rank = me, .world_size = 3, .backend = "no such backend"};
        for (int time = 0; time < 2; ++time) {
            EXPECT_NE(message_of<DistError>([&] { ProcessGroup group(wrong); }), "");
            const std::string all = "refused " + std::to_string(time);
            if (store.add(all + "/count", 1) == 3) store.set(all, "");
            store.wait({all});
        }
        meet(store, me, 3);
    });
}

TEST_P(WorldsInOneStore, with_a_rank_used_twice_fail_on_all_and_come_together_when_that_is_mended) {
    covers("A-04", "S1-013");
    run(3, [](Store store, int me) {
        const std::string text = message_of<InvalidArgument>([&] { join(store, std::min(me, 1), 3); });
        EXPECT_TRUE(has(text, "say that they are rank 1")) << text;
        if (store.add("told", 1) == 3) store.set("all told", "");
        store.wait({"all told"});
        meet(store, me, 3);
    });
}

TEST_P(WorldsInOneStore, say_who_was_there_before_when_nobody_comes_for_the_next) {
    run(2, [](Store store, int me) {
        meet(store, me, 2);
        if (me == 0) return store.wait({"over"});
        const std::string text = message_of<DistStoreError>([&] { join(store, 1, 2, 500ms); });
        EXPECT_TRUE(has(text, "rank 0 did not answer")) << text;
        EXPECT_TRUE(has(text, "a world has met there before, with process " + std::to_string(::getpid()))) << text;
        store.set("over", "");
    });
}

TEST_P(WorldsInOneStore, have_groups_of_members_that_come_together_after_one_was_late) {
    run(3, [](Store store, int me) {
        ProcessGroup world = join(store, me, 3);
        const auto make = [&](std::chrono::milliseconds timeout) {
            return new_group({0, 2}, {.timeout = timeout, .use_local_synchronization = true, .world = world});
        };
        if (me == 2) store.wait({"late"});
        if (me != 1) {
            const std::string text = message_of<Timeout>([&] { (void)make(me == 0 ? 300ms : 20s); });
            EXPECT_TRUE(has(text, "timed out on rank 0; not there: 2")) << text;
            if (me == 0) store.set("late", "");
            const ProcessGroup group = make(20s);
            std::vector<int> x{me};
            all_reduce(x, {.group = group});
            EXPECT_EQ(x[0], 2);
        }
        barrier({.group = world});
        world.destroy();
    });
}

TEST_P(WorldsInOneStore, of_different_names_meet_at_the_same_time) {
    run(2, [](const Store& store, int me) {
        std::vector<std::thread> threads;
        for (int w = 0; w < 4; ++w) {
            threads.emplace_back([&store, me, w] {
                ProcessGroup group = join(store, me, 2, 20s, "number " + std::to_string(w));
                std::vector<int> x{w};
                all_reduce(x, {.group = group});
                EXPECT_EQ(x[0], 2 * w);
                barrier({.group = group});
                group.destroy();
            });
        }
        for (std::thread& thread : threads) thread.join();
    });
}

TEST_P(WorldsInOneStore, take_the_process_that_comes_for_one_that_died_while_it_joined) {
    if (GetParam() == Kind::hash) GTEST_SKIP() << "by design: threads do not die alone";
    const auto come = [this](int rank) {
        return start([this, rank] {
            const Store store = open();
            Store(store).add("tries " + std::to_string(rank), 1);
            for (int tries = 0;; ++tries) {
                try {
                    return work_in(join(store, rank, 3, 20s), rank, 3);
                } catch (const PeerLost& error) {
                    EXPECT_TRUE(has(error.what(), "rank 1 is gone")) << error.what();
                    ASSERT_LT(tries, 3);
                }
            }
        });
    };
    Store store = open();
    const pid_t dying = come(1);
    while (store.add("tries 1", 0) < 1) std::this_thread::sleep_for(1ms);
    std::this_thread::sleep_for(300ms);  // it waits for the others by now
    const pid_t waiting = come(2);
    while (store.add("tries 2", 0) < 1) std::this_thread::sleep_for(1ms);
    std::this_thread::sleep_for(300ms);
    ::kill(dying, SIGKILL);
    end_of(dying);
    std::this_thread::sleep_for(100ms);
    const pid_t again = come(1), first = come(0);
    for (const pid_t child : {waiting, again, first}) EXPECT_EQ(end_of(child), 0);
}

TEST_P(WorldsInOneStore, have_new_processes_for_those_that_died_in_the_last) {
    if (GetParam() == Kind::hash) GTEST_SKIP() << "by design: threads do not die alone";
    const pid_t survivor = start([this] {
        Store store = open();
        ProcessGroup group = join(store, 0, 2);
        const std::string text = message_of<PeerLost>([&] { barrier({.group = group}); });
        EXPECT_TRUE(has(text, "rank 1")) << text;
        group.destroy();
        meet(store, 0, 2);
    });
    const pid_t dying = start([this] {
        const ProcessGroup group = join(open(), 1, 2);
        ::raise(SIGKILL);
    });
    EXPECT_TRUE(WIFSIGNALED(end_of(dying)));
    const pid_t next = start([this] { meet(open(), 1, 2); });
    for (const pid_t child : {survivor, next}) EXPECT_EQ(end_of(child), 0);
}

TEST(DefaultGroups, of_other_processes_each_time_meet_in_a_store_of_their_own) {
    covers("S18-003", "A-47");
    const std::vector<std::vector<int>> worlds{{0, 1, 2}, {1, 2}, {2, 0}};
    std::vector<TCPStore> stores;
    for (std::size_t i = 0; i < worlds.size(); ++i) stores.push_back(TCPStore({.is_master = true}));
    std::vector<pid_t> children;
    for (int me = 0; me < 3; ++me) {
        children.push_back(start([&, me] {
            for (std::size_t i = 0; i < worlds.size(); ++i) {
                const auto own = std::ranges::find(worlds[i], me);
                if (own == worlds[i].end()) continue;
                const auto size = static_cast<int>(worlds[i].size());
                init_process_group({.timeout = 20s,
                                    .world_size = size,
                                    .rank = static_cast<int>(own - worlds[i].begin()),
                                    .store = TCPStore({.port = stores[i].port()})});
                std::vector<int> x{1};
                all_reduce(x);
                EXPECT_EQ(x[0], size);
                destroy_process_group();
            }
        }));
    }
    for (const pid_t child : children) EXPECT_EQ(end_of(child), 0);
}

// A job of Slurm whose port is free, by the rule that makes ports of numbers.
int job_with_a_free_port() {
    for (int job = ::getpid();; ++job) {
        try {
            const TCPStore free({.port = static_cast<std::uint16_t>(20000 + job % 10000), .is_master = true});
            return job;
        } catch (const DistNetworkError&) {  // NOLINT(bugprone-empty-catch): another
        }
    }
}

void be_task_of_slurm(int job, int rank) {
    const std::pair<const char*, std::string> variables[] = {
        {"SLURM_JOB_ID", std::to_string(job)}, {"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", std::to_string(rank)},
        {"SLURM_STEP_NUM_TASKS", "2"},         {"SLURM_NODEID", "0"},  {"SLURM_STEP_TASKS_PER_NODE", "2"}};
    for (const auto& [name, value] : variables) ::setenv(name, value.c_str(), 1);
}

TEST(Jobs, whose_ports_are_equal_by_chance_do_not_mix) {
    const int job = job_with_a_free_port();
    const auto work = [job](int rank) {
        be_task_of_slurm(job, rank);
        init_process_group({.timeout = 20s});
        std::vector<int> x{rank};
        all_reduce(x);
        EXPECT_EQ(x[0], 1);
        destroy_process_group();
    };
    const pid_t first = start([&] { work(0); });
    std::this_thread::sleep_for(500ms);  // it waits for its rank 1 now
    const pid_t stranger = start([&] {
        be_task_of_slurm(job + 10000, 1);
        const std::string text = message_of<DistNetworkError>([&] { init_process_group({.timeout = 20s}); });
        EXPECT_TRUE(has(text, "is the store of another job (" + std::to_string(job) + "/0/)")) << text;
        EXPECT_TRUE(has(text, std::to_string(job + 10000)) && has(text, "set MASTER_ADDR")) << text;
    });
    EXPECT_EQ(end_of(stranger), 0);
    const pid_t second = start([&] { work(1); });
    for (const pid_t child : {first, second}) EXPECT_EQ(end_of(child), 0);
}

}  // namespace
}  // namespace tutti::test
