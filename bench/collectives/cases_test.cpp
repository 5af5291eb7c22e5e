// The benchmark's check of results: that it counts wrong elements. Threads: each test runs its ranks as threads.
#include "bench/collectives/bench.hpp"
#include "bench/collectives/contents.hpp"

#include <tutti/distributed.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace tutti::bench {
namespace {

constexpr int ranks = 3;
constexpr std::uint64_t bytes = 4800;

void on_ranks(const std::function<void(const ProcessGroup&)>& body) {
    const HashStore store;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
        threads.emplace_back([&, rank] {
            ProcessGroup group({.store = store, .rank = rank, .world_size = ranks});
            body(group);
            group.destroy();
        });
    }
    for (std::thread& thread : threads) thread.join();
}

// Another value of any type: zero becomes one, everything else zero.
void corrupt(Tensor& tensor, std::uint64_t i) {
    auto* element = static_cast<unsigned char*>(tensor.raw_data()) + i * size_of(tensor.dtype());
    const std::vector<unsigned char> zero(size_of(tensor.dtype()));
    const bool is_zero = std::memcmp(element, zero.data(), zero.size()) == 0;
    std::memset(element, 0, zero.size());
    if (is_zero) element[0] = 1;
}

class Check : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, Check, ::testing::ValuesIn(collective_names()));

TEST_P(Check, EveryCorruptedElementIsCounted) {
    for (const DType dtype : {DType::float32, DType::boolean, DType::bfloat16, DType::int64, DType::complex64}) {
        on_ranks([&](const ProcessGroup& group) {
            const auto work = make_case(GetParam(), bytes, dtype, ReduceOp::sum, group);
            work->fill();
            work->run();
            EXPECT_EQ(work->wrong(), 0U) << to_string(dtype) << ", rank " << group.rank();
            const auto count = static_cast<std::uint64_t>(work->output().element_count());
            std::uint64_t corrupted = 0;
            for (std::uint64_t i = 0; i < count; i += 7) {
                corrupt(work->output(), i);
                ++corrupted;
            }
            EXPECT_EQ(work->wrong(), corrupted) << to_string(dtype) << ", rank " << group.rank();
        });
    }
}

TEST_P(Check, ACollectiveThatDoesNothingIsWrong) {
    if (GetParam() == "barrier") GTEST_SKIP() << "by design: a barrier has no output";
    for (const DType dtype : {DType::float32, DType::boolean, DType::int8}) {
        std::atomic<std::uint64_t> wrong = 0;
        on_ranks([&](const ProcessGroup& group) {
            const auto work = make_case(GetParam(), bytes, dtype, ReduceOp::max, group);
            work->fill();
            wrong += work->wrong();
        });
        EXPECT_GT(wrong, 0U) << to_string(dtype);
    }
}

TEST(Contents, GoOnOverARunAsTheyWouldElementByElement) {
    constexpr std::uint64_t count = 2000;
    for (const std::uint64_t from : {0U, 1U, 511U, 512U, 1023U, 4803U}) {
        std::uint64_t expected_at = 7;
        for_each_element({7, count, 0, from}, [&](std::uint64_t at, std::size_t c) {
            EXPECT_EQ(at, expected_at);
            EXPECT_EQ(c, class_of(from + at - 7)) << "element " << at << " from " << from;
            ++expected_at;
        });
        EXPECT_EQ(expected_at, 7 + count);
    }
}

TEST(Contents, EveryRankListsACollectiveUnderTheSameSize) {
    for (const Layout& layout : layouts) {
        for (int rank = 0; rank < ranks; ++rank) {
            const Counts counts = counts_of(layout, rank, ranks, 1000);
            EXPECT_EQ(counts.whole, counts_of(layout, 0, ranks, 1000).whole) << layout.collective;
            std::uint64_t covered = 0;
            for (const auto& run : outcome(layout, rank, ranks, counts)) covered += run.count;
            EXPECT_EQ(covered, counts.out) << layout.collective << ", rank " << rank;
        }
    }
}

TEST(Sizes, AListReplacesTheRange) {
    Options options{.min_bytes = 8, .max_bytes = 64, .factor = 4};
    EXPECT_EQ(sizes_of(options), (std::vector<std::uint64_t>{8, 32}));
    options.sizes = {8, 4096};
    EXPECT_EQ(sizes_of(options), (std::vector<std::uint64_t>{8, 4096}));
}

TEST(CheckOfComplexNumbers, AnImaginaryPartIsWrong) {
    on_ranks([](const ProcessGroup& group) {
        const auto work = make_case("all_gather", bytes, DType::complex64, ReduceOp::sum, group);
        work->fill();
        work->run();
        static_cast<float*>(work->output().raw_data())[11] = 0.5F;
        EXPECT_EQ(work->wrong(), 1U);
    });
}

}  // namespace
}  // namespace tutti::bench
