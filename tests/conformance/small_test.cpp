// Short collectives on one host: ranks that run ahead, sizes around the limit, all kinds after each other.
#include "conformance/world.hpp"
#include "support/covers.hpp"

#include <random>
#include <thread>

namespace tutti::test {
namespace {

class Short : public ::testing::TestWithParam<How> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Short, ::testing::ValuesIn(every_way()),
                         [](const auto& instance) { return to_string(instance.param); });

void nap(std::mt19937& random) {
    if (random() % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
}

TEST_P(Short, broadcasts_and_gathers_are_right_when_the_other_side_comes_late) {
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        const int me = g.rank();
        std::mt19937 random(static_cast<unsigned>(me));  // every rank its own pace
        for (int i = 0; i < 300; ++i) {
            const int root = i / 100;  // a hundred with each root, so that it runs ahead
            if (me != root) nap(random);
            std::vector<int> value(4, me == root ? i : -1);
            broadcast(value, {.src = root, .group = g});
            ASSERT_EQ(value, std::vector<int>(4, i));
            std::vector<int> part(2, 100 * me + i), all(6);
            TensorList list;
            for (std::size_t r = 0; me == root && r < 3; ++r) list.emplace_back(std::span(all).subspan(2 * r, 2));
            if (me == root) nap(random);
            gather(part, list, {.dst = root, .group = g});
            if (me == root) {
                ASSERT_EQ(all, (std::vector<int>{i, i, 100 + i, 100 + i, 200 + i, 200 + i}));
            }
        }
    });
}

// The limit of a slot is near 8 KB for a rank's whole contribution.
TEST_P(Short, collectives_of_all_kinds_follow_each_other_at_sizes_around_the_limit) {
    constexpr int rounds = watched ? 60 : 300;
    for (const int n : {2, 5}) {
        run_ranks(n, GetParam(), [](const ProcessGroup& g) {
            const auto un = static_cast<std::size_t>(g.size()), m = static_cast<std::size_t>(g.rank());
            std::mt19937 shared(11), own(static_cast<unsigned>(m) + 5);
            const std::size_t limit = (8192 - 16) / sizeof(int);
            const std::size_t sizes[] = {1, 12, 13, 100, limit / un, limit / un + 1, limit - 1, limit, limit + 1};
            std::vector<Work> pending;
            for (int i = 0; i < rounds; ++i) {
                const std::size_t count = sizes[shared() % std::size(sizes)];
                const auto kind = shared() % 7;
                const int root = static_cast<int>(shared() % un);
                const auto at = [i](std::size_t rank, std::size_t k) {
                    return static_cast<int>(rank * 1000 + k % 17) + i;
                };
                const int sum_of_ranks = static_cast<int>(un * (un - 1) / 2) * 1000;
                const auto sum = [&](std::size_t k) {
                    return sum_of_ranks + static_cast<int>(un) * (static_cast<int>(k % 17) + i);
                };
                nap(own);
                std::vector<int> mine(count), all(count * un), want(count);
                for (std::size_t k = 0; k < count; ++k) mine[k] = at(m, k);
                for (std::size_t k = 0; k < count; ++k) want[k] = sum(k);
                if (kind == 0) {
                    all_reduce(mine, {.group = g});
                    ASSERT_EQ(mine, want);
                } else if (kind == 1) {
                    Work work = async::all_reduce(mine, {.group = g});
                    barrier({.group = g});  // behind it
                    ASSERT_TRUE(work.is_completed());
                    ASSERT_EQ(mine, want);
                } else if (kind == 2) {
                    const std::vector<int> before = mine;
                    reduce(mine, {.dst = root, .group = g});
                    ASSERT_EQ(mine, g.rank() == root ? want : before);
                } else if (kind == 3) {
                    all_gather_into_tensor(all, mine, {.group = g});
                    for (std::size_t k = 0; k < all.size(); k += 7) ASSERT_EQ(all[k], at(k / count, k % count));
                } else if (kind == 4) {
                    for (std::size_t k = 0; k < all.size(); ++k) all[k] = at(m, k);
                    reduce_scatter_tensor(mine, all, {.group = g});
                    for (std::size_t k = 0; k < count; ++k) ASSERT_EQ(mine[k], sum(m * count + k));
                } else if (kind == 5) {
                    for (std::size_t k = 0; k < all.size(); ++k) all[k] = at(m, k);
                    ConstTensorList list;
                    for (std::size_t r = 0; g.rank() == root && r < un; ++r)
                        list.emplace_back(std::span<const int>(all).subspan(r * count, count));
                    scatter(mine, list, {.src = root, .group = g});
                    for (std::size_t k = 0; k < count; ++k)
                        ASSERT_EQ(mine[k], at(static_cast<std::size_t>(root), m * count + k));
                } else {
                    broadcast(mine, {.src = root, .group = g});
                    for (std::size_t k = 0; k < count; ++k) ASSERT_EQ(mine[k], at(static_cast<std::size_t>(root), k));
                }
            }
        });
    }
}

TEST_P(Short, collectives_that_disagree_raise_on_both_sides_also_where_a_rank_would_not_wait) {
    const auto disagree = [](const auto& call) {
        run_ranks(2, GetParam(), [&call](const ProcessGroup& g) {
            EXPECT_THROW(
                {
                    call(g);
                    barrier({.group = g});  // the rank that came first hears of it at the latest here
                },
                CollectiveMismatch);
        });
    };
    disagree([](const ProcessGroup& g) {
        std::vector<int> x(2);
        broadcast(x, {.src = g.rank(), .group = g});
    });
    disagree([](const ProcessGroup& g) {
        std::vector<int> x(2);
        reduce(x, {.dst = 1 - g.rank(), .group = g});
    });
    disagree([](const ProcessGroup& g) {
        std::vector<int> x(g.rank() == 0 ? 2 : 5000);  // a short one meets a long one
        all_reduce(x, {.group = g});
    });
}

}  // namespace
}  // namespace tutti::test
