// scan and exscan on real ranks: in place, asynchronous, planned, collected, of any layout, and what they refuse.
#include "conformance/world.hpp"
#include "support/covers.hpp"

#include <algorithm>
#include <random>

namespace tutti::test {
namespace {

using Longs = std::vector<std::int64_t>;

class Prefixes : public ::testing::TestWithParam<How> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Prefixes, ::testing::ValuesIn(every_way()),
                         [](const auto& instance) { return to_string(instance.param); });

std::int64_t value(int rank, std::size_t i) {
    return static_cast<std::int64_t>((static_cast<std::size_t>(rank) * 31 + i * 7) % 101) - 50;
}

// The sums of ranks 0 to `end`, which is left out; without any rank, the values of rank 0.
Longs sums(int end, std::size_t count) {
    Longs result(count);
    for (std::size_t i = 0; i < count; ++i) {
        if (end == 0) result[i] = value(0, i);
        for (int rank = 0; rank < end; ++rank) result[i] += value(rank, i);
    }
    return result;
}
Longs values_of(int rank, std::size_t count) {
    Longs result(count);
    for (std::size_t i = 0; i < count; ++i) result[i] = value(rank, i);
    return result;
}

TEST_P(Prefixes, are_those_of_the_ranks_up_to_oneself_or_before_for_any_length) {
    covers("S24-005", "S24-006");
    for (const int n : {1, 2, 3, 4}) {
        run_ranks(n, GetParam(), [](const ProcessGroup& g) {
            const int me = g.rank();
            std::mt19937 chance(7);  // the same on all ranks
            std::vector<std::size_t> counts{0, 1, 2, 4096, 200'003};
            for (int i = 0; i < 8; ++i) counts.push_back(chance() % (watched ? 3000 : 60'000));
            for (const std::size_t count : counts) {
                Longs x = values_of(me, count);
                scan(x, {.group = g});
                ASSERT_EQ(x, sums(me + 1, count)) << "scan of " << count;
                x = values_of(me, count);
                exscan(x, {.group = g});
                ASSERT_EQ(x, sums(me, count)) << "exscan of " << count;
            }
        });
    }
}

TEST_P(Prefixes, come_in_every_form_of_a_call) {
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        const int me = g.rank();
        for (const std::size_t count : {std::size_t{3}, std::size_t{50'000}}) {
            Longs x = values_of(me, count), y = x, z = x;
            Work first = async::scan(x, {.group = g}), second = async::exscan(y, {.group = g});
            first.wait();
            second.wait();
            EXPECT_EQ(x, sums(me + 1, count));
            EXPECT_EQ(y, sums(me, count));
            g.scan(z);
            EXPECT_EQ(z, sums(me + 1, count));
            x = y = values_of(me, count);
            {
                const Coalescing scope({.group = g});
                scan(x, {.group = g});
                exscan(y, {.group = g});
            }
            EXPECT_EQ(x, sums(me + 1, count));
            EXPECT_EQ(y, sums(me, count));
            Plan planned = plan::exscan(x, {.group = g});
            for (int round = 0; round < 3; ++round) {
                std::ranges::copy(values_of(me, count), x.begin());  // the plan has their place
                planned.run();
                EXPECT_EQ(x, sums(me, count));
            }
        }
    });
}

TEST_P(Prefixes, leave_what_is_beside_a_view_and_all_of_rank_0s_exclusive_one) {
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        const int me = g.rank();
        for (const ReduceOp& op : {ReduceOp(ReduceOp::sum), ReduceOp::premul_sum(2)}) {
            const std::int64_t factor = op.kind() == ReduceOp::Kind::premul_sum ? 2 : 1;
            for (const bool inclusive : {true, false}) {
                Longs grid = values_of(me, 12);
                const TensorView column(grid.data(), {6}, int64, {2});
                inclusive ? scan(column, {.op = op, .group = g}) : exscan(column, {.op = op, .group = g});
                const int end = inclusive ? me + 1 : me;
                const Longs wanted = sums(end, 12), own = values_of(me, 12);
                for (std::size_t i = 0; i < 12; ++i)
                    EXPECT_EQ(grid[i], i % 2 == 1 ? own[i] : (end == 0 ? 1 : factor) * wanted[i]) << i;
            }
            std::vector<BFloat16> small(1000, BFloat16(0.5F));
            exscan(small, {.op = op, .group = g});
            EXPECT_EQ(float(small[999]), me == 0 ? 0.5F : static_cast<float>(factor) * 0.5F * static_cast<float>(me));
        }
    });
}

TEST_P(Prefixes, add_from_rank_0_upwards_where_the_group_promises_it) {
    for (const std::size_t count : {std::size_t{100}, std::size_t{100'000}}) {
        run_ranks(4, GetParam(),
                  [count](const ProcessGroup& g) {
                      const auto at = [](int rank, std::size_t i) {
                          return 1.0F / static_cast<float>(i * 7 + static_cast<std::size_t>(rank) + 1);
                      };
                      std::vector<float> x(count), up_to_me(count), before_me(count);
                      for (std::size_t i = 0; i < count; ++i) {
                          x[i] = at(g.rank(), i);
                          before_me[i] = at(0, i);
                          for (int rank = 1; rank < g.rank(); ++rank) before_me[i] += at(rank, i);
                          up_to_me[i] = g.rank() == 0 ? x[i] : before_me[i] + x[i];
                      }
                      std::vector<float> y = x;
                      scan(x, {.group = g});
                      EXPECT_EQ(x, up_to_me);
                      exscan(y, {.group = g});
                      EXPECT_EQ(y, before_me);
                  },
                  {.determinism = Determinism::layout_invariant});
    }
}

TEST_P(Prefixes, refuse_averages_and_what_is_not_defined_before_anything_is_sent) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        std::vector<float> x(3);
        const auto refused = [&](const std::string& name, const auto& call) {
            const std::string text = message_of<InvalidArgument>(call);
            EXPECT_TRUE(has(text, name + ": op avg: expected another one")) << text;
        };
        refused("scan", [&] { scan(x, {.op = ReduceOp::avg, .group = g}); });
        refused("exscan", [&] { (void)async::exscan(x, {.op = ReduceOp::avg, .group = g}); });
        refused("scan", [&] { (void)plan::scan(x, {.op = ReduceOp::avg, .group = g}); });
        EXPECT_THROW(scan(x, {.op = ReduceOp::bor, .group = g}), InvalidArgument);
        scan(x, {.group = g});  // the group still works
    });
}

}  // namespace
}  // namespace tutti::test
