// Coroutines that wait for operations and futures: values, errors, and who is gone by the time that something
// completes.
#include "conformance/world.hpp"
#include "support/covers.hpp"

#include <atomic>
#include <coroutine>
#include <latch>
#include <memory>
#include <string>

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

Future<int> doubled(Future<int> future) {
    co_return 2 * co_await future;
}
Future<void> forward(Future<void> future) {
    co_await future;
}
Future<std::string> caught(Future<int> future) {
    try {
        co_return std::to_string(co_await doubled(std::move(future)));
    } catch (const std::out_of_range& error) {
        co_return error.what();
    }
}

template <class T>
concept Awaitable = requires(T object) {
    static_cast<T&&>(object).operator co_await();
};
static_assert(Awaitable<Work&> && Awaitable<const Work&>);
#if defined(__clang__) || __GNUC__ >= 13
static_assert(Awaitable<Work>);
#else
static_assert(!Awaitable<Work>, "these compilers destroy its options twice");
#endif

TEST(Coroutines, wait_for_futures) {
    const Future<int> later;
    const auto result = caught(later);
    EXPECT_FALSE(result.done());
    later.set_value(21);
    EXPECT_EQ(result.wait(), "42");
    EXPECT_EQ(caught(later).value(), "42") << "one that is done takes no time";

    const Future<int> failing;
    const auto excuse = caught(failing);
    failing.set_exception(std::make_exception_ptr(std::out_of_range("no luck")));
    EXPECT_EQ(excuse.wait(), "no luck");
    EXPECT_THROW((void)doubled(failing).wait(), std::out_of_range);

    const Future<void> signal;
    const auto end = forward(signal);
    signal.set_value();
    EXPECT_TRUE(end.done());
    const Future<void> broken;
    broken.set_exception(std::make_exception_ptr(std::runtime_error("x")));
    EXPECT_THROW(forward(broken).wait(), std::runtime_error);

    const Future<std::unique_ptr<int>> movable;
    movable.set_value(std::make_unique<int>(6));
    const auto looks = [](Future<std::unique_ptr<int>> f) -> Future<int> { co_return *co_await f; };
    EXPECT_EQ(looks(movable).value(), 6);
}

TEST(Coroutines, have_left_no_variables_when_their_future_is_done) {
    struct Marker {
        std::atomic<int>& alive;
        explicit Marker(std::atomic<int>& count) : alive(count) { ++alive; }
        Marker(const Marker&) = delete;
        ~Marker() { --alive; }
    };
    std::atomic<int> alive{0};
    const Future<void> signal;
    const auto body = [](Future<void> wanted, std::atomic<int>& count) -> Future<void> {
        const Marker marker(count);
        co_await wanted;
    };
    const auto end = body(signal, alive);
    EXPECT_EQ(alive, 1);
    const auto left = end.then([&](const auto&) { return alive.load(); });
    signal.set_value();
    EXPECT_EQ(left.wait(), 0);
}

/// A coroutine whose owner may end it while it waits.
struct Owned {
    struct promise_type {
        Owned get_return_object() { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
        std::suspend_never initial_suspend() noexcept { return {}; }
        std::suspend_always final_suspend() noexcept { return {}; }
        void return_void() {}
        void unhandled_exception() { std::terminate(); }
    };
    std::coroutine_handle<promise_type> handle;
};
Owned raise_when_done(Future<int> future, bool& done) {
    co_await future;
    done = true;
}

TEST(Coroutines, that_are_destroyed_while_they_wait_are_not_resumed) {
    const Future<int> future;
    bool ended = false, kept = false;
    const Owned first = raise_when_done(future, ended);
    const Owned second = raise_when_done(future, kept);
    first.handle.destroy();
    future.set_value(1);
    EXPECT_FALSE(ended);
    EXPECT_TRUE(kept);
    second.handle.destroy();
}

TEST(Coroutines, lose_no_wakeup_when_completion_races_with_the_wait) {
    for (int round = 0; round < 500; ++round) {
        Future<int> future;
        std::latch start(2);
        std::thread completer([&start, future] {
            start.arrive_and_wait();
            future.set_value(8);
        });
        start.arrive_and_wait();
        const auto result = doubled(std::exchange(future, {}));  // the coroutine's is the last copy but the thread's
        ASSERT_EQ(result.wait(), 16);
        completer.join();
    }
}

class AwaitedWorks : public ::testing::TestWithParam<How> {};
INSTANTIATE_TEST_SUITE_P(Ranks, AwaitedWorks, ::testing::ValuesIn(every_way()),
                         [](const auto& instance) { return to_string(instance.param); });

Future<long> train(ProcessGroup g, std::size_t count, int steps) {
    std::vector<long> x(count, 1), copy(count);
    for (int step = 0; step < steps; ++step) {
        const Work sum = async::all_reduce(x, {.group = g});
        const auto outputs = co_await sum;
        if (outputs.size() != 1 || outputs[0].data() != x.data()) throw std::logic_error("not the caller's buffer");
        const Work gate = async::barrier({.group = g});
        co_await gate;
        for (long& value : x) value = value / g.size() + 1;
        const int next = (g.rank() + 1) % g.size(), previous = (g.rank() + g.size() - 1) % g.size();
        const Work sending = isend(x, next, {.group = g});
        const Work receiving = irecv(copy, {.src = previous, .group = g});
        co_await receiving;
        co_await sending;
        if (copy != x) throw std::logic_error("ranks differ");
        broadcast(copy, {.src = 0, .group = g});  // blocking calls work as well
    }
    co_return x[count - 1];
}

TEST_P(AwaitedWorks, carry_a_whole_program) {
    covers("S7-002", "S7-009", "S7-017");
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        for (const std::size_t count : {1, 3000, 70'000}) {
            const int steps = count > 3000 ? 4 : 20;
            EXPECT_EQ(train(g, count, steps).wait(), 1 + steps);
        }
    });
}

Future<ErrorCode> code_of(Work work) {
    const auto outputs = std::exchange(work, {}).get_future();  // nobody holds the Work while it waits
    try {
        co_await outputs;
    } catch (const DistError& error) {
        co_return error.code();
    }
    co_return ErrorCode::internal;
}

Future<void> await_it(Work work) {
    co_await work;
}

TEST_P(AwaitedWorks, throw_their_error_into_the_coroutine) {
    covers("S7-013", "S17-002");
    run_ranks(2, GetParam(),
              [](const ProcessGroup& g) {
                  EXPECT_THROW(await_it(Work()).wait(), InvalidArgument) << "an empty one, before anything waits";
                  if (g.rank() == 1) return std::this_thread::sleep_for(600ms);  // never comes
                  std::vector<int> x(1000);
                  const auto timed_out = code_of(async::all_reduce(x, {.group = g, .timeout = 100ms}));
                  Work later = async::barrier({.group = g});
                  const auto behind = code_of(async::barrier({.group = g}));
                  EXPECT_EQ(timed_out.wait(), ErrorCode::timeout);
                  EXPECT_NE(behind.wait(), ErrorCode::internal) << "what was queued behind it ends too";
                  const auto uncaught = await_it(std::exchange(later, {}));
                  EXPECT_THROW(uncaught.wait(), DistBackendError);
              },
              {.leave = false});
}

TEST_P(AwaitedWorks, end_with_aborted_when_the_group_is_left_by_another_thread) {
    run_ranks(2, GetParam(),
              [](const ProcessGroup& g) {
                  std::vector<int> x(10), here(1);
                  if (g.rank() == 1) {
                      send(here, 0, {.group = g});
                      return std::this_thread::sleep_for(400ms);
                  }
                  recv(here, {.src = 1, .group = g});  // it has joined
                  const auto code = code_of(irecv(x, {.src = 1, .group = g}));
                  std::thread([g] { ProcessGroup(g).abort("the test says so"); }).join();
                  EXPECT_EQ(code.wait(), ErrorCode::aborted);
              },
              {.leave = false});
}

Owned raise_when_complete(Work work, std::atomic<bool>& done) {
    co_await work;
    done = true;
}

TEST_P(AwaitedWorks, go_on_when_the_coroutine_is_destroyed) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        std::vector<int> x(100, 1), go(1);
        if (g.rank() == 1) {
            recv(go, {.src = 0, .group = g});
            return all_reduce(x, {.group = g});
        }
        std::atomic<bool> resumed{false};
        Work work = async::all_reduce(x, {.group = g});
        raise_when_complete(work, resumed).handle.destroy();
        const auto after = work.get_future().then([&](const auto&) { return resumed.load(); });
        send(go, 1, {.group = g});
        work.wait();
        EXPECT_FALSE(after.wait());
        EXPECT_EQ(x[99], 2);
    });
}

}  // namespace
}  // namespace tutti::test
