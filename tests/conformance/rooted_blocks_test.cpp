// gather_v and scatter_v: random counts and places, all roots, gaps, empty blocks, against a plain oracle. A rank other
// than the root passes nothing but its own tensor, as programs for MPI do.
#include "conformance/world.hpp"
#include "support/covers.hpp"

#include <tutti/coalescing.hpp>

#include <algorithm>
#include <numeric>
#include <random>

namespace tutti::test::rooted {
namespace {

using Int64s = std::vector<std::int64_t>;
using Ints = std::vector<int>;

class RootedBlocks : public ::testing::TestWithParam<How> {};
INSTANTIATE_TEST_SUITE_P(Ranks, RootedBlocks, ::testing::ValuesIn(every_way()),
                         [](const auto& instance) { return to_string(instance.param); });

/// One call's root and blocks. Every rank makes the same one from the same seed; the root alone passes them.
struct Blocks {
    int root = 0;
    Int64s counts, offsets;
    std::int64_t elements = 0;  ///< of the root's tensor

    bool is_root(const ProcessGroup& g) const { return g.rank() == root; }
    std::int64_t own(const ProcessGroup& g) const { return counts[static_cast<std::size_t>(g.rank())]; }
    GatherVOptions gather(const ProcessGroup& g) const {
        if (!is_root(g)) return {.group = g, .group_dst = root};
        return {.receive_counts = counts, .receive_offsets = offsets, .group = g, .group_dst = root};
    }
    ScatterVOptions scatter(const ProcessGroup& g) const {
        if (!is_root(g)) return {.group = g, .group_src = root};
        return {.send_counts = counts, .send_offsets = offsets, .group = g, .group_src = root};
    }
};

Blocks random_blocks(std::mt19937& random, int ranks, std::int64_t most) {
    Blocks b{.root = static_cast<int>(random() % static_cast<unsigned>(ranks))};
    const auto n = static_cast<std::size_t>(ranks);
    const auto kind = random() % 4;
    for (std::size_t r = 0; r < n; ++r) {
        std::int64_t count = static_cast<std::int64_t>(random() % static_cast<unsigned>(most + 1));
        if (kind == 1 && random() % 2 == 0) count = 0;
        if (kind == 2) count = r == n / 2 ? count : count % 3;  // one has most
        if (kind == 3) count = most / 2;
        b.counts.push_back(count);
    }
    std::vector<std::size_t> order(n);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::shuffle(order, random);
    b.offsets.resize(n);
    const bool gaps = random() % 2 == 0;
    for (const std::size_t r : order) {
        if (gaps) b.elements += static_cast<std::int64_t>(random() % 7);
        b.offsets[r] = b.elements;
        b.elements += b.counts[r];
    }
    if (gaps) b.elements += 3;
    if (kind == 3 && !gaps && std::ranges::is_sorted(order)) b.offsets.clear();
    return b;
}

std::int64_t offset_of(const Blocks& b, std::size_t rank) {
    if (!b.offsets.empty()) return b.offsets[rank];
    return std::accumulate(b.counts.begin(), b.counts.begin() + static_cast<std::ptrdiff_t>(rank), std::int64_t{0});
}
template <class T>
T value_of(std::size_t rank, std::int64_t element) {
    return static_cast<T>((rank * 31 + static_cast<std::size_t>(element)) % 113);
}
template <class T>
std::vector<T> values_of(std::size_t rank, std::int64_t count) {
    std::vector<T> values;
    for (std::int64_t k = 0; k < count; ++k) values.push_back(value_of<T>(rank, k));
    return values;
}
// What `output` held where no block comes is still there.
template <class T>
std::vector<T> gathered(const Blocks& b, T untouched) {
    std::vector<T> all(static_cast<std::size_t>(b.elements), untouched);
    for (std::size_t r = 0; r < b.counts.size(); ++r) {
        for (std::int64_t k = 0; k < b.counts[r]; ++k)
            all[static_cast<std::size_t>(offset_of(b, r) + k)] = value_of<T>(r, k);
    }
    return all;
}

TEST_P(RootedBlocks, go_to_and_from_any_places_of_any_root) {
    covers("S24-001", "S24-002");
    for (const int n : {1, 2, 3, 5, 8}) {
        if (n == 8 && watched) continue;
        run_ranks(n, GetParam(), [](const ProcessGroup& g) {
            const auto me = static_cast<std::size_t>(g.rank());
            std::mt19937 random(11);
            const int rounds = watched ? 20 : 60;
            for (int round = 0; round < rounds; ++round) {
                // Short calls, calls of which some blocks fit into slots, and long ones.
                const std::int64_t most = round % 10 == 9 ? 60'000 : round % 4 == 3 ? 12'000 : 12;
                const Blocks b = random_blocks(random, g.size(), most);
                const Ints own = values_of<int>(me, b.own(g));
                Ints all(b.is_root(g) ? static_cast<std::size_t>(b.elements) : 0, -7);
                if (round % 3 == 0) {
                    async::gather_v(own, all, b.gather(g)).wait();
                } else {
                    gather_v(own, all, b.gather(g));
                }
                if (b.is_root(g)) {
                    ASSERT_EQ(all, gathered<int>(b, -7)) << "round " << round;
                }
                Ints mine(own.size(), -1);
                if (round % 3 == 1) {
                    async::scatter_v(mine, all, b.scatter(g)).wait();
                } else {
                    scatter_v(mine, all, b.scatter(g));
                }
                ASSERT_EQ(mine, own) << "round " << round << " of " << g.size() << " ranks";
            }
        });
    }
}

TEST_P(RootedBlocks, are_of_any_type) {
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        const auto me = static_cast<std::size_t>(g.rank());
        std::mt19937 random(3);
        const auto bytes_of = [](std::int64_t elements, DType dtype) {
            return static_cast<std::size_t>(elements) * size_of(dtype);
        };
        for (const DType dtype : {DType::boolean, DType::uint8, DType::int16, DType::bfloat16, DType::float32,
                                  DType::int64, DType::complex64, DType::complex128, DType::float8_e5m2}) {
            for (const std::int64_t most : {5, 9000}) {
                const Blocks b = random_blocks(random, 3, most);
                std::vector<std::uint8_t> own(bytes_of(b.own(g), dtype), static_cast<std::uint8_t>(me % 2)),
                    all(b.is_root(g) ? bytes_of(b.elements, dtype) : 0, 0), back(own.size(), 7);
                const TensorView whole = b.is_root(g) ? TensorView(all.data(), {b.elements}, dtype) : TensorView();
                gather_v(ConstTensorView(own.data(), {b.own(g)}, dtype), whole, b.gather(g));
                for (std::size_t r = 0; b.is_root(g) && r < 3; ++r) {
                    const auto at = all.begin() + static_cast<std::ptrdiff_t>(bytes_of(offset_of(b, r), dtype));
                    const auto end = at + static_cast<std::ptrdiff_t>(bytes_of(b.counts[r], dtype));
                    ASSERT_TRUE(std::all_of(at, end, [&](std::uint8_t byte) { return byte == r % 2; }))
                        << to_string(dtype);
                }
                scatter_v(TensorView(back.data(), {b.own(g)}, dtype), whole, b.scatter(g));
                ASSERT_EQ(back, own) << to_string(dtype);
            }
        }
    });
}

TEST_P(RootedBlocks, are_planned_once_and_moved_often) {
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        std::mt19937 random(8);
        for (const std::int64_t most : {6, 20'000}) {
            const Blocks b = random_blocks(random, 3, most);
            Ints own(static_cast<std::size_t>(b.own(g))), all(b.is_root(g) ? static_cast<std::size_t>(b.elements) : 0);
            Plan gathers = plan::gather_v(own, all, b.gather(g)), scatters = plan::scatter_v(own, all, b.scatter(g));
            for (int run = 0; run < 5; ++run) {
                std::ranges::fill(own, run + g.rank());
                if (run % 2 == 0) {
                    gathers.run();
                } else {
                    gathers.start().wait();
                }
                for (std::size_t r = 0; b.is_root(g) && r < 3; ++r) {
                    if (b.counts[r] > 0) {
                        ASSERT_EQ(all[static_cast<std::size_t>(offset_of(b, r))], run + static_cast<int>(r));
                    }
                }
                std::ranges::fill(own, -1);
                scatters.run();
                ASSERT_EQ(own, Ints(own.size(), run + g.rank())) << "run " << run;
            }
        }
    });
}

// The arguments that matter on the root alone may be given on all ranks.
TEST_P(RootedBlocks, are_equal_and_adjoin_where_nothing_is_said) {
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        Ints in{g.rank(), 10 + g.rank()}, all(6, -1), back(2);
        gather_v(in, all, {.dst = 1, .group = g});
        EXPECT_EQ(all, g.rank() == 1 ? (Ints{0, 10, 1, 11, 2, 12}) : Ints(6, -1));
        g.scatter_v(back, all, {.src = 1});
        EXPECT_EQ(back, in);
        g.gather_v(in, all, {.receive_counts = {2, 2, 2}, .receive_offsets = {4, 2, 0}});
        if (g.rank() == 0) {
            EXPECT_EQ(all, (Ints{2, 12, 1, 11, 0, 10}));
        }
    });
}

TEST_P(RootedBlocks, of_the_root_may_lie_in_their_place) {
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        for (const std::int64_t length : {2, 40'000}) {
            const Int64s counts{length, length + 1, 1}, offsets{length + 3, 0, length + 1};
            const int root = 1;
            Ints all(static_cast<std::size_t>(2 * length + 3), -5);
            Ints own(static_cast<std::size_t>(counts[static_cast<std::size_t>(g.rank())]), g.rank());
            std::fill_n(all.begin(), length + 1, root);
            const bool here = g.rank() == root;
            const TensorView block = here ? TensorView(all.data(), {length + 1}, int32) : TensorView(own);
            gather_v(block, all, {.receive_counts = counts, .receive_offsets = offsets, .dst = root, .group = g});
            Ints want(all.size(), -5);
            std::fill_n(want.begin(), length + 1, 1);
            want[static_cast<std::size_t>(length + 1)] = 2;
            std::fill_n(want.begin() + length + 3, length, 0);
            if (here) {
                ASSERT_EQ(all, want);
            }
            std::ranges::fill(own, -1);
            scatter_v(block, all, {.send_counts = counts, .send_offsets = offsets, .src = root, .group = g});
            if (here) {
                EXPECT_EQ(all, want);
            } else {
                EXPECT_EQ(own, Ints(own.size(), g.rank()));
            }
        }
    });
}

TEST_P(RootedBlocks, of_the_input_may_overlap) {
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        for (const std::int64_t length : {4, 50'000}) {
            Ints all(static_cast<std::size_t>(length)), mine(static_cast<std::size_t>(length - g.rank()));
            std::iota(all.begin(), all.end(), 0);
            scatter_v(mine, all,
                      {.send_counts = {length, length - 1, length - 2}, .send_offsets = {0, 1, 2}, .group = g});
            EXPECT_EQ(mine, Ints(all.begin() + g.rank(), all.end()));
        }
    });
}

TEST_P(RootedBlocks, of_strided_tensors_keep_the_rest_of_the_output) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        // Columns of a matrix: every second element of memory.
        Ints in{g.rank(), -1, 10 + g.rank(), -1}, out(12, -5);
        const ConstTensorView from(in.data(), {2}, int32, {2});
        const TensorView to(out.data(), {6}, int32, {2});
        gather_v(from, to, {.receive_counts = {2, 2}, .receive_offsets = {4, 1}, .group = g});
        const Ints want{-5, -5, 1, -5, 11, -5, -5, -5, 0, -5, 10, -5};
        if (g.rank() == 0) {
            EXPECT_EQ(out, want);
        }
        Ints back(4, -8);
        scatter_v(TensorView(back.data(), {2}, int32, {2}), to,
                  {.send_counts = {2, 2}, .send_offsets = {4, 1}, .group = g});
        EXPECT_EQ(back, (Ints{g.rank(), -8, 10 + g.rank(), -8}));
    });
}

TEST_P(RootedBlocks, of_calls_that_are_launched_together_leave_each_other_alone) {
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        const auto me = static_cast<std::size_t>(g.rank());
        std::mt19937 random(5);
        for (const std::int64_t most : {4, 30'000}) {
            const Blocks one = random_blocks(random, 3, most), two = random_blocks(random, 3, most);
            const Ints first = values_of<int>(me, one.own(g)), second = values_of<int>(me, two.own(g));
            Ints all_one(static_cast<std::size_t>(one.elements), -1),
                all_two(static_cast<std::size_t>(two.elements), -2);
            Ints sum{1};
            {
                const Coalescing together({.group = g});
                gather_v(first, all_one, one.gather(g));
                all_reduce(sum, {.group = g});
                gather_v(second, all_two, two.gather(g));
            }
            if (one.is_root(g)) {
                EXPECT_EQ(all_one, gathered<int>(one, -1));
            }
            if (two.is_root(g)) {
                EXPECT_EQ(all_two, gathered<int>(two, -2));
            }
            EXPECT_EQ(sum, Ints{3});
        }
    });
}

// Ranks other than the root are through with a call while the root has yet to come to it.
TEST_P(RootedBlocks, of_many_calls_wait_for_the_root) {
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        constexpr int calls = 300;
        for (int call = 0; call < calls; ++call) {
            const Ints own(static_cast<std::size_t>((call + g.rank()) % 5), call);
            Int64s counts;
            for (int r = 0; r < 3; ++r) counts.push_back((call + r) % 5);
            Ints all(static_cast<std::size_t>(std::accumulate(counts.begin(), counts.end(), std::int64_t{0})), -1);
            gather_v(own, all, {.receive_counts = counts, .group = g});
            if (g.rank() == 0) {
                ASSERT_EQ(all, Ints(all.size(), call));
            }
        }
    });
}

TEST_P(RootedBlocks, that_cannot_be_are_refused_before_anything_moves) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        Ints x(2), y(4);
        const auto refused = [&](const Int64s& counts, const Int64s& offsets, std::vector<std::string> words,
                                 bool scatters = true) {
            if (g.rank() != 0) return;  // the root alone gives them
            const std::string gather = message_of<InvalidArgument>(
                [&] { gather_v(x, y, {.receive_counts = counts, .receive_offsets = offsets, .group = g}); });
            EXPECT_TRUE(has(gather, "gather_v: ")) << gather;
            for (const std::string& word : words) EXPECT_TRUE(has(gather, word)) << gather;
            if (!scatters) return;
            const std::string scatter = message_of<InvalidArgument>(
                [&] { scatter_v(x, y, {.send_counts = counts, .send_offsets = offsets, .group = g}); });
            EXPECT_TRUE(has(scatter, "scatter_v: ")) << scatter;
            for (const std::string& word : words) EXPECT_TRUE(has(scatter, word)) << scatter;
        };
        refused({1, 1, 1}, {}, {"_counts has 3 entries", "expected 2"});
        refused({2, 2}, {0}, {"_offsets has 1 entries", "expected 2"});
        refused({2, -1}, {}, {"_counts[1] is -1"});
        refused({2, 3}, {}, {"rank 1", "3 elements", "within its 4 elements"});
        refused({2, 2}, {0, 3}, {"rank 1", "2 elements at", "offsets 3"});
        refused({2, 2}, {1, 0}, {"the blocks from ranks 1 and 0 overlap in output", "[0, +2]", "[1, +2]"}, false);
        refused({1, 2}, {}, {"put has 2 elements", "expected 1"});
        std::vector<float> other(4);
        if (g.rank() == 0) {
            EXPECT_TRUE(has(message_of<InvalidArgument>([&] { gather_v(x, other, {.group = g}); }), "float32"));
        }
        EXPECT_TRUE(has(message_of<InvalidArgument>([&] { gather_v(x, y, {.dst = 2, .group = g}); }), "dst 2"));
        EXPECT_TRUE(has(message_of<InvalidArgument>([&] { scatter_v(x, y, {.src = -1, .group = g}); }), "src -1"));
        x.assign(2, g.rank() + 1);
        gather_v(x, y, {.group = g});  // nothing has moved
        if (g.rank() == 0) {
            EXPECT_EQ(y, (Ints{1, 1, 2, 2}));
        }
    });
}

}  // namespace
}  // namespace tutti::test::rooted
