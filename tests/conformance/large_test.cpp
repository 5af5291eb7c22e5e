// More than 2^31 elements, of one byte each, on two ranks: counts, offsets and lengths that do not fit into 32 bits.
// Its own program, labelled slow: it needs up to 7 GB of memory and half a minute.
#include "conformance/world.hpp"
#include "support/covers.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
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

// A table that repeats: comparing gigabytes costs no more than reading them. Its length is prime, so that no shift by a
// block, a page or 2^32 looks like the right place.
using Table = std::vector<std::uint8_t>;
constexpr std::int64_t period = 1'000'003;

Table table_of(int seed) {
    Table table(static_cast<std::size_t>(period));
    std::uint64_t state = static_cast<std::uint64_t>(seed) + 1;
    for (auto& value : table) {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        value = static_cast<std::uint8_t>(state >> 56);
    }
    return table;
}
// Calls f(at, table, bytes) for the pieces of `count` bytes, the first of which is number `from` of the table.
template <class F>
void by_pieces(const Table& table, std::int64_t from, std::int64_t count, F f) {
    for (std::int64_t at = 0; at < count;) {
        const std::int64_t phase = (from + at) % period, bytes = std::min(period - phase, count - at);
        f(at, table.data() + phase, static_cast<std::size_t>(bytes));
        at += bytes;
    }
}
void fill(const Tensor& tensor, const Table& table) {
    by_pieces(table, 0, tensor.element_count(), [&](std::int64_t at, const std::uint8_t* from, std::size_t bytes) {
        std::memcpy(tensor.data<std::uint8_t>() + at, from, bytes);
    });
}
// The start of the first piece with a wrong byte, or -1.
std::int64_t first_wrong(const std::uint8_t* data, const Table& table, std::int64_t from, std::int64_t count) {
    std::int64_t wrong = -1;
    by_pieces(table, from, count, [&](std::int64_t at, const std::uint8_t* expected, std::size_t bytes) {
        if (wrong < 0 && std::memcmp(data + at, expected, bytes) != 0) wrong = at;
    });
    return wrong;
}

TEST_P(Large, sums_and_broadcasts_and_messages_arrive_whole) {
    covers("S8-004", "S8-006", "S6-001", "S6-002");
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        const Tensor data = empty(uint8, Extents::of(large));
        const TensorView view = data.view();
        const auto* at = data.data<std::uint8_t>();
        const Table tables[] = {table_of(0), table_of(1), table_of(2)};
        const auto me = static_cast<std::size_t>(g.rank());
        Table sums = tables[0];
        for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = static_cast<std::uint8_t>(sums[i] + tables[1][i]);
        fill(data, tables[me]);
        all_reduce(view, {.group = g});
        ASSERT_EQ(first_wrong(at, sums, 0, large), -1);
        fill(data, tables[me]);
        broadcast(view, {.src = 1, .group = g});
        ASSERT_EQ(first_wrong(at, tables[1], 0, large), -1);
        if (g.rank() == 0) {
            fill(data, tables[2]);
            send(view, 1, {.group = g});
        } else {
            EXPECT_EQ(recv(view, {.group = g}), 0);
            ASSERT_EQ(first_wrong(at, tables[2], 0, large), -1);
        }
    });
}

TEST_P(Large, gathered_tensors_and_uneven_splits_keep_their_offsets) {
    covers("S8-013", "S8-026", "S8-027");
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        const std::int64_t half = large / 2 + 1;
        const Tensor all = empty(uint8, Extents::of(2 * half));
        Tensor mine = empty(uint8, Extents::of(half));
        const Table tables[] = {table_of(0), table_of(1)};
        fill(mine, tables[g.rank()]);
        all_gather_into_tensor(all.view(), mine, {.group = g});
        const auto* at = all.data<std::uint8_t>();
        for (int r = 0; r < 2; ++r) {
            ASSERT_EQ(first_wrong(at + r * half, tables[r], 0, half), -1) << r;
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
        const std::int64_t rest = 2 * half - big;
        const auto* got = out.data<std::uint8_t>();
        if (g.rank() == 0) {
            ASSERT_EQ(first_wrong(got, tables[0], 0, small), -1);
        } else {
            ASSERT_EQ(first_wrong(got, tables[0], 0, half), -1);
            ASSERT_EQ(first_wrong(got + half, tables[1], 0, big - half), -1);
            ASSERT_EQ(first_wrong(got + big, tables[0], small, rest), -1);
        }
    });
}

TEST_P(Large, blocks_lie_at_offsets_beyond_2_to_the_31) {
    covers("S21-018", "S21-020");
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        const Table tables[] = {table_of(0), table_of(1)};
        using Numbers = std::vector<std::int64_t>;
        // Rank 0 sends nearly everything to rank 1, which puts it behind a gap, and the little that it keeps behind
        // that.
        const std::int64_t big = large - 64, small = 64, gap = 4096;
        const bool first = g.rank() == 0;
        const Tensor in = empty(uint8, Extents::of(first ? large + gap : 2 * small));
        fill(in, tables[g.rank()]);
        const std::int64_t length = first ? 2 * small : gap + big + gap + small;
        const Tensor out = empty(uint8, Extents::of(length));
        auto* const got = out.data<std::uint8_t>();
        for (const std::int64_t at : {std::int64_t{0}, gap - 1, length - small - 1}) {
            if (at < length) got[at] = 77;
        }
        const Numbers send = first ? Numbers{small, big} : Numbers{small, small};
        const Numbers from = first ? Numbers{big + gap, 0} : Numbers{small, 0};
        const Numbers receive = first ? Numbers{small, small} : Numbers{big, small};
        const Numbers to = first ? Numbers{small, 0} : Numbers{gap, gap + big + gap};
        all_to_all_v(
            out.view(), in,
            {.send_counts = send, .send_offsets = from, .receive_counts = receive, .receive_offsets = to, .group = g});
        if (first) {
            ASSERT_EQ(first_wrong(got + small, tables[0], big + gap, small), -1);
            ASSERT_EQ(first_wrong(got, tables[1], small, small), -1);
        } else {
            ASSERT_EQ(first_wrong(got + gap, tables[0], 0, big), -1);
            ASSERT_EQ(first_wrong(got + gap + big + gap, tables[1], 0, small), -1);
            for (const std::int64_t at : {std::int64_t{0}, gap - 1, length - small - 1}) EXPECT_EQ(got[at], 77) << at;
        }
    });
}

// Pages that nobody writes take no memory: the root holds a large tensor of zeros, but only one copy of it as bytes.
Tensor mostly_zeros(std::int64_t count) {
    const auto bytes = static_cast<std::size_t>(count);
    void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    EXPECT_NE(memory, MAP_FAILED);
    std::shared_ptr<void> owner(memory, [bytes](void* p) { ::munmap(p, bytes); });
    return {TensorView(memory, Extents::of(count), uint8), owner};
}

TEST_P(Large, objects_arrive_whole) {
    covers("S9-008");
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        const std::int64_t marks[] = {
            0, 1, (std::int64_t{1} << 30) + 7, (std::int64_t{1} << 31) - 1, std::int64_t{1} << 31, large - 1};
        Object object;
        if (g.rank() == 0) {
            const Tensor data = mostly_zeros(large);
            for (const std::int64_t mark : marks)
                data.data<std::uint8_t>()[mark] = static_cast<std::uint8_t>(mark % 250 + 1);
            object = Object{{"data", data}, {"name", "large"}};
        }
        object = broadcast_object(object, {.src = 0, .group = g});
        EXPECT_EQ(object.at("name"), "large");
        const Tensor& data = object.at("data").as_tensor();
        ASSERT_EQ(data.element_count(), large);
        const auto* at = data.data<std::uint8_t>();
        for (const std::int64_t mark : marks) EXPECT_EQ(at[mark], mark % 250 + 1) << mark;
        EXPECT_EQ(large - std::count(at, at + large, 0), std::ssize(marks));
    });
}

}  // namespace
}  // namespace tutti::test
