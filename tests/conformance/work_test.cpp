// Work and Future on real ranks: many operations in flight, time limits, failures, who drives.
#include "conformance/oracle.hpp"
#include "conformance/world.hpp"
#include "support/covers.hpp"
#include "support/patience.hpp"

#include <sys/resource.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <numeric>

namespace tutti::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

class Works : public ::testing::TestWithParam<How> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Works, ::testing::ValuesIn(every_way()),
                         [](const auto& instance) { return to_string(instance.param); });

TEST_P(Works, of_every_collective_are_in_flight_at_once_and_waited_for_in_any_order) {
    covers("S7-002", "S8-001", "A-06");
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        const int n = g.size(), me = g.rank();
        for (const std::size_t count : {1, 1001, 90'001}) {
            for (int round = 0; round < 4; ++round) {
                const auto numbers = [&](int first) {
                    std::vector<int> x(count);
                    std::iota(x.begin(), x.end(), first);
                    return x;
                };
                const std::size_t whole = count * static_cast<std::size_t>(n);
                std::vector<int> summed = numbers(me), reduced = numbers(me), root_data = numbers(me),
                                 mine = numbers(me), gathered(whole), wide(whole, me + 1), part(count),
                                 wide_part(count), swapped(whole), scattered(count), list_part(count);
                std::vector<std::vector<int>> a(3, std::vector<int>(count)), b = a, c = a;
                const std::vector<int> one = numbers(1), two = numbers(2), three = numbers(3);
                std::vector<Work> works;
                works.push_back(async::all_reduce(summed, {.group = g}));
                works.push_back(async::reduce(reduced, {.dst = 2, .group = g}));
                works.push_back(async::broadcast(root_data, {.src = 1, .group = g}));
                works.push_back(async::all_gather({a[0], a[1], a[2]}, mine, {.group = g}));
                works.push_back(async::all_gather_into_tensor(gathered, mine, {.group = g}));
                works.push_back(
                    async::gather(mine, me == 1 ? TensorList{b[0], b[1], b[2]} : TensorList{}, {.dst = 1, .group = g}));
                works.push_back(async::scatter(
                    scattered, me == 2 ? ConstTensorList{one, two, three} : ConstTensorList{}, {.src = 2, .group = g}));
                works.push_back(async::reduce_scatter(list_part, {one, two, three}, {.group = g}));
                works.push_back(async::reduce_scatter_tensor(wide_part, wide, {.group = g}));
                works.push_back(async::all_to_all_single(swapped, wide, {.group = g}));
                works.push_back(async::all_to_all({c[0], c[1], c[2]}, {one, two, three}, {.group = g}));
                works.push_back(async::barrier({.group = g}));
                works.push_back(isend(mine, (me + 1) % n, {.tag = round, .group = g}));
                works.push_back(irecv(part, {.src = (me + 2) % n, .tag = round, .group = g}));
                if (round % 2 == 0) {
                    for (std::size_t i = works.size(); i-- > 0;) EXPECT_TRUE(works[i].wait());
                } else {
                    wait_all(works);
                }
                for (const Work& work : works) EXPECT_TRUE(work.is_completed() && work.is_success());
                const std::size_t last = count - 1;
                const int l = static_cast<int>(last);
                EXPECT_EQ(summed[last], 3 + 3 * l);
                if (me == 2) {
                    EXPECT_EQ(reduced[last], 3 + 3 * l);
                }
                EXPECT_EQ(root_data[last], 1 + l);
                EXPECT_EQ(a[2][last], 2 + l);
                EXPECT_EQ(gathered[2 * count], 2);
                if (me == 1) {
                    EXPECT_EQ(b[2][last], 2 + l);
                }
                EXPECT_EQ(scattered[last], me + 1 + l);
                EXPECT_EQ(list_part[last], 3 * (me + 1 + l));
                EXPECT_EQ(wide_part[last], 6);
                EXPECT_EQ(swapped[whole - 1], 3);
                EXPECT_EQ(c[0][last], me + 1 + l);
                EXPECT_EQ(part[last], (me + 2) % n + l);
            }
        }
    });
}

// By /proc: the niceness of this process's threads with that name.
std::vector<int> niceness_of(std::string_view name) {
    std::vector<int> found;
    for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
        std::string its_name;
        std::getline(std::ifstream(thread.path() / "comm"), its_name);
        if (its_name == name)
            found.push_back(::getpriority(PRIO_PROCESS, static_cast<id_t>(std::stoi(thread.path().filename()))));
    }
    return found;
}

// `change`: what TUTTI_PROGRESS_NICE says, or null. The thread of asynchronous operations has the niceness that a
// thread gets that asks for this much less.
void expect_niceness_of_progress_thread(const How& how, const char* change) {
    if (change != nullptr) ::setenv("TUTTI_PROGRESS_NICE", change, 1);
    run_ranks(2, how, [change](const ProcessGroup& g) {
        if (!backend_under_test().empty()) return;  // which need not have a thread
        int expected = ::getpriority(PRIO_PROCESS, 0);
        if (change != nullptr) {
            std::thread([&expected, change] {
                if (::setpriority(PRIO_PROCESS, 0, std::clamp(expected + std::stoi(change), -20, 19)) == 0)
                    expected = ::getpriority(PRIO_PROCESS, 0);
            }).join();
        }
        int x = 0;
        Work work = irecv(std::span(&x, 1), {.src = 1 - g.rank(), .group = g});
        const auto until = Clock::now() + 10s;
        std::vector<int> found;
        while (found.empty() || found != std::vector(found.size(), expected)) {
            ASSERT_LT(Clock::now(), until) << found.size() << " threads, " << ::testing::PrintToString(found);
            std::this_thread::sleep_for(1ms);
            found = niceness_of("tutti-progress");
        }
        barrier({.group = g});  // what has come before it is received needs no thread
        const int one = 1;
        send(std::span(&one, 1), 1 - g.rank(), {.group = g});
        work.wait();
        EXPECT_EQ(x, 1);
    });
    ::unsetenv("TUTTI_PROGRESS_NICE");
}

TEST_P(Works, are_driven_by_a_thread_that_is_as_nice_as_all_others) {
    expect_niceness_of_progress_thread(GetParam(), nullptr);
}

TEST_P(Works, are_driven_by_a_thread_that_is_as_nice_as_it_is_asked_to_be) {
    expect_niceness_of_progress_thread(GetParam(), "-5");
    expect_niceness_of_progress_thread(GetParam(), "3");
}

TEST_P(Works, say_what_became_of_them) {
    covers("S6-008", "S7-005", "S7-006", "S7-007", "S7-008", "S7-009", "S7-010", "S7-011", "S7-012", "S7-013", "S7-014",
           "S7-016", "S7-018", "S7-019", "S7-020", "S7-021", "A-15", "A-16", "A-50", "A-60");
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        std::vector<int> x{g.rank() + 1};
        if (g.rank() == 0) {
            Work work = async::all_reduce(x, {.group = g});
            const auto future = work.get_future();
            std::atomic<int> calls{0};
            const auto chained = future
                                     .then([&](const auto& done) {
                                         ++calls;
                                         return static_cast<const int*>(done.value()[0].data())[0];
                                     })
                                     .then([](const auto& done) { return done.value() * 10; });
            const auto broken = future.then([](const auto&) -> int { throw std::runtime_error("in a callback"); });
            EXPECT_FALSE(work.is_completed());
            EXPECT_FALSE(work.is_success());
            EXPECT_FALSE(future.done());
            EXPECT_FALSE(work.exception());
            EXPECT_THROW((void)work.result(), InvalidArgument);
            EXPECT_THROW((void)future.value(), InvalidArgument);
            EXPECT_THROW(work.wait(30ms), Timeout) << "rank 1 comes later";
            EXPECT_FALSE(work.is_completed()) << "the operation goes on";
            EXPECT_EQ(calls, 0);
            send(std::vector<int>{1}, 1, {.tag = 5, .group = g});
            EXPECT_TRUE(work.wait(20s));
            EXPECT_TRUE(work.wait()) << "again";
            work.synchronize();
            EXPECT_EQ(work.result().at(0).data(), x.data());
            EXPECT_EQ(chained.wait(), 30);
            EXPECT_EQ(calls, 1);
            EXPECT_THROW((void)broken.wait(), std::runtime_error);
            EXPECT_TRUE(future.done());
            EXPECT_EQ(future.wait().size(), 1U);
            const Work again = Work::unbox(work.boxed());
            EXPECT_TRUE(again.is_success());
            EXPECT_THROW((void)Work::unbox(std::any(5)), InvalidArgument);
            EXPECT_EQ(work.get_future_result().wait(), WorkResult::success);
        } else {
            std::vector<int> go(1);
            EXPECT_EQ(recv(go, {.src = 0, .tag = 5, .group = g}), 0);
            all_reduce(x, {.group = g});
        }
        EXPECT_EQ(x[0], 3);
        Work gate = async::barrier({.group = g});
        EXPECT_TRUE(gate.get_future().wait().empty()) << "a barrier has no outputs";
        EXPECT_THROW((void)Work().wait(), InvalidArgument);
        EXPECT_FALSE(Work());
    });
}

// A wait lasts as long as the group's timeout and ends with an error: no process is brought down, with the variable
// that asks torch.distributed for this or without it.
TEST_P(Works, are_waited_for_up_to_the_timeout_of_the_group) {
    covers("S3-015");
    for (const bool asked : {false, true}) {
        asked ? ::setenv("TORCH_NCCL_BLOCKING_WAIT", "1", 1) : ::unsetenv("TORCH_NCCL_BLOCKING_WAIT");
        run_ranks(2, GetParam(),
                  [](const ProcessGroup& g) {
                      std::vector<int> x(10);
                      if (g.rank() == 1) return std::this_thread::sleep_for(350ms);
                      const auto start = std::chrono::steady_clock::now();
                      Work work = async::all_reduce(x, {.group = g});
                      EXPECT_THROW(work.wait(), Timeout);
                      const auto waited = std::chrono::steady_clock::now() - start;
                      EXPECT_TRUE(waited >= 150ms && waited < 1150ms);
                  },
                  {.timeout = 150ms, .leave = false});
    }
    ::unsetenv("TORCH_NCCL_BLOCKING_WAIT");
}

TEST_P(Works, that_fail_keep_their_error_for_everybody_who_asks) {
    covers("S7-012", "S7-013", "S7-010", "A-16", "S17-001", "S17-002");
    run_ranks(2, GetParam(),
              [](const ProcessGroup& g) {
                  if (g.rank() == 1) return std::this_thread::sleep_for(1s);  // never comes
                  std::vector<int> x(1000);
                  Work late = async::all_reduce(x, {.group = g, .timeout = 150ms});
                  Work behind = async::barrier({.group = g});
                  const auto future = late.get_future();
                  const auto seen = future.then([](const auto& f) {
                      try {
                          (void)f.value();
                      } catch (const DistBackendError& error) {
                          return error.code();
                      }
                      return ErrorCode::internal;
                  });
                  EXPECT_THROW(late.wait(), Timeout);
                  EXPECT_THROW(late.wait(), Timeout) << "again";
                  EXPECT_TRUE(late.is_completed());
                  EXPECT_FALSE(late.is_success());
                  EXPECT_THROW(std::rethrow_exception(late.exception()), DistError);
                  EXPECT_THROW((void)late.result(), Timeout);
                  EXPECT_THROW((void)future.wait(), Timeout);
                  EXPECT_EQ(seen.wait(), ErrorCode::timeout);
                  EXPECT_EQ(late.get_future_result().wait(), WorkResult::timeout);
                  EXPECT_THROW(behind.wait(), DistBackendError) << "what was queued behind it ends too";
                  EXPECT_TRUE(behind.is_completed());
                  try {
                      wait_all({behind, late});
                      ADD_FAILURE();
                  } catch (const DistBackendError&) {
                  }
              },
              {.leave = false});
}

TEST_P(Works, may_be_waited_for_by_several_threads_and_dropped_by_all) {
    covers("S7-017", "S6-005");
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        for (int round = 0; round < 20; ++round) {
            std::vector<int> x(2000, g.rank() + 1);
            std::vector<int> dropped(2000, 1);
            (void)async::all_reduce(dropped, {.group = g});  // goes on without its handle
            Work work = async::all_reduce(x, {.group = g});
            std::vector<std::thread> waiters;
            for (int i = 0; i < 3; ++i) {
                waiters.emplace_back([work]() mutable { EXPECT_TRUE(work.wait()); });
            }
            for (auto& waiter : waiters) waiter.join();
            EXPECT_EQ(x[1999], 3);
            EXPECT_EQ(dropped[1999], 2) << "issued before, so done before";
        }
    });
}

TEST_P(Works, end_with_aborted_when_the_group_is_aborted_or_left) {
    covers("S17-002");
    run_ranks(2, GetParam(),
              [](const ProcessGroup& g) {
                  std::vector<int> x(10);
                  if (g.rank() == 1) {
                      recv(x, {.src = 0, .group = g});
                      ProcessGroup(g).abort("the test says so");
                      EXPECT_THROW(barrier({.group = g}), Aborted);
                      return std::this_thread::sleep_for(300ms);
                  }
                  Work waiting = irecv(x, {.src = 1, .group = g});
                  send(x, 1, {.group = g});
                  const auto start = Clock::now();
                  try {
                      waiting.wait();
                      ADD_FAILURE() << "nobody sent";
                  } catch (const Aborted& error) {
                      EXPECT_NE(std::string(error.what()).find("the test says so"), std::string::npos) << error.what();
                  }
                  EXPECT_LT(Clock::now() - start, patience(2s));
                  EXPECT_EQ(waiting.get_future_result().wait(), WorkResult::comm_error);
                  EXPECT_THROW(all_reduce(x, {.group = g}), Aborted);
              },
              {.leave = false});
}

TEST_P(Works, run_beside_those_of_other_worlds_in_the_same_process) {
    run_ranks(2, GetParam(), [how = GetParam()](const ProcessGroup& g) {
        // A second world over a store that the first one carries the port of; both in use at once, by two threads.
        std::vector<std::uint16_t> port(1);
        std::optional<TCPStore> server;
        if (g.rank() == 0) {
            server.emplace(TCPStoreOptions{.is_master = true});
            port[0] = server->port();
        }
        broadcast(port, {.src = 0, .group = g});
        const Store store = server ? Store(*server) : Store(TCPStore({.port = port[0]}));
        const bool tcp = how == How::tcp_processes || how == How::tcp_threads;
        ProcessGroup second({.store = PrefixStore("second", store),
                             .rank = 1 - g.rank(),
                             .world_size = 2,
                             .timeout = 20s,
                             .name = "second",
                             .transport = tcp ? TransportKind::tcp : TransportKind::shm});
        std::thread other([&] {
            for (int i = 0; i < 300; ++i) {
                std::vector<int> x(static_cast<std::size_t>(1 + i * 37), second.rank() + i);
                all_reduce(x, {.group = second});
                ASSERT_EQ(x.back(), 2 * i + 1);
            }
        });
        for (int i = 0; i < 300; ++i) {
            std::vector<int> x(static_cast<std::size_t>(1 + i * 29), g.rank() * 5 + i);
            all_reduce(x, {.group = g});
            ASSERT_EQ(x.back(), 2 * i + 5);
        }
        other.join();
        barrier({.group = second});
        second.destroy();
        barrier({.group = g});  // the store's server stays until both have left the second world
    });
}

}  // namespace
}  // namespace tutti::test
