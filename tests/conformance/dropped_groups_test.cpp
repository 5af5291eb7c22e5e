// Groups whose last handle goes while the library still works on them.
#include "conformance/world.hpp"
#include "support/forwarding_store.hpp"

#include <array>
#include <atomic>
#include <filesystem>
#include <future>
#include <iterator>
#include <latch>
#include <memory>
#include <string>
#include <utility>

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

std::ptrdiff_t threads_of_this_process() {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"), std::filesystem::directory_iterator());
}

class DroppedGroups : public ::testing::TestWithParam<How> {};  // the test looks at the threads of one process
INSTANTIATE_TEST_SUITE_P(Ranks, DroppedGroups, ::testing::Values(How::threads, How::tcp_threads),
                         [](const auto& instance) { return to_string(instance.param); });

TEST_P(DroppedGroups, finish_their_operations_and_leave_no_thread) {
    std::thread([] {}).join();  // with the first one come those of a sanitizer
    const auto before = threads_of_this_process();
    std::array<std::vector<int>, 2> x;
    std::atomic<int> ended{0};
    run_ranks(2, GetParam(),
              [&](const ProcessGroup& g) {
                  auto& mine = x[static_cast<std::size_t>(g.rank())];
                  mine.assign(100'000, 1);
                  if (g.rank() == 1) std::this_thread::sleep_for(100ms);
                  const Work work = async::all_reduce(mine, {.group = g, .timeout = 10s});
                  const auto future = work.get_future();
                  future.add_done_callback([&](const auto&) { ++ended; });
                  if (g.rank() == 1) future.wait();
              },
              {.leave = false});
    for (int i = 0; i < 1000 && (ended < 2 || threads_of_this_process() > before); ++i)
        std::this_thread::sleep_for(10ms);
    EXPECT_EQ(ended, 2);
    EXPECT_EQ(x[0].back(), 2);
    EXPECT_LE(threads_of_this_process(), before) << "a group's threads are left";
}

// A store in which the first who says what rank 1 was doing waits for a word.
class SlowStore : public ForwardingStore {
 public:
    std::promise<void> reached;
    std::latch go_on{1};

    void set(std::string_view key, std::string_view value, Milliseconds timeout) override {
        if (key.ends_with("tail/1") && !std::exchange(met_, true)) {
            reached.set_value();
            go_on.wait();
        }
        ForwardingStore::set(key, value, timeout);
    }

 private:
    bool met_ = false;
};

TEST(DroppedGroups, may_be_held_last_by_the_thread_that_hears_of_a_failure) {
    const auto slow = std::make_shared<SlowStore>();
    const auto reached = slow->reached.get_future();
    std::promise<void> left;
    std::thread failing([&] {
        const ProcessGroup g(
            {.store = Store(slow), .rank = 0, .world_size = 2, .timeout = 300ms, .transport = TransportKind::shm});
        EXPECT_THROW(barrier({.group = g}), Timeout);  // rank 1 hears of it, and says what it was doing
        left.set_value();
    });
    {
        const ProcessGroup g(
            {.store = Store(slow), .rank = 1, .world_size = 2, .timeout = 300ms, .transport = TransportKind::shm});
        reached.wait();
    }
    slow->go_on.count_down();
    EXPECT_EQ(left.get_future().wait_for(20s), std::future_status::ready);
    failing.join();
}

}  // namespace
}  // namespace tutti::test
