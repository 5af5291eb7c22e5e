// Calls that are launched together, and the functions as members of their group.
#include "conformance/world.hpp"
#include "support/covers.hpp"

#include <tutti/error.hpp>
#include <tutti/plan.hpp>

#include <numeric>

namespace tutti::test {
namespace {

class Coalesced : public ::testing::TestWithParam<How> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Coalesced, ::testing::ValuesIn(every_way()),
                         [](const auto& instance) { return to_string(instance.param); });

// A caller may leave out options, and a list that only the root gives; not options that name a root, nor other lists.
template <class Group, class Tensor>
concept LeavesOut = requires(Group g, Tensor x) {
    g.all_reduce(x);
    g.gather(x);
    g.scatter(x);
    g.barrier();
    plan::gather(x);
    async::scatter(x);
};
static_assert(LeavesOut<ProcessGroup, TensorView>);
template <class Group, class Tensor>
concept LeavesOutTheRoot = requires(Group g, Tensor x) {
    g.broadcast(x);
};
template <class Tensor>
concept PlansWithoutRoot = requires(Tensor x) {
    plan::reduce(x);
};
template <class Group, class Tensor>
concept LeavesOutBlocks = requires(Group g, Tensor x) {
    g.reduce_scatter(x);
};
static_assert(!LeavesOutTheRoot<ProcessGroup, TensorView> && !PlansWithoutRoot<TensorView> &&
              !LeavesOutBlocks<ProcessGroup, TensorView>);

// Element k of tensor i of rank r.
int input(int rank, std::size_t i, std::size_t k) {
    return 100 * rank + 7 * static_cast<int>(i) + static_cast<int>(k % 5);
}
std::vector<int> inputs(int rank, std::size_t i, std::size_t count) {
    std::vector<int> values(count);
    for (std::size_t k = 0; k < count; ++k) values[k] = input(rank, i, k);
    return values;
}
std::vector<int> sums(int ranks, std::size_t i, std::size_t count, std::size_t first = 0) {
    std::vector<int> values(count);
    for (std::size_t k = 0; k < count; ++k) {
        for (int r = 0; r < ranks; ++r) values[k] += input(r, i, first + k);
    }
    return values;
}
// Short ones, one without elements, and one that goes alone.
const std::vector<std::size_t> counts{1, 3, 0, 1000, 2, 40'000, 5};

TEST_P(Coalesced, all_reduce_gives_what_single_calls_give) {
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        for (const bool blocking : {true, false}) {
            std::vector<std::vector<int>> data;
            TensorList list;
            for (std::size_t i = 0; i < counts.size(); ++i) data.push_back(inputs(g.rank(), i, counts[i]));
            for (auto& one : data) list.emplace_back(one);
            if (blocking) {
                all_reduce_coalesced(list, {.group = g});
            } else {
                Work work = async::all_reduce_coalesced(list, {.group = g});
                work.wait();
                EXPECT_EQ(work.result().size(), list.size());
                EXPECT_TRUE(work.is_success());
            }
            for (std::size_t i = 0; i < counts.size(); ++i) EXPECT_EQ(data[i], sums(g.size(), i, counts[i])) << i;
        }
    });
}

TEST_P(Coalesced, operators_and_types_are_those_of_the_call) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        std::vector<double> a(3, g.rank() + 1), b(4, 2 * g.rank());
        all_reduce_coalesced({a, b}, {.op = ReduceOp::avg, .group = g});
        EXPECT_EQ(a, std::vector<double>(3, 1.5));
        EXPECT_EQ(b, std::vector<double>(4, 1));
        all_reduce_coalesced({a, b}, {.op = ReduceOp::premul_sum(0.5), .group = g});
        EXPECT_EQ(a, std::vector<double>(3, 1.5));
        std::vector<float> c(6, 1);
        std::vector<std::int64_t> d(2, g.rank());
        const TensorView column(c.data(), {3}, float32, {2});  // every other element
        all_reduce_coalesced({column, d, TensorView(b)}, {.group = g});
        EXPECT_EQ(c, (std::vector<float>{2, 1, 2, 1, 2, 1}));
        EXPECT_EQ(d, std::vector<std::int64_t>(2, 1));
    });
}

TEST_P(Coalesced, ranks_with_plain_and_with_strided_tensors_agree) {
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        std::vector<int> a(10, g.rank()), b(4, 1);
        const TensorView column(a.data(), {5}, int32, {2});  // every other element
        const TensorView first = g.rank() == 1 ? column : TensorView(a.data(), {5}, int32);
        for (int round = 0; round < 3; ++round) {
            std::ranges::fill(a, g.rank());
            all_reduce_coalesced({first, TensorView(b)}, {.op = ReduceOp::max, .group = g});
            EXPECT_EQ(a[0], 2);
            EXPECT_EQ(a[g.rank() == 1 ? 8 : 4], 2);
            EXPECT_EQ(a[9], g.rank());
        }
    });
}

TEST_P(Coalesced, gathers_and_scatters_put_each_block_where_it_belongs) {
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        const auto n = static_cast<std::size_t>(g.size()), me = static_cast<std::size_t>(g.rank());
        std::vector<std::vector<int>> own, all, wide, part;
        std::vector<std::vector<std::vector<int>>> listed(n);
        for (std::size_t i = 0; i < counts.size(); ++i) {
            own.push_back(inputs(g.rank(), i, counts[i]));
            all.emplace_back(counts[i] * n);
            wide.push_back(inputs(g.rank(), i, counts[i] * n));
            part.emplace_back(counts[i]);
            for (auto& of_rank : listed) of_rank.emplace_back(counts[i]);
        }
        const ConstTensorList in(own.begin(), own.end()), wide_in(wide.begin(), wide.end());
        const TensorList out(all.begin(), all.end()), part_out(part.begin(), part.end());
        std::vector<TensorList> lists;
        for (auto& of_rank : listed) lists.emplace_back(of_rank.begin(), of_rank.end());
        all_gather_into_tensor_coalesced(out, in, {.group = g});
        all_gather_coalesced(lists, in, {.group = g});
        reduce_scatter_tensor_coalesced(part_out, wide_in, {.group = g});
        for (std::size_t i = 0; i < counts.size(); ++i) {
            for (std::size_t r = 0; r < n; ++r) {
                const auto expected = inputs(static_cast<int>(r), i, counts[i]);
                EXPECT_EQ(listed[r][i], expected) << i;
                EXPECT_TRUE(std::equal(expected.begin(), expected.end(),
                                       all[i].begin() + static_cast<std::ptrdiff_t>(r * counts[i])))
                    << i;
            }
            EXPECT_EQ(part[i], sums(g.size(), i, counts[i], me * counts[i])) << i;
        }
    });
}

TEST_P(Coalesced, a_scope_launches_what_it_collected_of_any_kind) {
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        const int n = g.size(), next = (g.rank() + 1) % n, before = (g.rank() + n - 1) % n;
        std::vector<int> a(10, 1), b(20, 2), from_root(30, g.rank()), last(3, g.rank()), sent(5, g.rank()), got(5, -1);
        std::vector<double> c(4, 0.5), mine(2, g.rank()), all(2 * static_cast<std::size_t>(n));
        Coalescing scope({.group = g});
        all_reduce(a, {.group = g});
        all_reduce(c, {.group = g});
        broadcast(from_root, {.group = g, .group_src = 1});
        all_reduce(b, {.group = g});
        all_gather_into_tensor(all, mine, {.group = g});
        broadcast(last, {.group = g, .group_src = 1});
        send(sent, g.global_rank(next), {.group = g});
        EXPECT_EQ(recv(got, {.group = g, .group_src = before}), g.global_rank(before));
        barrier({.group = g});
        EXPECT_EQ(a, std::vector<int>(10, 1));  // nothing has run
        EXPECT_EQ(got, std::vector<int>(5, -1));
        Work work = scope.end();
        work.wait();
        EXPECT_TRUE(work.is_completed() && work.is_success());
        EXPECT_EQ(a, std::vector<int>(10, n));
        EXPECT_EQ(b, std::vector<int>(20, 2 * n));
        EXPECT_EQ(c, std::vector<double>(4, 0.5 * n));
        EXPECT_EQ(from_root, std::vector<int>(30, 1));
        EXPECT_EQ(last, std::vector<int>(3, 1));
        EXPECT_EQ(got, std::vector<int>(5, before));
        for (int r = 0; r < n; ++r) EXPECT_EQ(all[static_cast<std::size_t>(2 * r)], r);
        all_reduce(a, {.group = g});  // at once again
        EXPECT_EQ(a, std::vector<int>(10, n * n));
        EXPECT_THROW((void)scope.end(), InvalidArgument);
    });
}

TEST_P(Coalesced, a_scope_that_ends_by_itself_waits_and_one_that_an_exception_ends_sends_nothing) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        std::vector<int> a(10, 1), b(100'000, 1);
        {
            const Coalescing scope({.group = g});
            all_reduce(a, {.group = g});
            all_reduce(b, {.group = g});
        }
        EXPECT_EQ(a, std::vector<int>(10, 2));
        EXPECT_EQ(b, std::vector<int>(100'000, 2));
        try {
            const Coalescing scope({.group = g});
            all_reduce(a, {.group = g});
            throw std::runtime_error("the caller's");
        } catch (const std::runtime_error&) {
        }
        EXPECT_EQ(a, std::vector<int>(10, 2));
        Coalescing nothing({.group = g});
        EXPECT_TRUE(nothing.end().wait());
        Coalescing outside({.group = ProcessGroup::non_member()});
        EXPECT_FALSE(outside.end());
        barrier({.group = g});
    });
}

// Long enough that each call goes alone, or so short that all go in one.
const std::vector<std::size_t> lengths{60, 60'000};

TEST_P(Coalesced, tensors_that_overlap_are_all_read_before_any_is_written) {
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        const int n = g.size();
        for (const std::size_t count : lengths) {
            for (const ReduceOp& op : {ReduceOp(ReduceOp::sum), ReduceOp::premul_sum(2)}) {
                const double factor = op.kind() == ReduceOp::Kind::premul_sum ? 2 * n : n;
                std::vector<float> twice(count, 1);
                all_reduce_coalesced({twice, twice, twice}, {.op = op, .group = g});
                EXPECT_EQ(twice, std::vector<float>(count, static_cast<float>(factor)));
                std::vector<double> a(count), expected(count);
                std::iota(a.begin(), a.end(), 0.0);
                for (std::size_t k = 0; k < count; ++k) expected[k] = factor * static_cast<double>(k);
                const std::span<double> all(a);
                Work work = async::all_reduce_coalesced(
                    {all.first(2 * count / 3), all.subspan(count / 3), all.subspan(count / 2, 1)},
                    {.op = op, .group = g});
                work.wait();
                EXPECT_EQ(a, expected);
            }
            // Every other element, and those again among all.
            std::vector<float> c(count, 1);
            const auto half = static_cast<std::int64_t>(count / 2);
            const TensorView even(c.data(), {half}, float32, {2}),
                back(c.data() + 2 * (half - 1), {half}, float32, {-2});
            all_reduce_coalesced({even, c, back}, {.group = g});
            EXPECT_EQ(c, std::vector<float>(count, static_cast<float>(n)));
        }
    });
}

TEST_P(Coalesced, of_several_that_write_to_the_same_memory_the_last_ones_result_stays) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        for (const std::size_t count : lengths) {
            std::vector<int> out(2 * count), first(count, 1), second(count, 2 + g.rank());
            all_gather_into_tensor_coalesced({out, out}, {first, second}, {.group = g});
            EXPECT_EQ(out.front(), 2);
            EXPECT_EQ(out.back(), 3);
            // One's output is another's input, and the other way round.
            std::vector<int> x(2 * count, 10 + g.rank()), y(2 * count, 20 + g.rank());
            const std::span<int> xs(x), ys(y);
            reduce_scatter_tensor_coalesced({xs.first(count), ys.first(count)}, {y, x}, {.group = g});
            EXPECT_EQ(x, [&] {
                std::vector<int> v(2 * count, 10 + g.rank());
                std::fill_n(v.begin(), count, 41);
                return v;
            }());
            EXPECT_EQ(y.front(), 21);
            EXPECT_EQ(y.back(), 20 + g.rank());
        }
    });
}

TEST_P(Coalesced, a_scope_exchanges_in_place_and_sends_to_its_own_rank) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        for (const std::size_t count : lengths) {
            std::vector<int> x(count, g.rank()), sum(count, 1), mine(count, 7 + g.rank()), got(count);
            const int me = g.global_rank(g.rank()), other = g.global_rank(1 - g.rank());
            Coalescing scope({.group = g});
            all_reduce(sum, {.group = g});
            send(x, other, {.group = g});
            recv(x, {.src = other, .group = g});
            send(mine, me, {.tag = 3, .group = g});
            recv(got, {.src = me, .tag = 3, .group = g});
            all_reduce(sum, {.group = g});
            EXPECT_TRUE(scope.end().wait());
            EXPECT_EQ(x, std::vector<int>(count, 1 - g.rank()));
            EXPECT_EQ(got, mine);
            EXPECT_EQ(sum, std::vector<int>(count, 2));
        }
        std::vector<int> x(3);
        EXPECT_THROW(send(x, g.global_rank(g.rank()), {.group = g}), InvalidArgument);  // alone it would wait for ever
    });
}

TEST_P(Coalesced, wrong_arguments_are_said_before_anything_is_sent) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        std::vector<int> a(10, 1), b(3, 1);
        const auto says = [](const char* text, auto call) {
            try {
                call();
                ADD_FAILURE() << "no error: " << text;
            } catch (const InvalidArgument& error) {
                EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
            }
        };
        says("the list is empty", [&] { all_reduce_coalesced({}, {.group = g}); });
        says("tensor 1: all_gather_into_tensor: output has 3 elements", [&] {
            all_gather_into_tensor_coalesced({a, b}, {ConstTensorView(std::span(a).first(5)), a}, {.group = g});
        });
        says("2 outputs for 1 inputs", [&] { reduce_scatter_tensor_coalesced({a, b}, {a}, {.group = g}); });
        says("one per rank", [&] { all_gather_coalesced({{a}}, {a}, {.group = g}); });
        says("already", [&] {
            const Coalescing scope({.group = g});
            const Coalescing second({.group = g});
        });
        EXPECT_EQ(a, std::vector<int>(10, 1));
        all_reduce(a, {.group = g});
        EXPECT_EQ(a, std::vector<int>(10, 2));
    });
}

TEST_P(Coalesced, calls_that_others_make_one_by_one_are_a_mismatch) {
    run_ranks(2, GetParam(),
              [](const ProcessGroup& g) {
                  std::vector<int> a(3000, 1), b(3000, 1);
                  const auto call = [&] {
                      if (g.rank() == 0) return all_reduce_coalesced({a, b}, {.group = g});
                      all_reduce(a, {.group = g});
                      all_reduce(b, {.group = g});
                  };
                  EXPECT_THROW(call(), CollectiveMismatch);
              },
              {.leave = false});
}

TEST_P(Coalesced, members_of_a_group_do_what_the_functions_do) {
    covers("S4-025");
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        const int n = g.size(), me = g.rank();
        const auto un = static_cast<std::size_t>(n);
        std::vector<int> x(4, 1), all(un, -1), one(1, me), whole(un, me), part(1);
        g.all_reduce(x);
        EXPECT_EQ(x, std::vector<int>(4, n));
        g.all_reduce(x, {.op = ReduceOp::max, .group = g});
        g.broadcast(one, {.group_src = 1});
        EXPECT_EQ(one[0], 1);
        one[0] = me;
        g.all_gather_into_tensor(all, one);
        EXPECT_EQ(all[2], 2);
        g.reduce_scatter_tensor(part, whole);
        EXPECT_EQ(part[0], 3);
        g.reduce(part, {.group_dst = 0});
        g.all_to_all_single(all, whole);
        EXPECT_EQ(all[2], 2);
        TensorList list;
        ConstTensorList const_list;
        for (std::size_t r = 0; r < un; ++r) {
            list.emplace_back(std::span(all).subspan(r, 1));
            const_list.emplace_back(std::span<const int>(whole).subspan(r, 1));
        }
        g.all_gather(list, one);
        g.all_to_all(list, const_list);
        g.reduce_scatter(part, const_list);
        EXPECT_EQ(part[0], 3);
        g.gather(one, me == 0 ? list : TensorList{});
        g.scatter(part, me == 0 ? const_list : ConstTensorList{});
        EXPECT_EQ(part[0], 0);
        Work sent = g.isend(one, (me + 1) % n);
        EXPECT_EQ(g.recv(part, {.src = (me + n - 1) % n}), (me + n - 1) % n);
        sent.wait();
        Work received = g.irecv(part, {.src = (me + n - 1) % n});
        g.send(one, (me + 1) % n);
        received.wait();
        g.barrier();
        g.monitored_barrier();
        std::vector<int> a(2, 1), b(3, 1);
        g.allreduce({a, b}, {.op = ReduceOp::sum}).wait();
        EXPECT_EQ(b, std::vector<int>(3, n));
        EXPECT_THROW(g.all_reduce(x, {.group = ProcessGroup::non_member()}), InvalidArgument);
        EXPECT_THROW(ProcessGroup().all_reduce(x), InvalidArgument);
        EXPECT_NO_THROW(ProcessGroup::non_member().all_reduce(x));
    });
}

}  // namespace
}  // namespace tutti::test
