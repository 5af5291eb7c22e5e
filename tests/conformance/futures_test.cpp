// Futures by themselves, and the continuations of operations on real ranks.
#include "conformance/world.hpp"
#include "support/covers.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <iterator>
#include <latch>
#include <memory>
#include <string>

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

TEST(Futures, hand_values_and_errors_down_a_chain) {
    covers("S7-018", "S7-019", "S7-020", "S7-021");
    const Future<int> first;
    int seen = 0;
    const Future<std::string> text = first.then([](const auto& f) { return f.value() + 1; }).then([](const auto& f) {
        return std::to_string(f.value());
    });
    const Future<void> end = text.then([&](const auto& f) { seen = static_cast<int>(f.value().size()); });
    EXPECT_FALSE(end.done());
    first.set_value(99);
    end.wait();
    end.value();
    EXPECT_EQ(text.wait(), "100");
    EXPECT_EQ(seen, 3);

    const Future<int> failing;
    const auto skipped = failing.then([](const auto& f) { return f.value() * 2; });
    const auto mended = skipped.then([](const auto& f) {
        try {
            return f.value();
        } catch (const std::out_of_range&) {
            return -1;
        }
    });
    failing.set_exception(std::make_exception_ptr(std::out_of_range("broken")));
    EXPECT_THROW((void)skipped.wait(), std::out_of_range) << "what a continuation does not catch goes on";
    EXPECT_EQ(mended.wait(), -1);
}

TEST(Futures, complete_once) {
    const Future<int> future;
    future.set_value(1);
    future.set_value(2);
    future.set_exception(std::make_exception_ptr(std::runtime_error("late")));
    EXPECT_EQ(future.wait(), 1);
    const Future<void> nothing;
    EXPECT_THROW(nothing.set_exception(nullptr), InvalidArgument);
    EXPECT_FALSE(nothing.done());
    EXPECT_THROW(nothing.value(), InvalidArgument);
    nothing.set_value();
    EXPECT_TRUE(nothing.done());
}

TEST(Futures, run_every_callback_whatever_the_others_do) {
    const Future<int> future;
    int calls = 0;
    future.add_done_callback([](const auto&) { throw std::runtime_error("nobody sees this"); });
    future.add_done_callback([&, owned = std::make_unique<int>(5)](const auto& f) { calls += f.value() * *owned; });
    const Future<int> moved_in = future.then([owned = std::make_unique<int>(7)](const auto&) { return *owned; });
    future.set_value(2);
    EXPECT_EQ(calls, 10);
    EXPECT_EQ(moved_in.value(), 7);
    future.add_done_callback([&](const auto&) { ++calls; });
    EXPECT_EQ(calls, 11) << "at once when it is done already";
}

TEST(Futures, hold_values_that_can_only_be_moved) {
    const Future<std::unique_ptr<int>> future;
    future.set_value(std::make_unique<int>(3));
    EXPECT_EQ(*future.wait(), 3);
    EXPECT_EQ(future.then([](const auto& f) { return *f.value(); }).value(), 3);
}

TEST(Futures, are_collected) {
    std::vector<Future<int>> futures(3);
    const auto all = collect_all(futures);
    futures[2].set_value(2);
    futures[0].set_value(0);
    EXPECT_FALSE(all.done());
    futures[1].set_exception(std::make_exception_ptr(std::runtime_error("one of three")));
    ASSERT_TRUE(all.done());
    EXPECT_EQ(all.value().size(), 3U);
    EXPECT_EQ(all.value()[2].value(), 2) << "in the order of the list";
    EXPECT_THROW((void)all.value()[1].value(), std::runtime_error);
    EXPECT_THROW((void)wait_all(futures), std::runtime_error);
    EXPECT_TRUE(collect_all(std::vector<Future<int>>{}).done());
    EXPECT_TRUE(wait_all(std::vector<Future<int>>{}).empty());
    EXPECT_EQ(wait_all(std::vector<Future<int>>{futures[2], futures[0]}), (std::vector<int>{2, 0}));

    std::vector<Future<void>> nothing(2);
    const auto both = collect_all(nothing);
    for (const auto& future : nothing) future.set_value();
    EXPECT_TRUE(both.done());
    wait_all(nothing);
}

TEST(Futures, wait_for_all_before_they_throw) {
    const Future<int> bad, late;
    bad.set_exception(std::make_exception_ptr(std::runtime_error("first")));
    std::thread other([&] {
        std::this_thread::sleep_for(50ms);
        late.set_value(1);
    });
    EXPECT_THROW((void)wait_all(std::vector<Future<int>>{bad, late}), std::runtime_error);
    EXPECT_TRUE(late.done());
    other.join();
}

TEST(Futures, lose_no_callback_when_threads_race_to_complete_them) {
    for (int round = 0; round < 200; ++round) {
        const Future<int> future;
        std::atomic<int> calls{0};
        std::latch start(3);
        std::array<std::thread, 3> threads;
        for (int i = 0; i < 3; ++i) {
            threads[static_cast<std::size_t>(i)] = std::thread([&, i] {
                start.arrive_and_wait();
                if (i == 2) {
                    future.set_value(4);
                } else {
                    for (int k = 0; k < 10; ++k) future.add_done_callback([&](const auto& f) { calls += f.value(); });
                }
            });
        }
        for (auto& thread : threads) thread.join();
        ASSERT_EQ(calls, 80);
    }
}

class Continuations : public ::testing::TestWithParam<How> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Continuations, ::testing::ValuesIn(every_way()),
                         [](const auto& instance) { return to_string(instance.param); });

TEST_P(Continuations, may_start_operations_and_wait_for_them) {
    covers("S7-009", "S7-021");
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        for (const std::size_t count : {1, 5000, 90'000}) {
            std::vector<int> x(count, 1), y(count, g.rank());
            Work work = async::all_reduce(x, {.group = g});
            const auto done = work.get_future().then([&](const auto& f) {
                EXPECT_EQ(f.value().size(), 1U);
                broadcast(y, {.src = 1, .group = g});
                Work more = async::all_reduce(x, {.group = g});
                return more.wait();
            });
            EXPECT_TRUE(done.wait());
            EXPECT_EQ(x[count - 1], 9);
            EXPECT_EQ(y[count - 1], 1);
        }
    });
}

TEST_P(Continuations, run_in_the_order_of_the_operations) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        std::vector<int> order;
        std::vector<std::vector<int>> data(40, std::vector<int>(100, 1));
        std::vector<Future<void>> ends;
        std::vector<int> go(1);
        if (g.rank() == 1) recv(go, {.src = 0, .group = g});  // so that rank 0's are all in flight
        for (int i = 0; i < 40; ++i) {
            Work work = async::all_reduce(data[static_cast<std::size_t>(i)], {.group = g});
            if (g.rank() == 0) ends.push_back(work.get_future().then([&order, i](const auto&) { order.push_back(i); }));
        }
        if (g.rank() == 0) send(go, 1, {.group = g});
        wait_all(ends);
        EXPECT_TRUE(std::ranges::is_sorted(order));
        EXPECT_EQ(order.size(), ends.size());
        barrier({.group = g});
        EXPECT_EQ(data[39][99], 2);
    });
}

TEST_P(Continuations, run_when_an_operation_fails_and_may_drop_the_last_handles) {
    run_ranks(2, GetParam(),
              [](const ProcessGroup& g) {
                  if (g.rank() == 1) return std::this_thread::sleep_for(600ms);  // never comes
                  auto x = std::make_shared<std::vector<int>>(1000);
                  auto work = std::make_unique<Work>(async::all_reduce(*x, {.group = g, .timeout = 100ms}));
                  auto group = std::make_unique<ProcessGroup>(g);
                  const auto future = work->get_future();
                  const auto seen =
                      future.then([x, work = std::move(work), group = std::move(group)](const auto& f) mutable {
                          work.reset();
                          group.reset();
                          try {
                              (void)f.value();
                          } catch (const DistError& error) {
                              return error.code();
                          }
                          return ErrorCode::internal;
                      });
                  EXPECT_EQ(seen.wait(), ErrorCode::timeout);
              },
              {.leave = false});
}

}  // namespace
}  // namespace tutti::test
