// Windows: atomic updates of real ranks against a model and the kernels, locks made of them, sizes that differ by rank.
#include "conformance/world.hpp"
#include "reduce/reduce.hpp"
#include "support/message_of.hpp"

#include <tutti/window.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace tutti::test::atomics {
namespace {

using std::chrono::milliseconds;
using Kind = ReduceOp::Kind;

class Atomics : public ::testing::TestWithParam<How> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Atomics, ::testing::ValuesIn(every_way()),
                         [](const auto& instance) { return to_string(instance.param); });

// ---- Counters and locks

template <class T>
void count_up(const ProcessGroup& g, int turns) {
    const Window window(dtype_of<T>, {3}, {.group = g});
    std::vector<T> got;
    for (int turn = 0; turn < turns; ++turn) {
        got.push_back(window.fetch_add(T{1}, g.size() - 1, {.offset = 1}));
        const T two{2};
        window.accumulate(two, turn % g.size());
    }
    ASSERT_TRUE(std::ranges::is_sorted(got));
    EXPECT_EQ(std::ranges::adjacent_find(got), got.end());
    window.fence();
    const T all = static_cast<T>(turns * g.size());
    EXPECT_EQ(window.fetch<T>(g.size() - 1, {.offset = 1}), all);
    T sum{};
    for (int target = 0; target < g.size(); ++target) sum = static_cast<T>(sum + window.fetch<T>(target));
    EXPECT_EQ(sum, static_cast<T>(2 * all));
    for (int target = 0; target < g.size(); ++target) EXPECT_EQ(window.fetch<T>(target, {.offset = 2}), T{0});
    window.fence();
    std::vector<std::vector<T>> everybodys(static_cast<std::size_t>(g.size()), std::vector<T>(got.size()));
    std::vector<TensorView> outputs(everybodys.begin(), everybodys.end());
    all_gather(outputs, got, {.group = g});
    std::set<T> numbers;
    for (const auto& each : everybodys) numbers.insert(each.begin(), each.end());
    EXPECT_EQ(numbers.size(), got.size() * everybodys.size()) << "no number twice";
    window.close();
}

TEST_P(Atomics, many_ranks_count_with_one_counter_and_none_gets_a_number_twice) {
    run_ranks(4, GetParam(), [](const ProcessGroup& g) { count_up<std::int64_t>(g, watched ? 50 : 200); });
    run_ranks(3, GetParam(), [](const ProcessGroup& g) { count_up<std::uint32_t>(g, 50); });
    run_ranks(2, GetParam(), [](const ProcessGroup& g) { count_up<std::uint16_t>(g, 50); });
    run_ranks(2, GetParam(), [](const ProcessGroup& g) { count_up<std::uint8_t>(g, 50); });
    run_ranks(3, GetParam(), [](const ProcessGroup& g) { count_up<double>(g, 50); });
    run_ranks(3, GetParam(), [](const ProcessGroup& g) { count_up<float>(g, 50); });
}

// A rank adds to its own memory by an atomic call, while the others add to it from elsewhere.
TEST_P(Atomics, the_target_itself_and_its_threads_take_part) {
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        const Window window(int32, {1}, {.group = g});
        std::vector<std::thread> threads;
        for (int i = 0; i < 2; ++i)
            threads.emplace_back([&] {
                for (int turn = 0; turn < 100; ++turn) (void)window.fetch_add<std::int32_t>(1, 0);
            });
        for (auto& thread : threads) thread.join();
        window.fence();
        if (g.rank() == 0) {
            EXPECT_EQ(window.local().data<std::int32_t>()[0], 600);
        }
        window.close();
    });
}

// Elements beside the lock are put and read by whoever holds it: memory model, 5.
TEST_P(Atomics, compare_and_swap_makes_a_lock_that_guards_plain_elements) {
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        constexpr std::int64_t guarded = 40;  // more than a request carries
        const Window window(int64, {1 + guarded}, {.group = g});
        const int turns = watched ? 10 : 40;
        for (int turn = 0; turn < turns; ++turn) {
            while (window.compare_and_swap<std::int64_t>(0, 1 + g.rank(), 0) != 0) std::this_thread::yield();
            std::vector<std::int64_t> values(guarded);
            window.get(values, 0, {.offset = 1});
            ASSERT_EQ(std::ranges::count(values, values[0]), guarded) << "another rank wrote meanwhile";
            for (auto& value : values) ++value;
            window.put(values, 0, {.offset = 1});
            ASSERT_EQ(window.swap<std::int64_t>(0, 0), 1 + g.rank());
        }
        window.fence();
        EXPECT_EQ(window.fetch<std::int64_t>(0, {.offset = guarded}), turns * g.size());
        window.close();
    });
}

// ---- Every type and operator

std::vector<std::byte> random_elements(DType dtype, std::int64_t count, std::mt19937& random) {
    std::vector<double> numbers(static_cast<std::size_t>(count) * (is_complex(dtype) ? 2 : 1));
    for (double& number : numbers) number = static_cast<double>(random() % 9) / 2;
    std::vector<std::byte> bytes(static_cast<std::size_t>(count) * size_of(dtype));
    const auto fill = [&]<class T>(T) {
        for (std::size_t i = 0; i < bytes.size() / sizeof(T); ++i) {
            const T value(static_cast<T>(numbers[i]));
            std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
        }
    };
    const auto fill_low = [&]<class T>(T) {
        for (std::size_t i = 0; i < bytes.size() / sizeof(T); ++i) {
            const T value(static_cast<float>(numbers[i]));
            std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
        }
    };
    switch (dtype) {
        case DType::float16: fill_low(Float16()); break;
        case DType::bfloat16: fill_low(BFloat16()); break;
        case DType::float8_e4m3fn: fill_low(Float8E4M3FN()); break;
        case DType::float8_e5m2: fill_low(Float8E5M2()); break;
        case DType::float32:
        case DType::complex64: fill(float()); break;
        case DType::float64:
        case DType::complex128: fill(double()); break;
        default:
            for (auto& byte : bytes) byte = static_cast<std::byte>(random());
            if (dtype == boolean) {
                for (auto& byte : bytes) byte &= std::byte{1};
            }
    }
    return bytes;
}

void play_all_operators(const ProcessGroup& g, DType dtype, std::int64_t count) {
    std::mt19937 random(4711U + static_cast<unsigned>(dtype));
    const Window window(dtype, {count}, {.group = g});
    const auto before = random_elements(dtype, count, random), values = random_elements(dtype, count, random);
    const auto view_of = [&](const std::vector<std::byte>& bytes) { return view(bytes.data(), {count}, dtype); };
    for (int op = 0; op < reduce_op_count; ++op) {
        const auto kind = static_cast<Kind>(op);
        if (kind == Kind::avg || kind == Kind::premul_sum || !is_supported(kind, dtype)) {
            EXPECT_THROW(window.accumulate(view_of(values), 1, kind), InvalidArgument);
            continue;
        }
        window.fence();
        if (g.rank() == 0) {
            std::vector<std::byte> expected(before.size()), seen(before.size());
            const void* const both[] = {before.data(), values.data()};
            kernels::combine(kind, dtype, expected.data(), both, static_cast<std::size_t>(count));
            window.put(view_of(before), 1);
            window.get_accumulate(view_of(values), view(seen.data(), {count}, dtype), 1, kind);
            EXPECT_TRUE(seen == before) << to_string(kind) << " of " << to_string(dtype);
            window.get(view(seen.data(), {count}, dtype), 1);
            EXPECT_TRUE(seen == expected) << to_string(kind) << " of " << to_string(dtype);
            window.put(view_of(before), 1);
            window.iaccumulate(view_of(values), 1, kind).wait();
            window.iget_accumulate({}, view(seen.data(), {count}, dtype), 1, AccumulateOp::no_op).wait();
            EXPECT_TRUE(seen == expected) << to_string(kind) << " of " << to_string(dtype);
            window.accumulate(view_of(values), 1, AccumulateOp::replace);
            window.get_accumulate(view_of(before), view(seen.data(), {count}, dtype), 1, AccumulateOp::replace);
            EXPECT_TRUE(seen == values) << "replace of " << to_string(dtype);
        }
    }
    window.close();
}

TEST_P(Atomics, every_operator_of_every_type_does_what_the_kernels_do) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        for (int type = 0; type < dtype_count; ++type) {
            for (const std::int64_t count : {3, 1000}) play_all_operators(g, static_cast<DType>(type), count);
        }
    });
}

// Whole numbers, whose sums do not depend on their order.
TEST_P(Atomics, ranks_that_accumulate_vectors_at_once_lose_nothing) {
    for (const std::int64_t count : {1, 16, 5000}) {
        run_ranks(4, GetParam(), [&](const ProcessGroup& g) {
            const Window window(float32, {count}, {.group = g});
            const std::vector<float> values(static_cast<std::size_t>(count), 1.0F + static_cast<float>(g.rank()));
            const int turns = 10;
            std::vector<Work> works;
            for (int turn = 0; turn < turns; ++turn) {
                for (int target = 0; target < g.size(); ++target) works.push_back(window.iaccumulate(values, target));
            }
            wait_all(works);
            window.fence();
            for (const float value : window.local().span<float>()) ASSERT_EQ(value, turns * 10.0F);
            window.close();
        });
    }
}

TEST_P(Atomics, a_comparison_is_by_bits_and_changes_nothing_that_differs) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        const Window window(float64, {2}, {.group = g});
        if (g.rank() == 0) {
            constexpr double nan = std::numeric_limits<double>::quiet_NaN();
            EXPECT_EQ(window.compare_and_swap(1.0, 2.0, 1), 0.0);
            EXPECT_EQ(window.compare_and_swap(-0.0, 2.0, 1), 0.0);
            EXPECT_EQ(window.fetch<double>(1), 0.0);
            EXPECT_EQ(window.compare_and_swap(0.0, nan, 1), 0.0);
            EXPECT_TRUE(window.compare_and_swap(nan, 7.0, 1) != 7.0);
            double expected = 7, desired = 8, before = 0;
            window.icompare_and_swap(expected, desired, before, 1).wait();
            EXPECT_EQ(before, 7.0);
            EXPECT_EQ(window.fetch_op<double>(3, 1, ReduceOp::max), 8.0);
            EXPECT_EQ(window.fetch_op<double>(9, 1, ReduceOp::max), 8.0);
            EXPECT_EQ(window.swap(1.5, 1), 9.0);
            EXPECT_EQ(window.fetch<double>(1), 1.5);
        }
        window.fence();
        if (g.rank() == 1) {
            EXPECT_EQ(window.local().data<double>()[0], 1.5);
        }
        window.close();
    });
}

// ---- Order and errors

TEST_P(Atomics, they_keep_the_order_of_the_other_calls_to_their_target) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        constexpr std::int64_t count = 20'000;
        const Window window(int32, {count}, {.group = g});
        const std::vector<std::int32_t> ones(count, 1), twos(count, 2);
        std::vector<std::int32_t> before(count), seen(count);
        if (g.rank() == 0) {
            const Work put = window.iput(ones, 1);
            window.get_accumulate(twos, before, 1, ReduceOp::sum);
            EXPECT_TRUE(before == ones);
            const Work sum = window.iaccumulate(twos, 1);
            window.get(seen, 1);
            EXPECT_EQ(std::ranges::count(seen, 5), count);
            window.signal(1, 0);
        } else {
            window.wait_signal(0, 1);
            EXPECT_EQ(window.local().data<std::int32_t>()[count - 1], 5);
        }
        window.close();
    });
}

TEST_P(Atomics, what_does_not_fit_is_refused_with_the_argument_and_the_value) {
    run_ranks(2, GetParam(), [&](const ProcessGroup& g) {
        const Window window(float32, {g.rank() == 1 ? 4 : 0}, {.group = g});
        const Window pairs(complex128, {1}, {.group = g});
        std::vector<float> four(4), three(3);
        std::complex<double> z;
        const auto refused = [](auto call, const char* part) {
            const std::string text = message_of<InvalidArgument>(call);
            EXPECT_TRUE(has(text, part)) << text << "\n  lacks: " << part;
        };
        refused([&] { window.accumulate(four, 2); }, "Window.accumulate: target 2: expected a rank of the group");
        refused([&] { window.accumulate(four, 0); },
                "offset 0 and 4 elements: expected no more than the window's 0 elements on rank 0");
        refused([&] { (void)window.fetch_add(1.0F, 1, {.offset = 4}); },
                "Window.fetch_add: offset 4 and 1 elements: expected no more than the window's 4 elements on rank 1");
        refused([&] { (void)window.fetch_add(1.0F, 1, {.offset = -1}); }, "Window.fetch_add: offset -1");
        refused([&] { (void)window.fetch_add(1.0F, 0); }, "the window's 0 elements on rank 0");
        refused([&] { (void)window.fetch_add(1.0F, -1); }, "Window.fetch_add: target -1");
        refused([&] { (void)window.fetch_add(1, 1); }, "Window.fetch_add: tensor is int32[1]: expected float32");
        refused([&] { (void)window.fetch_op<float>(1, 1, ReduceOp::bor); }, "op bor: not defined for float32");
        refused([&] { (void)window.fetch_op<float>(1, 1, ReduceOp::avg); }, "Window.fetch_op: op avg: expected sum, ");
        refused([&] { window.accumulate(four, 1, AccumulateOp::no_op); }, "op no_op: expected one that changes");
        refused([&] { window.get_accumulate(three, four, 1, ReduceOp::sum); }, "before has 4 elements: expected 3");
        refused([&] { (void)window.compare_and_swap(1, 2, 1); }, "Window.compare_and_swap: tensor is int32[1]");
        refused([&] { (void)pairs.compare_and_swap(z, z, 1); }, "of complex128: expected a type of at most 8 bytes");
        refused([&] { (void)pairs.fetch_add(z, 1); }, "complex128: expected a type of at most 8 bytes");
        refused([&] { (void)window.icompare_and_swap(four, four, four, 1); }, "float32[4]: expected one element");
        refused([&] { (void)window.fetch<float>(1, {.timeout = milliseconds(-2)}); }, "Window.fetch: timeout -2 ms");
        pairs.close();
        window.close();
        refused([&] { (void)window.fetch<float>(1); }, "Window.fetch: the window in group");
    });
}

// ---- Sizes that differ

TEST_P(Atomics, each_rank_may_have_rows_of_its_own_and_none_at_all) {
    run_ranks(4, GetParam(), [](const ProcessGroup& g) {
        const auto rows_of = [](int rank) { return std::int64_t{1000} * rank * (rank % 3 == 0 ? 0 : 1); };  // 0 at 0, 3
        const Window window(int32, {rows_of(g.rank()), 2}, {.group = g});
        EXPECT_EQ(window.shape(), (Extents{rows_of(g.rank()), 2}));
        EXPECT_EQ(window.local().element_count(), window.element_count());
        for (int target = 0; target < g.size(); ++target) {
            EXPECT_EQ(window.shape(target), (Extents{rows_of(target), 2}));
            const std::int64_t last = window.element_count(target) - 1;
            if (window.is_mapped(target)) {
                EXPECT_EQ(window.map_remote(target).shape(), window.shape(target));
            }
            if (last >= 0) window.put_signal(std::vector{g.rank() + 1}, target, {.offset = last - g.rank()});
            const std::string text =
                message_of<InvalidArgument>([&] { window.put(std::vector{1}, target, {.offset = last + 1}); });
            EXPECT_TRUE(has(text, " elements on rank " + std::to_string(target))) << text;
        }
        if (rows_of(g.rank()) > 0) {
            window.wait_signal(0, 4);
            for (int source = 0; source < 4; ++source)
                EXPECT_EQ(window.local().data<std::int32_t>()[window.element_count() - 1 - source], source + 1);
        }
        window.close();
        const Window none(float32, {0}, {.group = g});
        EXPECT_EQ(none.element_count((g.rank() + 1) % g.size()), 0);
        none.close();
    });
}

}  // namespace
}  // namespace tutti::test::atomics
