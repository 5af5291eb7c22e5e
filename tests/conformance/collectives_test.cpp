// Every collective on real ranks against a plain oracle: threads, processes over shared memory, processes over TCP.
#include "conformance/world.hpp"
#include "support/covers.hpp"

#include <complex>
#include <numeric>

namespace tutti::test {
namespace {

using Complex = std::complex<float>;

class Collectives : public ::testing::TestWithParam<How> {};

#ifdef TUTTI_THREADS_ONLY
INSTANTIATE_TEST_SUITE_P(Ranks, Collectives, ::testing::Values(How::threads, How::tcp_threads),
                         [](const auto& instance) { return to_string(instance.param); });
#else
INSTANTIATE_TEST_SUITE_P(Ranks, Collectives, ::testing::Values(How::threads, How::shm_processes, How::tcp_processes),
                         [](const auto& instance) { return to_string(instance.param); });
#endif

// The value of element i on a rank: small integers, exact in every type.
template <class T>
T value(int rank, std::size_t i) {
    return static_cast<T>(static_cast<float>((static_cast<std::size_t>(rank) * 3 + i) % 5));
}

template <class T>
void check_type(const ProcessGroup& g, std::size_t count) {
    const int n = g.size(), me = g.rank();
    const auto size = static_cast<std::size_t>(n);
    std::vector<T> mine(count), sums(count);
    for (std::size_t i = 0; i < count; ++i) {
        mine[i] = value<T>(me, i);
        float sum = 0;
        for (int r = 0; r < n; ++r) sum += static_cast<float>((static_cast<std::size_t>(r) * 3 + i) % 5);
        sums[i] = static_cast<T>(sum);
    }
    std::vector<T> data = mine;
    all_reduce(data, {.group = g});
    ASSERT_EQ(data, sums);
    for (int root : {0, n - 1}) {
        data = mine;
        reduce(data, {.dst = root, .group = g});
        ASSERT_EQ(data, me == root ? sums : mine) << "reduce leaves the others' tensors alone";
        data = mine;
        broadcast(data, {.src = root, .group = g});
        for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(data[i], value<T>(root, i));
    }
    std::vector<T> all(count * size);
    all_gather_into_tensor(all, mine, {.group = g});
    for (std::size_t k = 0; k < all.size(); ++k)
        ASSERT_EQ(all[k],
                  value<T>(static_cast<int>(k / std::max<std::size_t>(count, 1)), k % std::max<std::size_t>(count, 1)));
    std::vector<T> scattered(count);
    reduce_scatter_tensor(scattered, all, {.group = g});
    for (std::size_t i = 0; i < count; ++i) {
        const float expected = static_cast<float>(n) * static_cast<float>((static_cast<std::size_t>(me) * 3 + i) % 5);
        ASSERT_EQ(scattered[i], static_cast<T>(expected));
    }
    std::vector<T> exchanged(all.size());
    all_to_all_single(exchanged, all, {.group = g});
    for (std::size_t k = 0; k < all.size(); ++k)
        ASSERT_EQ(exchanged[k], value<T>(me, k % std::max<std::size_t>(count, 1)));
}

TEST_P(Collectives, are_right_for_every_type_and_awkward_counts) {
    covers("S2-002", "S2-021", "S8-001", "S8-002", "S8-004", "S8-006", "S8-007", "S8-008", "S8-009", "S8-013", "S8-015",
           "S8-024", "S8-025", "S8-026", "A-42", "A-54", "A-56", "A-61", "S7-001", "S7-004");
    for (const int n : {1, 2, 3, 4}) {
        run_ranks(n, GetParam(), [](const ProcessGroup& g) {
            for (const std::size_t count : {0, 1, 5, 13, 1000}) {
                check_type<std::uint8_t>(g, count);
                check_type<std::int16_t>(g, count);
                check_type<std::uint16_t>(g, count);
                check_type<std::int32_t>(g, count);
                check_type<std::uint32_t>(g, count);
                check_type<std::int64_t>(g, count);
                check_type<std::uint64_t>(g, count);
                check_type<std::int8_t>(g, count);
                check_type<Float16>(g, count);
                check_type<BFloat16>(g, count);
                check_type<float>(g, count);
                check_type<double>(g, count);
                check_type<Float8E5M2>(g, std::min<std::size_t>(count, 3));
            }
            check_type<float>(g, watched ? 50'001 : 300'001);
            check_type<BFloat16>(g, watched ? 20'003 : 100'003);
        });
    }
}

TEST_P(Collectives, gather_and_scatter_lists_even_and_uneven) {
    covers("S8-010", "S8-011", "S8-016", "S8-017", "S8-018", "S8-019", "S8-020", "S8-021", "S8-022", "S8-029", "A-51",
           "A-55");
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        const int me = g.rank();
        std::vector<std::vector<int>> lists{std::vector<int>(2), std::vector<int>(0), std::vector<int>(5)};
        std::vector<int> mine(lists[static_cast<std::size_t>(me)].size(), me + 1);
        all_gather({lists[0], lists[1], lists[2]}, mine, {.group = g});
        EXPECT_EQ(lists[0], std::vector<int>(2, 1));
        EXPECT_EQ(lists[2], std::vector<int>(5, 3));
        const std::vector<int> input[3] = {{1, 2}, {}, {3, 4, 5, 6, 7}};
        std::vector<int> out(input[static_cast<std::size_t>(me)].size());
        reduce_scatter(out, {input[0], input[1], input[2]}, {.group = g});
        for (std::size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], 3 * input[static_cast<std::size_t>(me)][i]);
        for (int root = 0; root < 3; ++root) {
            std::vector<int> got[3] = {std::vector<int>(4), std::vector<int>(4), std::vector<int>(4)};
            const std::vector<int> block(4, me * 10);
            gather(block, me == root ? TensorList{got[0], got[1], got[2]} : TensorList{}, {.dst = root, .group = g});
            for (int r = 0; me == root && r < 3; ++r) EXPECT_EQ(got[r], std::vector<int>(4, r * 10));
            std::vector<int> part(2);
            const std::vector<int> parts[3] = {{1, 2}, {3, 4}, {5, 6}};
            scatter(part, me == root ? ConstTensorList{parts[0], parts[1], parts[2]} : ConstTensorList{},
                    {.group = g, .group_src = root});
            EXPECT_EQ(part, parts[me]);
        }
    });
}

TEST_P(Collectives, follow_strides) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        std::vector<float> grid(12);
        std::iota(grid.begin(), grid.end(), static_cast<float>(g.rank()));
        all_reduce(TensorView(grid.data(), {3, 2}, float32, {4, 2}), {.group = g});  // every other column
        for (std::size_t i = 0; i < 12; ++i) {
            const auto own = static_cast<float>(i) + static_cast<float>(g.rank());
            EXPECT_EQ(grid[i], i % 2 == 0 ? 2 * static_cast<float>(i) + 1 : own);
        }
        float scalar = static_cast<float>(g.rank() + 1);
        all_reduce(view(&scalar, {}), {.group = g});
        EXPECT_EQ(scalar, 3);
    });
}

TEST_P(Collectives, know_every_operator) {
    covers("S10-002", "S10-003", "S10-004", "S10-005", "S10-006", "S10-007", "S10-008", "S10-009", "S10-010", "S10-012",
           "A-43", "A-44");
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        const int me = g.rank();
        const auto result = [&](ReduceOp op, int mine) {
            std::vector<int> x(3, mine);
            all_reduce(x, {.op = op, .group = g});
            return x[1];
        };
        EXPECT_EQ(result(ReduceOp::sum, me + 2), 9);
        EXPECT_EQ(result(ReduceOp::product, me + 2), 24);
        EXPECT_EQ(result(ReduceOp::min, me + 2), 2);
        EXPECT_EQ(result(ReduceOp::max, me + 2), 4);
        EXPECT_EQ(result(ReduceOp::band, 7 - me), 7 & 6 & 5);
        EXPECT_EQ(result(ReduceOp::bor, 1 << me), 7);
        EXPECT_EQ(result(ReduceOp::bxor, me + 1), 1 ^ 2 ^ 3);
        EXPECT_EQ(result(ReduceOp::avg, -(me + 2)), -3);
        EXPECT_EQ(result(ReduceOp::premul_sum(me + 1), 10), 60);
        std::vector<BFloat16> small(300'000, BFloat16(1.0F));
        all_reduce(small, {.op = ReduceOp::premul_sum(0.5), .group = g});
        EXPECT_EQ(float(small[777]), 1.5F);
        std::vector<Complex> z(2);
        EXPECT_THROW(all_reduce(z, {.op = ReduceOp::max, .group = g}), InvalidArgument);
        barrier({.group = g});  // the group still works
    });
}

TEST_P(Collectives, give_the_same_bits_on_all_ranks_and_in_rank_order) {
    covers("S8-007");
    for (const Determinism level : {Determinism::fast, Determinism::layout_invariant}) {
        run_ranks(3, GetParam(),
                  [level](const ProcessGroup& g) {
                      std::vector<float> x(10'000), expected(10'000);
                      const auto at = [](int rank, std::size_t i) {
                          return 1.0F / static_cast<float>(i * 7 + static_cast<std::size_t>(rank) + 1);
                      };
                      for (std::size_t i = 0; i < x.size(); ++i) {
                          x[i] = at(g.rank(), i);
                          expected[i] = (at(0, i) + at(1, i)) + at(2, i);
                      }
                      all_reduce(x, {.group = g});
                      if (level == Determinism::layout_invariant) {
                          EXPECT_EQ(x, expected);
                      }
                      std::vector<float> all(x.size() * 3);
                      all_gather_into_tensor(all, x, {.group = g});
                      for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], x[i % x.size()]);
                  },
                  {.determinism = level});
    }
}

TEST_P(Collectives, run_while_the_caller_computes) {
    covers("S7-002", "S7-005", "S7-006", "S7-007", "S7-008", "S7-009", "S7-010", "S7-011", "S7-012", "S7-013", "S7-014",
           "S7-016", "S7-017", "S7-018", "S7-019", "S7-020", "S7-021", "A-15", "A-16", "A-50", "E-205");
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        std::vector<std::int64_t> x{g.rank()};
        Work work = async::all_reduce(x, {.group = g});
        EXPECT_TRUE(work.wait());
        EXPECT_TRUE(work.is_completed());
        EXPECT_TRUE(work.is_success());
        EXPECT_FALSE(work.exception());
        x[0] += 100;
        EXPECT_EQ(x[0], 101);
        std::vector<float> large(1 << 20, 1.0F);
        Work slow = async::all_reduce(large, {.group = g});
        const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        while (!slow.is_completed() && std::chrono::steady_clock::now() < until) {
            volatile double burn = 1;
            for (int i = 0; i < 10'000; ++i) burn = burn * 1.0000001;
        }
        EXPECT_TRUE(slow.is_completed()) << "nobody has called wait";
        EXPECT_EQ(large[12345], 2.0F);
        auto then = slow.get_future().then([](const auto& done) { return done.value().size(); });
        EXPECT_EQ(then.wait(), 1U);
        EXPECT_EQ(Work::unbox(slow.boxed()).get_future_result().wait(), WorkResult::success);
        EXPECT_EQ(slow.result()[0].element_count(), 1 << 20);
        EXPECT_THROW((void)slow.source_rank(), InvalidArgument);
        barrier({.group = g});
    });
}

TEST_P(Collectives, pass_the_worked_examples_of_two_ranks) {
    covers("E-207", "E-208", "E-209", "E-210", "E-211", "E-212", "E-214", "E-216", "E-218", "E-219", "S8-014",
           "S8-035");
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        const int me = g.rank();
        std::vector<std::int64_t> x{1 + 2 * me, 2 + 2 * me};
        const std::vector<std::int64_t> mine = x;
        all_reduce(x, {.group = g});
        EXPECT_EQ(x, (std::vector<std::int64_t>{4, 6}));
        std::vector<Complex> z{{1.0F + 2.0F * static_cast<float>(me), 1.0F + 2.0F * static_cast<float>(me)},
                               {2.0F + 2.0F * static_cast<float>(me), 2.0F + 2.0F * static_cast<float>(me)}};
        const std::vector<Complex> z_mine = z;
        all_reduce(z, {.group = g});
        EXPECT_EQ(z, (std::vector<Complex>{{4, 4}, {6, 6}}));
        std::vector<std::int64_t> a(2), b(2), both(4);
        all_gather({a, b}, mine, {.group = g});
        EXPECT_EQ(a, (std::vector<std::int64_t>{1, 2}));
        EXPECT_EQ(b, (std::vector<std::int64_t>{3, 4}));
        std::vector<Complex> za(2), zb(2);
        all_gather({za, zb}, z_mine, {.group = g});
        EXPECT_EQ(zb, (std::vector<Complex>{{3, 3}, {4, 4}}));
        all_gather_into_tensor(both, mine, {.group = g});
        EXPECT_EQ(both, (std::vector<std::int64_t>{1, 2, 3, 4}));
        std::fill(both.begin(), both.end(), 0);
        all_gather_into_tensor(view(both.data(), {2, 2}), mine, {.group = g});
        EXPECT_EQ(both, (std::vector<std::int64_t>{1, 2, 3, 4}));
        const std::vector<float> ones(2, static_cast<float>(1 + me));
        std::vector<float> g0(2), g1(2), part(2);
        gather(ones, me == 0 ? TensorList{g0, g1} : TensorList{}, {.dst = 0, .group = g});
        if (me == 0) {
            EXPECT_EQ(g1, std::vector<float>(2, 2));
        }
        const std::vector<float> s0(2, 1), s1(2, 5);
        scatter(part, me == 0 ? ConstTensorList{s0, s1} : ConstTensorList{}, {.src = 0, .group = g});
        EXPECT_EQ(part, me == 0 ? s0 : s1);
        const std::vector<std::int64_t> four{0, 1, 2, 3};
        std::vector<std::int64_t> two(2);
        reduce_scatter_tensor(two, four, {.group = g});
        EXPECT_EQ(two, me == 0 ? (std::vector<std::int64_t>{0, 2}) : (std::vector<std::int64_t>{4, 6}));
        reduce_scatter_tensor(two, view(four.data(), {2, 2}), {.group = g});
        EXPECT_EQ(two, me == 0 ? (std::vector<std::int64_t>{0, 2}) : (std::vector<std::int64_t>{4, 6}));
    });
}

TEST_P(Collectives, pass_the_worked_examples_of_four_ranks) {
    covers("E-101", "E-102", "E-103", "E-104", "E-220", "E-221", "E-222", "E-223", "E-224", "E-225", "S8-005", "S8-012",
           "S8-023", "S8-027", "S8-028", "S8-030", "S8-036", "A-07", "A-08", "A-30", "S8-031");
    run_ranks(4, GetParam(), [](const ProcessGroup& g) {
        using Longs = std::vector<std::int64_t>;
        const std::int64_t me = g.rank();
        std::int64_t scalar = me;
        all_reduce(view(&scalar, {}), {.group = g});
        EXPECT_EQ(scalar, 6);
        std::int64_t inputs[4] = {me, me, me, me};
        Longs one(1);
        reduce_scatter(one, {view(&inputs[0], {}), view(&inputs[1], {}), view(&inputs[2], {}), view(&inputs[3], {})},
                       {.group = g});
        EXPECT_EQ(one, Longs{6});
        Longs gathered[4] = {Longs(1), Longs(1), Longs(1), Longs(1)};
        std::int64_t own = me;
        all_gather({gathered[0], gathered[1], gathered[2], gathered[3]}, view(&own, {}), {.group = g});
        for (int r = 0; r < 4; ++r) EXPECT_EQ(gathered[r], Longs{r});
        std::int64_t root_value = 4;
        Longs zero{0};
        broadcast(me == 0 ? view(&root_value, {}) : TensorView(zero), {.src = 0, .group = g});
        if (me != 0) {
            EXPECT_EQ(zero, Longs{4});
        }
        barrier({.group = g});
        Longs in{4 * me, 4 * me + 1, 4 * me + 2, 4 * me + 3}, out(4);
        all_to_all_single(out, in, {.group = g});
        EXPECT_EQ(out, (Longs{me, me + 4, me + 8, me + 12}));
        const std::vector<Longs> send{{0, 1, 2, 3, 4, 5},
                                      {10, 11, 12, 13, 14, 15, 16, 17, 18},
                                      {20, 21, 22, 23, 24},
                                      {30, 31, 32, 33, 34, 35, 36}};
        const std::vector<Longs> in_splits{{2, 2, 1, 1}, {3, 2, 2, 2}, {2, 1, 1, 1}, {2, 2, 2, 1}};
        const std::vector<Longs> out_splits{{2, 3, 2, 2}, {2, 2, 1, 2}, {1, 2, 1, 2}, {1, 2, 1, 1}};
        const std::vector<Longs> expected{{0, 1, 10, 11, 12, 20, 21, 30, 31},
                                          {2, 3, 13, 14, 22, 32, 33},
                                          {4, 15, 16, 23, 34, 35},
                                          {5, 17, 18, 24, 36}};
        const auto m = static_cast<std::size_t>(me);
        Longs uneven(expected[m].size());
        all_to_all_single(uneven, send[m],
                          {.output_split_sizes = out_splits[m], .input_split_sizes = in_splits[m], .group = g});
        EXPECT_EQ(uneven, expected[m]);
        std::fill(uneven.begin(), uneven.end(), 0);
        TensorList outputs;
        ConstTensorList pieces;
        std::int64_t at_out = 0, at_in = 0;
        for (std::size_t r = 0; r < 4; ++r) {
            outputs.push_back(view(uneven.data() + at_out, {out_splits[m][r]}));
            pieces.push_back(view(send[m].data() + at_in, {in_splits[m][r]}));
            at_out += out_splits[m][r];
            at_in += in_splits[m][r];
        }
        all_to_all(outputs, pieces, {.group = g});
        EXPECT_EQ(uneven, expected[m]);
        Longs lone[4] = {Longs(1), Longs(1), Longs(1), Longs(1)};
        all_to_all({lone[0], lone[1], lone[2], lone[3]},
                   {view(&in[0], {1}), view(&in[1], {1}), view(&in[2], {1}), view(&in[3], {1})}, {.group = g});
        for (std::int64_t r = 0; r < 4; ++r) EXPECT_EQ(lone[r], Longs{4 * r + me});
        std::vector<Complex> zin, zout(4);
        for (int i = 1; i <= 4; ++i) zin.emplace_back(static_cast<float>(4 * me + i), static_cast<float>(4 * me + i));
        all_to_all_single(zout, zin, {.group = g});
        for (std::size_t r = 0; r < 4; ++r) EXPECT_EQ(zout[r].real(), static_cast<float>(4 * r + m + 1));
        std::vector<Complex> zl[4] = {std::vector<Complex>(1), std::vector<Complex>(1), std::vector<Complex>(1),
                                      std::vector<Complex>(1)};
        all_to_all({zl[0], zl[1], zl[2], zl[3]},
                   {view(&zin[0], {1}), view(&zin[1], {1}), view(&zin[2], {1}), view(&zin[3], {1})}, {.group = g});
        for (std::size_t r = 0; r < 4; ++r) EXPECT_EQ(zl[r][0].imag(), static_cast<float>(4 * r + m + 1));
        Longs wrong(4);
        EXPECT_THROW(all_to_all_single(wrong, zin, {.group = g}), InvalidArgument);
    });
}

TEST_P(Collectives, a_variable_is_a_tensor_of_one_element) {
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        const int me = g.rank();
        double sum = me + 1, before = me + 1, up_to_here = me + 1, largest = me;
        all_reduce(sum, {.group = g});
        exscan(before, {.group = g});
        scan(up_to_here, {.group = g});
        async::all_reduce(largest, {.op = ReduceOp::max, .group = g}).wait();
        EXPECT_EQ(sum, 6);
        EXPECT_EQ(before, me == 0 ? 1 : me * (me + 1) / 2.0);
        EXPECT_EQ(up_to_here, (me + 1) * (me + 2) / 2.0);
        EXPECT_EQ(largest, 2);
        std::int64_t root = me == 1 ? 41 : 0, at_root = 1;
        broadcast(root, {.src = 1, .group = g});
        reduce(at_root, {.dst = 2, .group = g});
        EXPECT_EQ(root, 41);
        EXPECT_EQ(at_root, me == 2 ? 3 : 1);
        const int mine = 10 * me;
        std::array<int, 3> all{};
        all_gather_into_tensor(all, mine, {.group = g});
        EXPECT_EQ(all, (std::array{0, 10, 20}));
        int a = 0, b = 0, c = 0, share = 0, part = 0;
        all_gather({a, b, c}, mine, {.group = g});
        EXPECT_EQ(a + b + c, 30);
        reduce_scatter_tensor(share, all, {.group = g});
        EXPECT_EQ(share, 30 * me);
        gather(mine, me == 0 ? TensorList{c, b, a} : TensorList{}, {.dst = 0, .group = g});
        scatter(part, me == 0 ? ConstTensorList{a, b, c} : ConstTensorList{}, {.src = 0, .group = g});
        EXPECT_EQ(part, 20 - 10 * me);
        if (me == 0) send(mine, 1, {.group = g});
        int received = -1;
        if (me == 1) {
            EXPECT_EQ(recv(received, {.src = 0, .group = g}), 0);
            EXPECT_EQ(received, 0);
        }
    });
}

}  // namespace
}  // namespace tutti::test
