// The memory that planned calls and replays need: after the first ones, none.
#include "conformance/world.hpp"

#include <tutti/graph.hpp>

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>

namespace {
std::atomic<int> allocations{0};

/// The calling threads and those of progress; others look after connections now and then.
bool counts() {
    char name[16] = "";
    ::pthread_getname_np(::pthread_self(), name, sizeof name);
    return std::strcmp(name, "tutti-progress") == 0 || std::strncmp(name, "tutti-", 6) != 0;
}

}  // namespace

[[gnu::noinline]] void* operator new(std::size_t bytes) {
    if (counts()) allocations.fetch_add(1, std::memory_order_relaxed);
    if (void* const memory = std::malloc(bytes)) return memory;
    throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
    std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
    std::free(memory);
}

namespace tutti::test {
namespace {

/// With the algorithms of shared memory, which this host's measurements need not choose.
class PlanMemory : public ::testing::TestWithParam<How> {
 public:
    PlanMemory() {
        ::setenv("TUTTI_ALGORITHM", "all_reduce=two_shot,all_gather=shared,reduce_scatter=shared,broadcast=shared", 1);
    }
    ~PlanMemory() override { ::unsetenv("TUTTI_ALGORITHM"); }
};
INSTANTIATE_TEST_SUITE_P(Ranks, PlanMemory, ::testing::Values(How::threads, How::shm_processes),
                         [](const auto& instance) { return to_string(instance.param); });

/// Of all ranks in this process, while each calls the function once: the fewest of many times. A rank that waits for
/// long looks around now and then, for which it needs memory; so some calls see more.
int allocations_of(const std::function<void()>& function) {
    int fewest = INT_MAX;
    for (int i = 0; i < 60; ++i) {
        const int before = allocations;
        function();
        fewest = std::min(fewest, allocations - before);
    }
    return fewest;
}

TEST_P(PlanMemory, of_halos_is_that_of_the_first_runs) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        const DeviceMesh mesh("cpu", RankArray::of({2}, g.ranks()), {.world = g});
        for (const std::int64_t size : {10, 120}) {  // faces that are sent at once, and that are announced
            std::vector<double> cells(static_cast<std::size_t>(size * size * size));
            for (int dim = 0; dim < 3; ++dim) {
                Plan plan = plan::exchange_halos(view(cells.data(), {size, size, size}), mesh,
                                                 {{.dim = dim, .periodic = true}});
                EXPECT_EQ(allocations_of([&] { plan.run(); }), 0) << size << "^3, dimension " << dim;
            }
        }
    });
}

TEST_P(PlanMemory, of_long_collectives_is_that_of_the_first) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        std::vector<float> x(100'000), y(200'000), part(100'000);
        Plan sum = plan::all_reduce(x, {.group = g}), gather = plan::all_gather_into_tensor(y, part, {.group = g}),
             scatter = plan::reduce_scatter_tensor(part, y, {.group = g}),
             spread = plan::broadcast(x, {.group = g, .group_src = 1});
        for (Plan* plan : {&sum, &gather, &scatter, &spread}) {
            EXPECT_EQ(allocations_of([&] { plan->run(); }), 0);
            EXPECT_EQ(allocations_of([&] { plan->start().wait(); }), 0);
        }
        Work kept = sum.start();
        kept.wait();
        EXPECT_GT(allocations_of([&] { (kept = sum.start()).wait(); }), 0) << "a Work keeps its operation";
    });
}

TEST_P(PlanMemory, of_a_replay_is_that_of_the_first) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        std::vector<float> x(100'000), y(16);
        graph::Executable step(graph::capture([&] {
            Work sum = async::all_reduce(x, {.group = g});
            graph::compute({y}, {y}, [&] { y[0] += 1; });
            all_reduce(y, {.group = g});
            sum.wait();
            all_reduce(x, {.group = g});
        }));
        EXPECT_EQ(allocations_of([&] { step.replay(); }), 0);
    });
}

TEST_P(PlanMemory, of_a_call_that_somebody_asks_about_is_left_alone) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        std::vector<float> x(100'000);
        Plan sum = plan::all_reduce(x, {.group = g});
        std::vector<Work> kept;
        for (int round = 0; round < 30; ++round) {
            std::ranges::fill(x, static_cast<float>(g.rank() + round));
            Work work = sum.start();
            if (round % 3 == 0) kept.push_back(work);
            work.wait();
            ASSERT_EQ(x.front(), static_cast<float>(1 + 2 * round));
            ASSERT_EQ(x.back(), static_cast<float>(1 + 2 * round));
            for (const Work& earlier : kept) ASSERT_TRUE(earlier.is_success());
        }
        Work last = sum.start();
        for (Work& earlier : kept) EXPECT_TRUE(earlier.is_completed()) << "though another one is under way";
        last.wait();
    });
}

/// Over TCP, where all that ranks exchange is messages, on one connection: a further one takes memory. And with shared
/// memory, by the algorithms that a host chooses.
class MessageMemory : public ::testing::TestWithParam<std::pair<How, int>> {
 public:
    MessageMemory() { ::setenv("TUTTI_TCP_CONNECTIONS", "1", 1); }
    ~MessageMemory() override { ::unsetenv("TUTTI_TCP_CONNECTIONS"); }
};
INSTANTIATE_TEST_SUITE_P(Ranks, MessageMemory,
                         ::testing::Values(std::pair(How::tcp_processes, 2), std::pair(How::tcp_processes, 3),
                                           std::pair(How::shm_processes, 3)),
                         [](const auto& instance) {
                             return to_string(instance.param.first) + std::to_string(instance.param.second);
                         });

/// Of warm calls, those that allocate, in the calling thread or the progress thread: none, but for one now and then in
/// which more messages than ever before came ahead of their receives. Beside other work these are one in ten.
constexpr int warm_calls = 60, seldom = 12;
int allocating_calls(const std::function<void()>& function) {
    int calls = 0;
    for (int i = 0; i < 2 * warm_calls; ++i) {
        const int before = allocations;
        function();
        if (i >= warm_calls && allocations != before) ++calls;
    }
    return calls;
}

constexpr std::size_t megabyte = 262'144;  // of float32

TEST_P(MessageMemory, of_plans_is_that_of_the_first_calls) {
    run_ranks(GetParam().second, GetParam().first, [](const ProcessGroup& g) {
        const int right = (g.rank() + 1) % g.size(), left = (g.rank() + g.size() - 1) % g.size();
        const std::size_t even = megabyte / static_cast<std::size_t>(g.size()) * static_cast<std::size_t>(g.size());
        std::vector<float> x(megabyte), y(even), z(even), few(10);
        Plan sum = plan::all_reduce(x, {.group = g}), spread = plan::broadcast(x, {.group = g, .group_src = 1});
        Plan exchange = plan::all_to_all_single(z, y, {.group = g}), short_sum = plan::all_reduce(few, {.group = g});
        for (Plan* plan : {&sum, &spread, &exchange, &short_sum}) {
            EXPECT_LE(allocating_calls([&] { plan->run(); }), seldom);
            EXPECT_LE(allocating_calls([&] { plan->start().wait(); }), seldom);
        }
        Plan to = plan::send(y, right, {.group = g}), from = plan::recv(z, {.src = left, .group = g});
        EXPECT_LE(allocating_calls([&] {
                      Work sent = to.start();
                      from.run();
                      sent.wait();
                  }),
                  seldom);
        Plan from_any = plan::recv(z, {.group = g});
        EXPECT_LE(allocating_calls([&] {
                      Work received = from_any.start();
                      to.run();
                      received.wait();
                      EXPECT_EQ(received.source_rank(), left);
                  }),
                  seldom);
    });
}

TEST_P(MessageMemory, of_calls_that_go_on_in_the_background_is_that_of_the_first) {
    run_ranks(GetParam().second, GetParam().first, [](const ProcessGroup& g) {
        std::vector<float> x(megabyte);
        Plan sum = plan::all_reduce(x, {.group = g});
        EXPECT_LE(allocating_calls([&] {
                      Work work = sum.start();
                      std::this_thread::sleep_for(std::chrono::milliseconds(5));
                      work.wait();
                  }),
                  seldom);
    });
}

TEST_P(MessageMemory, of_a_replay_is_that_of_the_first_ones) {
    run_ranks(GetParam().second, GetParam().first, [](const ProcessGroup& g) {
        const int right = (g.rank() + 1) % g.size(), left = (g.rank() + g.size() - 1) % g.size();
        const std::size_t even = megabyte / static_cast<std::size_t>(g.size()) * static_cast<std::size_t>(g.size());
        std::vector<float> x(megabyte), y(even), z(even), sent(megabyte), received(megabyte);
        graph::Executable step(graph::capture([&] {
            Work sum = async::all_reduce(x, {.group = g});
            graph::compute({y}, {y}, [&] { y[0] += 1; });
            sum.wait();
            all_to_all_single(z, y, {.group = g});
            broadcast(x, {.group = g, .group_src = 1});
            Work from = irecv(received, {.src = left, .group = g}), to = isend(sent, right, {.group = g});
            to.wait();
            from.wait();
        }));
        EXPECT_LE(allocating_calls([&] { step.replay(); }), seldom);
    });
}

}  // namespace
}  // namespace tutti::test
