// Windows: puts, gets and signals of real ranks against a model; the order that signals make.
#include "conformance/world.hpp"
#include "support/message_of.hpp"

#include <tutti/window.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace tutti::test::windows {
namespace {

using std::chrono::milliseconds;

class Windows : public ::testing::TestWithParam<How> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Windows, ::testing::ValuesIn(every_way()),
                         [](const auto& instance) { return to_string(instance.param); });

bool shares_memory(How how) {
    return how != How::tcp_processes && how != How::tcp_threads;
}
int right_of(const ProcessGroup& g) {
    return (g.rank() + 1) % g.size();
}
int left_of(const ProcessGroup& g) {
    return (g.rank() + g.size() - 1) % g.size();
}

// ---- Against a model

using Model = std::vector<std::vector<std::int32_t>>;  // the elements of each rank

/// One round: each rank has a slice of every rank's memory to itself, in which its puts may overlap.
class Round {
 public:
    Round(std::uint32_t seed, int ranks, std::int64_t elements)
        : random_(seed), ranks_(ranks), slice_(elements / ranks) {}

    struct Put {
        int origin, target;
        std::int64_t offset;
        std::vector<std::int32_t> values;
    };
    Put next() {
        // Without any, in a request, as a short and as a long message; all that there is room for.
        const std::int64_t sizes[] = {0, 1, 5, 16, 17, 1000, 30000, slice_};
        const auto origin = pick(ranks_), target = pick(ranks_);
        const std::int64_t count = std::min(sizes[pick(std::size(sizes))], slice_);
        Put put{static_cast<int>(origin), static_cast<int>(target), 0, {}};
        put.offset = static_cast<std::int64_t>(origin) * slice_ +
                     static_cast<std::int64_t>(pick(static_cast<std::size_t>(slice_ - count + 1)));
        put.values.resize(static_cast<std::size_t>(count));
        for (auto& value : put.values) value = static_cast<std::int32_t>(random_());
        return put;
    }

 private:
    template <class N>
    std::size_t pick(N below) {
        return random_() % static_cast<std::size_t>(below);
    }

    std::mt19937 random_;
    int ranks_;
    std::int64_t slice_;
};

void play(const ProcessGroup& g, std::uint32_t seed) {
    const std::int64_t elements = (watched ? 8000 : 70'000) * g.size();
    const Window window(int32, {elements}, {.group = g});
    Model model(static_cast<std::size_t>(g.size()), std::vector<std::int32_t>(static_cast<std::size_t>(elements)));
    std::vector<std::int32_t> seen(static_cast<std::size_t>(elements));
    for (std::uint32_t round = 0; round < 3; ++round) {
        Round puts(seed + round, g.size(), elements);
        std::vector<Work> works;
        std::vector<Round::Put> mine;
        for (int i = 0; i < 12 * g.size(); ++i) {
            Round::Put put = puts.next();
            std::ranges::copy(put.values, model[static_cast<std::size_t>(put.target)].begin() + put.offset);
            if (put.origin == g.rank()) mine.push_back(std::move(put));
        }
        for (std::size_t i = 0; i < mine.size(); ++i) {
            const auto& put = mine[i];
            if (i % 2 == 0)
                window.put(put.values, put.target, {.offset = put.offset});
            else
                works.push_back(window.iput(put.values, put.target, {.offset = put.offset}));
        }
        wait_all(works);
        window.fence();
        for (int target = 0; target < g.size(); ++target) {
            const auto& expected = model[static_cast<std::size_t>(target)];
            std::ranges::fill(seen, -1);
            window.get(seen, target);
            ASSERT_TRUE(seen == expected) << "rank " << g.rank() << " of " << g.size() << ", from rank " << target
                                          << ", round " << round << ", seed " << seed;
            std::vector<std::int32_t> part(7, -1);
            window.iget(part, target, {.offset = elements - 9}).wait();
            ASSERT_TRUE(std::equal(part.begin(), part.end(), expected.end() - 9)) << "from rank " << target;
        }
        const Tensor local = window.local();
        ASSERT_TRUE(std::ranges::equal(local.span<std::int32_t>(), model[static_cast<std::size_t>(g.rank())]));
        window.fence();
    }
    window.close();
}

TEST_P(Windows, random_puts_and_gets_leave_what_a_model_says) {
    for (const int n : {1, 2, 3, 4}) run_ranks(n, GetParam(), [&](const ProcessGroup& g) { play(g, 4711U + 10U * n); });
}

// ---- Signals

TEST_P(Windows, signals_pass_data_to_and_fro) {
    for (const std::int64_t count : {1, 100, 100'000}) {
        run_ranks(2, GetParam(), [&](const ProcessGroup& g) {
            const Window window(float64, {count}, {.group = g});
            const int peer = 1 - g.rank();
            const std::uint64_t rounds = count > 1000 ? 20 : 300;
            std::vector<double> values(static_cast<std::size_t>(count));
            const Tensor local = window.local();
            for (std::uint64_t round = 1; round <= rounds; ++round) {
                const auto wanted = static_cast<double>(round);
                if (g.rank() == 0) {
                    std::ranges::fill(values, wanted);
                    window.put_signal(values, peer, {.signal = 2});
                }
                window.wait_signal(2, round);
                for (const double value : local.span<double>()) ASSERT_EQ(value, wanted);
                if (g.rank() == 1) window.put_signal(local, peer, {.signal = 2});
            }
            EXPECT_EQ(window.read_signal(2), rounds);
            EXPECT_EQ(window.read_signal(0), 0U);
            window.close();
        });
    }
}

TEST_P(Windows, a_signal_comes_after_all_puts_before_it) {
    run_ranks(3, GetParam(), [&](const ProcessGroup& g) {
        constexpr std::int64_t length = 80'000;  // longer than what travels at once
        const Window window(float32, {3, length}, {.signals = 3, .group = g});
        const std::vector<float> values(static_cast<std::size_t>(length), 1.0F + static_cast<float>(g.rank()));
        for (int target = 0; target < g.size(); ++target) {
            const Work long_one = window.iput(values, target, {.offset = g.rank() * length});
            const Work short_one = window.iput(std::span(values).first(3), target, {.offset = g.rank() * length});
            window.signal(target, g.rank(), 5);
        }
        const Tensor local = window.local();
        for (int source = 0; source < g.size(); ++source) {
            window.wait_signal(source, 5);
            const auto row = local.span<float>().subspan(static_cast<std::size_t>(source * length), length);
            for (const float value : row) ASSERT_EQ(value, 1.0F + static_cast<float>(source)) << "from " << source;
        }
        window.fence();  // the puts' values are read until then
        window.close();
    });
}

TEST_P(Windows, calls_to_one_target_take_effect_in_their_order) {
    run_ranks(2, GetParam(), [&](const ProcessGroup& g) {
        const Window window(int32, {100'000}, {.group = g});
        std::vector<std::int32_t> ones(100'000, 1), twos(100'000, 2), seen(100'000, -1);
        window.put(ones, right_of(g));
        const Work before = window.iget(seen, right_of(g));
        window.put(twos, right_of(g));
        Work(before).wait();
        EXPECT_TRUE(seen == ones);
        window.get(seen, right_of(g));
        EXPECT_TRUE(seen == twos);
        window.close();
    });
}

TEST_P(Windows, many_ranks_raise_one_signal) {
    run_ranks(4, GetParam(), [&](const ProcessGroup& g) {
        const Window window(uint8, {0}, {.signals = 1, .group = g});
        for (int i = 0; i < 100; ++i) {
            for (int target = 0; target < g.size(); ++target) window.signal(target, 0, 1 + (i % 2));
        }
        window.wait_signal(0, 600);
        window.fence();
        EXPECT_EQ(window.read_signal(0), 600U);
        window.close();
    });
}

TEST_P(Windows, a_rank_that_sleeps_is_woken_and_its_threads_wait_beside_each_other) {
    run_ranks(2, GetParam(), [&](const ProcessGroup& g) {
        const Window window(int32, {2}, {.group = g});
        if (g.rank() == 0) {
            std::vector<std::thread> waiting;
            for (int signal = 0; signal < 3; ++signal)
                waiting.emplace_back([&, signal] { window.wait_signal(signal, 1); });
            for (auto& thread : waiting) thread.join();
        } else {
            for (int signal = 2; signal >= 0; --signal) {
                std::this_thread::sleep_for(milliseconds(100));  // time enough to fall asleep
                window.signal(0, signal);
            }
        }
        window.close();
    });
}

// ---- One-sidedness

TEST_P(Windows, the_target_need_not_call_anything) {
    run_ranks(2, GetParam(), [&](const ProcessGroup& g) {
        const Window window(int32, {50'000}, {.group = g});
        const std::vector<std::int32_t> values(50'000, 7);
        if (g.rank() == 0) {
            window.put(values, 1);
            window.flush(1);
            std::vector<std::int32_t> flag{8};
            window.put(flag, 1, {.offset = 49'999});
        } else {
            const Tensor local = window.local();
            const std::atomic_ref<std::int32_t> last(local.data<std::int32_t>()[49'999]);
            const auto limit = std::chrono::steady_clock::now() + patience(std::chrono::seconds(20));
            while (last.load(std::memory_order_acquire) != 8 && std::chrono::steady_clock::now() < limit)
                std::this_thread::sleep_for(milliseconds(1));
            ASSERT_EQ(last.load(), 8);
            EXPECT_EQ(local.data<std::int32_t>()[0], 7);
        }
        window.close();
    });
}

TEST_P(Windows, memory_of_this_host_is_mapped_and_that_of_others_is_refused) {
    run_ranks(3, GetParam(), [&](const ProcessGroup& g) {
        const Window window(int64, {4}, {.group = g});
        const int peer = right_of(g);
        EXPECT_TRUE(window.is_mapped(g.rank()));
        EXPECT_EQ(window.is_mapped(peer), shares_memory(GetParam()));
        if (window.is_mapped(peer)) {
            const Tensor there = window.map_remote(peer);
            EXPECT_EQ(there.shape(), (Extents{4}));
            there.data<std::int64_t>()[1] = 40 + g.rank();
            window.fence();
            EXPECT_EQ(window.local().data<std::int64_t>()[1], 40 + left_of(g));
        } else {
            const std::string text = message_of<InvalidArgument>([&] { (void)window.map_remote(peer); });
            EXPECT_TRUE(has(text, "Window.map_remote: rank " + std::to_string(peer) + " shares no memory")) << text;
        }
        EXPECT_NE(window.map_remote(g.rank()).raw_data(), nullptr);
        window.close();
    });
}

TEST_P(Windows, local_memory_is_an_ordinary_tensor_of_collectives_and_outlives_its_window) {
    run_ranks(2, GetParam(), [&](const ProcessGroup& g) {
        Tensor local;
        {
            const Window window(float32, {30'000}, {.group = g});
            local = window.local();
            std::ranges::fill(local.span<float>(), 1.0F);
            all_reduce(local, {.group = g});
            std::vector<float> seen(30'000);
            barrier({.group = g});
            window.get(seen, right_of(g));
            for (const float value : seen) ASSERT_EQ(value, 2.0F);
            window.close();
        }
        std::ranges::fill(local.span<float>(), 3.0F);
        all_reduce(local, {.group = g});
        EXPECT_EQ(local.data<float>()[29'999], 6.0F);
    });
}

TEST_P(Windows, several_windows_do_not_disturb_each_other) {
    run_ranks(2, GetParam(), [&](const ProcessGroup& g) {
        for (int turn = 0; turn < 3; ++turn) {
            const Window a(int32, {1000}, {.group = g}), b(int32, {1000}, {.signals = 2, .group = g});
            EXPECT_EQ(a.local().data<std::int32_t>()[999], 0) << "fresh";
            a.fence();
            const std::vector<std::int32_t> ones(1000, 1), twos(1000, 2);
            b.put_signal(twos, right_of(g));
            a.put_signal(ones, right_of(g));
            a.wait_signal(0, 1);
            EXPECT_EQ(a.local().data<std::int32_t>()[999], 1);
            b.wait_signal(0, 1);
            EXPECT_EQ(b.local().data<std::int32_t>()[999], 2);
            EXPECT_EQ(b.read_signal(1), 0U);
            b.close();
            a.close();
            a.close();  // nothing
        }
    });
}

TEST_P(Windows, a_window_that_is_dropped_leaves_its_group_as_it_was) {
    run_ranks(2, GetParam(), [&](const ProcessGroup& g) {
        for (int turn = 0; turn < 3; ++turn) {
            const Window window(float32, {100}, {.group = g});
            std::vector<float> values(100, 1.0F);
            window.put_signal(values, right_of(g));
            window.wait_signal(0, 1);
        }
        barrier({.group = g});
        std::vector<float> sum{1.0F};
        all_reduce(sum, {.group = g});
        EXPECT_EQ(sum[0], 2.0F);
    });
}

}  // namespace
}  // namespace tutti::test::windows
