// More than 2^31 elements, of one byte each, on two ranks: counts, offsets and lengths that do not fit into 32 bits.
// Its own program, labelled slow: it needs up to 7 GB of memory and half a minute.
#include "conformance/world.hpp"
#include "support/covers.hpp"

#include <cstdint>
#include <fstream>

namespace tutti::test {
namespace {

constexpr std::int64_t large = (std::int64_t{1} << 31) + 5;

class Large : public ::testing::TestWithParam<How> {
 protected:
    void SetUp() override {
        std::ifstream info("/proc/meminfo");
        for (std::string name, unit; info >> name;) {
            std::int64_t kilobytes = 0;
            if (!(info >> kilobytes)) break;
            std::getline(info, unit);
            if (name == "MemAvailable:" && kilobytes < 8'000'000)
                GTEST_SKIP() << "needs 8 GB of memory, and " << kilobytes / 1'000'000 << " are free";
        }
    }
};
INSTANTIATE_TEST_SUITE_P(Ranks, Large, ::testing::Values(How::shm_processes, How::tcp_processes),
                         [](const auto& instance) { return to_string(instance.param); });

std::uint8_t value(int rank, std::int64_t i) {
    const auto u = static_cast<std::uint64_t>(i);
    return static_cast<std::uint8_t>(u * 7 + (u >> 20) + static_cast<std::uint64_t>(rank) * 50);
}
void fill(const Tensor& tensor, int rank) {
    auto* data = tensor.data<std::uint8_t>();
    const std::int64_t count = tensor.element_count();
    for (std::int64_t i = 0; i < count; ++i) data[i] = value(rank, i);
}
// The number of the first wrong element, or -1.
template <class F>
std::int64_t first_wrong(const std::uint8_t* data, std::int64_t count, F expected) {
    constexpr std::int64_t part = 1 << 16;  // without a branch inside, so that it goes fast
    for (std::int64_t from = 0; from < count; from += part) {
        const std::int64_t to = std::min(from + part, count);
        bool same = true;
        for (std::int64_t i = from; i < to; ++i) same &= data[i] == expected(i);
        for (std::int64_t i = from; i < to && !same; ++i) {
            if (data[i] != expected(i)) return i;
        }
    }
    return -1;
}

TEST_P(Large, sums_and_broadcasts_and_messages_arrive_whole) {
    covers("S8-004", "S8-006", "S6-001", "S6-002");
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        const Tensor data = empty(uint8, Extents::of(large));
        const TensorView view = data.view();
        const auto* at = data.data<std::uint8_t>();
        fill(data, g.rank());
        all_reduce(view, {.group = g});
        ASSERT_EQ(
            first_wrong(at, large, [](std::int64_t i) { return static_cast<std::uint8_t>(value(0, i) + value(1, i)); }),
            -1);
        fill(data, g.rank());
        broadcast(view, {.src = 1, .group = g});
        ASSERT_EQ(first_wrong(at, large, [](std::int64_t i) { return value(1, i); }), -1);
        if (g.rank() == 0) {
            fill(data, 5);
            send(view, 1, {.group = g});
        } else {
            EXPECT_EQ(recv(view, {.group = g}), 0);
            ASSERT_EQ(first_wrong(at, large, [](std::int64_t i) { return value(5, i); }), -1);
        }
    });
}

TEST_P(Large, gathered_tensors_and_uneven_splits_keep_their_offsets) {
    covers("S8-013", "S8-026", "S8-027");
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        const std::int64_t half = large / 2 + 1;
        const Tensor all = empty(uint8, Extents::of(2 * half));
        Tensor mine = empty(uint8, Extents::of(half));
        fill(mine, g.rank());
        all_gather_into_tensor(all.view(), mine, {.group = g});
        const auto* at = all.data<std::uint8_t>();
        for (int r = 0; r < 2; ++r) {
            ASSERT_EQ(first_wrong(at + r * half, half, [r](std::int64_t i) { return value(r, i); }), -1) << r;
        }
        // Nearly everything goes from rank 0 to rank 1, which has it start beyond 2^30.
        mine = {};
        const std::int64_t big = large - 3, small = 3;
        const Tensor out = empty(uint8, Extents::of(g.rank() == 0 ? small : 2 * half));
        using Sizes = std::vector<std::int64_t>;
        const TensorView input(all.raw_data(), Extents::of(g.rank() == 0 ? big : 2 * half - big + small), uint8);
        const Sizes in = g.rank() == 0 ? Sizes{0, big} : Sizes{small, 2 * half - big};
        const Sizes into = g.rank() == 0 ? Sizes{0, small} : Sizes{big, 2 * half - big};
        all_to_all_single(out.view(), input, {.output_split_sizes = into, .input_split_sizes = in, .group = g});
        const auto in_all = [half](std::int64_t i) { return i < half ? value(0, i) : value(1, i - half); };
        const auto* got = out.data<std::uint8_t>();
        if (g.rank() == 0) {
            ASSERT_EQ(first_wrong(got, small, in_all), -1);
        } else {
            ASSERT_EQ(first_wrong(got, big, in_all), -1);
            ASSERT_EQ(first_wrong(got + big, 2 * half - big, [&](std::int64_t i) { return in_all(small + i); }), -1);
        }
    });
}

}  // namespace
}  // namespace tutti::test
