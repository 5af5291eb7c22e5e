// Every kind of fault: all other ranks raise in time, with rank and operation, and the processes form a new world.
#include "core/unix_socket.hpp"
#include "faults/job.hpp"
#include "faults/leftovers.hpp"
#include "support/covers.hpp"

#include <array>
#include <functional>

namespace tutti::test {
namespace {

constexpr auto time_limit = 500ms;  // of an operation
constexpr int at_fault = 2;

enum class End { lives, dies, is_stopped };

struct Fault {
    const char* name;
    std::function<void(const RankProcess&, const ProcessGroup&, const std::array<ProcessGroup, 2>&)> call;  // all ranks
    std::vector<std::string> said;  // by every other rank
    End end = End::lives;           // of the rank at fault
};

template <class T>
void sum(const ProcessGroup& group, std::size_t count) {
    std::vector<T> x(count, T{1});
    all_reduce(x, {.group = group});
}

const std::vector<Fault>& faults() {
    static const std::vector<Fault> all{
        {"never_calls",
         [](const auto& me, const auto& world, const auto&) {
             if (me.rank() == at_fault) std::this_thread::sleep_for(time_limit + 300ms);
             sum<float>(world, 1000);
         },
         {"all_reduce #4", "rank 2: has not called it"}},
        {"another_operation",
         [](const auto& me, const auto& world, const auto&) {
             if (me.rank() != at_fault) return sum<float>(world, 1000);
             std::vector<float> x(1000);
             broadcast(x, {.src = 0, .group = world});
         },
         {"rank 2: called #4 broadcast", "all_reduce of float32"}},
        {"another_shape",
         [](const auto& me, const auto& world, const auto&) { sum<float>(world, me.rank() == at_fault ? 999 : 1000); },
         {"rank 2: called #4 all_reduce of float32 × 999", "float32 × 1000"}},
        {"another_type",
         [](const auto& me, const auto& world, const auto&) {
             me.rank() == at_fault ? sum<std::int32_t>(world, 1000) : sum<float>(world, 1000);
         },
         {"rank 2: called #4 all_reduce of int32 × 1000", "float32 × 1000"}},
        {"another_root",
         [](const auto& me, const auto& world, const auto&) {
             std::vector<float> x(1000);
             broadcast(x, {.src = me.rank() == at_fault ? 1 : 0, .group = world});
         },
         {"rank 2: called #4 broadcast of float32 × 1000, root 1", "root 0"}},
        {"another_order_of_groups",
         [](const auto& me, const auto&, const auto& groups) {
             sum<float>(groups[me.rank() == at_fault ? 1 : 0], 100'000);
             sum<float>(groups[me.rank() == at_fault ? 0 : 1], 100'000);
         },
         {"all_reduce #1 in group", "rank 2"}},
        {"is_killed",
         [](const auto& me, const auto& world, const auto&) {
             if (me.rank() == at_fault) ::raise(SIGKILL);
             sum<float>(world, 1000);
         },
         {"rank 2 (", "is gone", "killed by SIGKILL", "in group \"world\""},
         End::dies},
        {"is_stopped_and_goes_on",
         [](const auto& me, const auto& world, const auto&) {
             if (me.rank() == at_fault) ::raise(SIGSTOP);
             sum<float>(world, 1000);
         },
         {"all_reduce #4", "rank 2"},
         End::is_stopped},
        {"exits_early",
         [](const auto& me, const auto& world, const auto&) {
             if (me.rank() == at_fault) ::_exit(0);
             sum<float>(world, 1000);
         },
         {"rank 2 (", "is gone", "in group \"world\""},
         End::dies},
        {"leaves_early",
         [](const auto& me, const auto& world, const auto&) {
             if (me.rank() == at_fault) {
                 ProcessGroup(world).destroy();
                 return;
             }
             sum<float>(world, 1000);
         },
         {"rank 2", "in group \"world\""}},
    };
    return all;
}

class Afterwards : public LeftoverCheck,
                   public ::testing::WithParamInterface<std::tuple<std::size_t, TransportKind>> {};
INSTANTIATE_TEST_SUITE_P(Over, Afterwards,
                         ::testing::Combine(::testing::Range(std::size_t{0}, faults().size()),
                                            ::testing::Values(TransportKind::shm, TransportKind::tcp)),
                         [](const auto& instance) {
                             return std::string(faults()[std::get<0>(instance.param)].name) + "_over_" +
                                    to_string(std::get<1>(instance.param));
                         });

TEST_P(Afterwards, every_other_rank_has_raised_in_time_and_a_new_world_works) {
    const Fault& fault = faults()[std::get<0>(GetParam())];
    const TransportKind transport = std::get<1>(GetParam());
    Job job(3, [&](const RankProcess& me) {
        {
            const ProcessGroup world = me.join(transport, time_limit);
            const std::array groups{world.split({}), world.split({})};
            me.report("running");
            me.report_end_of([&] {
                barrier({.group = world});  // in which the slowest may still be
                fault.call(me, world, groups);
                barrier({.group = world});  // who had nothing to wait for learns it now
            });
            // The new world begins when the old one is over for everyone.
            const int survivors = fault.end == End::dies ? 2 : 3;
            Store store = me.store();
            if (store.add("through", 1) == survivors) store.set("all", "through");
            store.wait({"all"}, 10s);
        }
        const ProcessGroup again({.store = PrefixStore("again", me.store()),
                                  .rank = me.rank(),
                                  .world_size = fault.end == End::dies ? 2 : 3,
                                  .timeout = 10s,
                                  .transport = transport});
        me.report_end_of([&] {
            std::vector<int> x(5000, 1);
            all_reduce(x, {.group = again});
            if (x != std::vector<int>(5000, again.size())) throw std::runtime_error("wrong sum");
            barrier({.group = again});
        });
    });
    ASSERT_EQ(job.collect(3).size(), 3U);
    const auto start = SteadyClock::now();
    for (int raised = 0; raised < 2;) {
        const auto report = job.next(5s);
        ASSERT_TRUE(report) << raised << " of 2 have raised";
        if (report->rank == at_fault) continue;  // it may learn what it did
        ++raised;
        EXPECT_GT(report->code, 0) << report->text;
        EXPECT_LT(report->at - start, time_limit + 1s) << "rank " << report->rank;
        for (const std::string& part : fault.said)
            EXPECT_NE(std::string(report->text).find(part), std::string::npos) << part << " in: " << report->text;
    }
    if (fault.end == End::is_stopped) job.signal(at_fault, SIGCONT);
    int good = 0;
    for (const int wanted = fault.end == End::dies ? 2 : 3; good < wanted;) {
        const auto report = job.next(10s);
        ASSERT_TRUE(report) << good << " of " << wanted << " are in the new world";
        if (report->rank == at_fault && report->code != 0) continue;
        EXPECT_STREQ(report->text, "done") << "rank " << report->rank;
        ++good;
    }
}

// What runs needs no store; what needs one says so in time; a new store makes a new world.
// A process that nobody waits for any more, and its socket.
TEST_F(LeftoverCheck, sees_what_descends_from_the_test_and_what_that_has_open) {
    int ready[2];
    ASSERT_EQ(::pipe2(ready, O_CLOEXEC), 0);
    const pid_t child = ::fork();
    if (child == 0) {
        if (::fork() == 0) {
            const UniqueFd socket = net::listen_unix("tutti/left_behind/" + std::to_string(::getpid()));
            const pid_t own = ::getpid();
            if (::write(ready[1], &own, sizeof own) == sizeof own) ::pause();
        }
        ::_exit(0);
    }
    ::waitpid(child, nullptr, 0);
    pid_t grandchild = 0;
    ASSERT_EQ(::read(ready[0], &grandchild, sizeof grandchild), static_cast<ssize_t>(sizeof grandchild));
    const std::set<std::string> found = everything();
    EXPECT_TRUE(found.contains("process " + std::to_string(grandchild)));
    EXPECT_TRUE(found.contains("socket @tutti/left_behind/" + std::to_string(grandchild)));
    ::kill(grandchild, SIGKILL);
    ::waitpid(grandchild, nullptr, 0);
    for (const int fd : ready) ::close(fd);
}

TEST_F(LeftoverCheck, a_store_that_dies_is_named_and_a_new_one_makes_a_new_world) {
    const std::string path = ::testing::TempDir() + "tutti-faults-store-" + std::to_string(::getpid());
    Job job(2, [&path](const RankProcess& me) {
        {
            const ProcessGroup world = me.join(TransportKind::automatic, time_limit);
            sum<float>(world, 10);
            me.report("running");
            for (Store store = me.store();;) {  // until it is gone
                try {
                    store.set("here", "?");
                    (void)store.get("here");
                } catch (const DistStoreError&) {
                    break;
                }
                std::this_thread::sleep_for(5ms);
            }
            me.report_end_of([&] { sum<float>(world, 10); });
            std::this_thread::sleep_for(100ms);  // it ends what others are in
            me.report_end_of([&] { (void)world.shrink(); });
        }
        const ProcessGroup again({.store = FileStore(path, 2), .rank = me.rank(), .world_size = 2, .timeout = 10s});
        me.report_end_of([&] { sum<float>(again, 10); });
    });
    ASSERT_EQ(job.collect(2).size(), 2U);
    job.end_store();
    const auto start = SteadyClock::now();
    std::array<int, 2> reports{};
    for (int i = 0; i < 6; ++i) {
        const auto report = job.next(10s);
        ASSERT_TRUE(report) << i;
        const int number = reports.at(static_cast<std::size_t>(report->rank))++;
        if (number == 1) {
            EXPECT_EQ(report->code, static_cast<int>(ErrorCode::store)) << report->text;
            EXPECT_NE(std::string(report->text).find("expected a store that outlives the ranks"), std::string::npos)
                << report->text;
            EXPECT_LT(report->at - start, time_limit + 1s) << report->text;
        } else {
            EXPECT_STREQ(report->text, "done") << "rank " << report->rank;
        }
    }
    for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(job.wait(rank), 0);
    EXPECT_NE(::access(path.c_str(), F_OK), 0) << "the last user removes the file";
}

}  // namespace
}  // namespace tutti::test
