// Errors of windows: calls that are refused, ranks that disagree, waits that end, signals at their limit.
#include "conformance/world.hpp"
#include "support/message_of.hpp"

#include <tutti/window.hpp>

#include <cstdint>
#include <limits>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace tutti::test::window_errors {
namespace {

using std::chrono::milliseconds;

class WindowErrors : public ::testing::TestWithParam<How> {};
INSTANTIATE_TEST_SUITE_P(Ranks, WindowErrors, ::testing::ValuesIn(every_way()),
                         [](const auto& instance) { return to_string(instance.param); });

TEST_P(WindowErrors, what_does_not_fit_is_refused_with_the_argument_and_the_value) {
    run_ranks(2, GetParam(), [&](const ProcessGroup& g) {
        const Window window(float32, {10}, {.signals = 2, .group = g});
        std::vector<float> ten(10), eleven(11);
        std::vector<double> doubles(2);
        const auto refused = [](auto call, const char* part) {
            const std::string text = message_of<InvalidArgument>(call);
            EXPECT_TRUE(has(text, part)) << text << "\n  lacks: " << part;
        };
        refused([&] { window.put(ten, 2); }, "Window.put: target 2: expected a rank of the group, 0 to 1");
        refused([&] { window.get(ten, -1); }, "Window.get: target -1: expected a rank");
        refused([&] { window.put(eleven, 1); }, "offset 0 and 11 elements: expected no more than the window's 10");
        refused([&] { window.put(ten, 1, {.offset = 1}); }, "Window.put: offset 1 and 10 elements");
        refused([&] { window.put(ten, 1, {.offset = -1}); }, "Window.put: offset -1 and 10 elements");
        refused([&] { (void)window.iget(ten, 1, {.offset = INT64_MAX}); }, "Window.iget: offset 9223372036854775807");
        refused([&] { window.put(doubles, 1); }, "tensor is float64[2]: expected float32, as the window");
        const ConstTensorView apart(ten.data(), {3}, float32, {2});
        refused([&] { window.put(apart, 1); }, "float32[3] is not in one piece: expected contiguous");
        refused([&] { window.put_signal(ten, 1, {.signal = 2}); }, "Window.put_signal: signal 2: expected 0 to 1");
        refused([&] { window.signal(1, -1); }, "Window.signal: signal -1: expected 0 to 1");
        refused([&] { window.wait_signal(3, 1); }, "Window.wait_signal: signal 3: expected 0 to 1");
        refused([&] { window.put(ten, 1, {.timeout = milliseconds(-5)}); }, "Window.put: timeout -5 ms");
        refused([&] { window.wait_signal(0, 1, milliseconds(-1)); }, "Window.wait_signal: timeout -1 ms");
        refused([&] { (void)window.map_remote(7); }, "Window.map_remote: target 7");
        refused([&] { Window(float32, {1}, {.signals = -1, .group = g}); }, "Window: signals -1: expected 0 to 65536");
        refused([&] { Window().put(ten, 1); }, "Window.put: this Window is empty");
        window.close();
        refused([&] { window.put(ten, 1); }, "Window.put: the window in group");
        refused([&] { window.wait_signal(0, 1); }, "is closed");
    });
}

TEST_P(WindowErrors, ranks_that_mean_different_windows_all_hear_of_it) {
    run_ranks(3, GetParam(), [&](const ProcessGroup& g) {
        const auto told = [&](Extents shape, int signals) {
            return message_of<CollectiveMismatch>(
                [&] { Window(float32, std::move(shape), {.signals = signals, .group = g}); });
        };
        std::string text = told(g.rank() == 2 ? Extents{2, 6} : Extents{3, 4}, 16);
        EXPECT_TRUE(has(text, "rank 0 makes float32[3, 4] with 16 signals, but rank 2 makes float32[2, 6]")) << text;
        text = told({3}, g.rank() == 0 ? 1 : 2);
        EXPECT_TRUE(has(text, "rank 0 makes float32[3] with 1 signals, but rank 1")) << text;
        const Window window(float32, {1}, {.group = g});  // the group is as good as before
        window.close();
    });
}

TEST_P(WindowErrors, errors_in_a_smaller_group_name_ranks_by_their_numbers_in_the_world) {
    run_ranks(3, GetParam(), [&](const ProcessGroup& g) {
        if (g.rank() == 0) return;
        const std::vector<int> members{g.global_rank(1), g.global_rank(2)};
        const ProcessGroup pair = new_group(members, {.use_local_synchronization = true, .world = g});
        try {
            const Window window(float32, {1}, {.signals = g.rank(), .group = pair});
            ADD_FAILURE() << "two different windows are one";
        } catch (const CollectiveMismatch& error) {
            const std::string expected = "rank " + std::to_string(members[0]) +
                                         " makes float32[1] with 1 signals, but rank " + std::to_string(members[1]);
            EXPECT_TRUE(has(error.what(), expected)) << error.what();
            EXPECT_EQ(error.context().rank, g.global_rank(g.rank()));
            EXPECT_EQ(error.context().peer, members[1]);
        }
    });
}

TEST_P(WindowErrors, a_signal_that_does_not_come_is_a_timeout_after_which_all_goes_on) {
    run_ranks(2, GetParam(), [&](const ProcessGroup& g) {
        const Window window(float32, {1}, {.group = g});
        if (g.rank() == 0) {
            const std::string text = message_of<Timeout>([&] { window.wait_signal(3, 9, milliseconds(150)); });
            EXPECT_TRUE(has(text, "wait_signal in group \"")) << text;
            EXPECT_TRUE(has(text, "(2 ranks), rank 0: signal 3 is 0, expected at least 9")) << text;
            window.signal(1, 3, 9);
            window.wait_signal(3, 9);
        } else {
            window.wait_signal(3, 9);
            window.signal(0, 3, 9);
        }
        window.close();
    });
}

TEST_P(WindowErrors, a_rank_that_waits_when_all_others_have_left_hears_of_it) {
    if (GetParam() == How::part) GTEST_SKIP() << "by design: leaving a part is no goodbye";
    run_ranks(3, GetParam(),
              [&](const ProcessGroup& g) {
                  const Window window(float32, {1}, {.group = g});
                  window.signal(0, 1);
                  if (g.rank() != 0) return ProcessGroup(g).destroy();
                  window.wait_signal(1, 3);
                  const std::string text = message_of<PeerLost>([&] { window.wait_signal(1, 4); });
                  EXPECT_TRUE(has(text, "signal 1 is 3, expected at least 4: ")) << text;
                  EXPECT_TRUE(has(text, "left")) << text;
              },
              {.leave = false});
}

// The window itself receives what other ranks ask of it, for as long as it is open.
TEST_P(WindowErrors, a_rank_that_has_one_is_not_said_to_be_in_a_call_of_it) {
    run_ranks(2, GetParam(), [&](const ProcessGroup& g) {
        const Window window(float32, {1}, {.group = g});
        barrier({.group = g});
        if (g.rank() == 1) std::this_thread::sleep_for(milliseconds(1000));
        const std::string text = message_of<Timeout>([&] { barrier({.group = g, .timeout = milliseconds(300)}); });
        EXPECT_TRUE(g.rank() == 1 || has(text, "has not called it: its last operation was #")) << text;
    });
}

TEST_P(WindowErrors, a_window_that_one_rank_lets_go_of_is_refused_by_name_and_its_group_goes_on) {
    run_ranks(3, GetParam(), [&](const ProcessGroup& g) {
        Window window(float32, {100}, {.signals = 2, .group = g});
        const Window kept(float32, {10}, {.group = g});
        std::vector<float> values(100, 1.0F);
        if (g.rank() != 1) window.put(values, 1);
        barrier({.group = g});
        if (g.rank() == 1) {
            window = {};
        } else {
            const auto refused = [&](const std::string& name, auto&& call) {
                // Calls that come before the news are carried out.
                for (int turn = 0; turn < 5000; ++turn) {
                    try {
                        call();
                    } catch (const InvalidArgument& error) {
                        EXPECT_EQ(error.context().peer, 1);
                        const std::string expected =
                            name + ": rank 1 has let go of the window of float32 [100] with 2 signals";
                        EXPECT_EQ(std::string(error.what()).find(expected), 0U) << error.what();
                        return;
                    }
                    std::this_thread::sleep_for(milliseconds(1));
                }
                ADD_FAILURE() << name << " was not refused";
            };
            refused("Window.put", [&] { window.put(values, 1); });
            refused("Window.get", [&] { window.get(values, 1); });
            refused("Window.iput_signal", [&] { window.iput_signal(values, 1, {.signal = 1}).wait(); });
            refused("Window.flush", [&] { window.flush(1); });
            refused("Window.fence", [&] { window.fence(); });
            const int other = 2 - g.rank();
            window.put_signal(values, other);  // the two go on between themselves
            window.wait_signal(0, 1);
            EXPECT_THROW(window.close(), InvalidArgument);  // of rank 1, or of the other one, which came first
        }
        kept.signal((g.rank() + 1) % g.size(), 0);
        kept.wait_signal(0, 1);
        std::vector<float> sum{1.0F};
        all_reduce(sum, {.group = g});
        EXPECT_EQ(sum[0], 3.0F);
    });
}

TEST_P(WindowErrors, a_signal_does_not_pass_its_end) {
    run_ranks(2, GetParam(), [&](const ProcessGroup& g) {
        const Window window(float32, {10}, {.signals = 2, .group = g});
        constexpr std::uint64_t end = std::numeric_limits<std::uint64_t>::max();
        if (g.rank() == 0) {
            window.signal(1, 1, end - 1);
            window.signal(1, 1);
        }
        window.fence();
        if (g.rank() == 1) {
            EXPECT_EQ(window.read_signal(1), end);
            window.wait_signal(1, end);
        }
        window.fence();
        const bool mapped = window.is_mapped(1 - g.rank());
        if (g.rank() == 0) {
            const auto raise = [&] { window.signal(1, 1, 2); };
            if (mapped)
                EXPECT_NE(message_of<InvalidArgument>(raise).find("value 2: it would raise signal 1 of rank 1"),
                          std::string::npos);
            else
                raise();  // the message is under way when the call returns
        }
        window.fence();
        if (g.rank() == 1) {
            const std::string beyond =
                "signal 1 of rank 1 is 18446744073709551615, and a rank tried to raise it beyond";
            EXPECT_NE(message_of<InvalidArgument>([&] { (void)window.read_signal(1); }).find(beyond),
                      std::string::npos);
            EXPECT_NE(message_of<InvalidArgument>([&] { window.wait_signal(1, 5); }).find(beyond), std::string::npos);
            EXPECT_EQ(window.read_signal(0), 0U);
        }
        window.close();
    });
}

}  // namespace
}  // namespace tutti::test::window_errors
