// The memory that planned calls and replays need: after the first ones, none.
#include "conformance/world.hpp"

#include <tutti/graph.hpp>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdlib>
#include <functional>
#include <new>

namespace {
std::atomic<int> allocations{0};
}

[[gnu::noinline]] void* operator new(std::size_t bytes) {
    allocations.fetch_add(1, std::memory_order_relaxed);
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

/// With the algorithms of shared memory, which this host's measurements need not choose: those whose ranks read each
/// other's buffers send messages, which take memory.
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

}  // namespace
}  // namespace tutti::test
