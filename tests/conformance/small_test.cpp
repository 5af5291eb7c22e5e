// Short collectives on one host: ranks that run ahead, sizes around the limit, all kinds after each other.
#include "conformance/world.hpp"
#include "support/covers.hpp"

#include <atomic>
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

// The limit is 32 KB for a rank's whole contribution, 128 KB of an all_to_all of more than two.
TEST_P(Short, collectives_of_all_kinds_follow_each_other_at_sizes_around_the_limit) {
    constexpr int rounds = watched ? 60 : 300;
    for (const int n : {2, 5}) {
        run_ranks(n, GetParam(), [](const ProcessGroup& g) {
            const auto un = static_cast<std::size_t>(g.size()), m = static_cast<std::size_t>(g.rank());
            std::mt19937 shared(11), own(static_cast<unsigned>(m) + 5);
            const std::size_t limit = 32768 / sizeof(int);
            const std::size_t sizes[] = {1,
                                         4,
                                         5,
                                         12,
                                         28,
                                         29,
                                         100,
                                         limit / un,
                                         limit / un + 1,
                                         limit - 1,
                                         limit,
                                         limit + 1,
                                         4 * limit / un,
                                         4 * limit / un + 1};
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

// Whether a rank's blocks fit into its slot, no other rank knows.
TEST_P(Short, all_to_all_is_right_when_blocks_fit_for_some_ranks_and_not_for_others) {
    constexpr int rounds = watched ? 40 : 200;
    for (const int n : {1, 2, 5}) {
        run_ranks(n, GetParam(), [](const ProcessGroup& g) {
            const auto un = static_cast<std::size_t>(g.size()), me = static_cast<std::size_t>(g.rank());
            std::mt19937 shared(23), own(static_cast<unsigned>(me) + 7);
            const std::size_t limit = (un > 2 ? 131072 : 32768) / sizeof(int);
            const std::size_t sizes[] = {0,     1,     3, 13, 14, 100, limit / un - 2, limit / un, limit / un + 1,
                                         limit, 20'000};
            for (int i = 0; i < rounds; ++i) {
                // counts[from][to]; equal ones go the shorter way.
                const bool even = shared() % 2 == 0;
                const std::size_t common = sizes[shared() % std::size(sizes)];
                std::vector<std::vector<std::size_t>> counts(un, std::vector<std::size_t>(un, common));
                for (std::size_t from = 0; !even && from < un; ++from) {
                    const std::size_t small_sizes = 1 + shared() % std::size(sizes);  // of this rank
                    for (std::size_t& count : counts[from]) count = sizes[shared() % small_sizes];
                }
                const auto value = [i](std::size_t from, std::size_t to, std::size_t k) {
                    return static_cast<int>(from * 100'000 + to * 10'000 + k % 97) + i;
                };
                std::vector<int> in, want;
                std::vector<std::int64_t> in_sizes, out_sizes;
                for (std::size_t r = 0; r < un; ++r) {
                    for (std::size_t k = 0; k < counts[me][r]; ++k) in.push_back(value(me, r, k));
                    for (std::size_t k = 0; k < counts[r][me]; ++k) want.push_back(value(r, me, k));
                    in_sizes.push_back(static_cast<std::int64_t>(counts[me][r]));
                    out_sizes.push_back(static_cast<std::int64_t>(counts[r][me]));
                }
                std::vector<int> out(want.size(), -1);
                nap(own);
                const auto form = shared() % 4;
                if (form == 0) {  // one tensor; ranks need not choose the same form
                    if (even && me % 2 == 0)
                        all_to_all_single(out, in, {.group = g});
                    else
                        all_to_all_single(out, in,
                                          {.output_split_sizes = out_sizes, .input_split_sizes = in_sizes, .group = g});
                } else if (form == 1) {  // lists whose tensors adjoin
                    TensorList outs;
                    ConstTensorList ins;
                    std::size_t from = 0, to = 0;
                    for (std::size_t r = 0; r < un; ++r) {
                        ins.emplace_back(std::span<const int>(in).subspan(from, counts[me][r]));
                        outs.emplace_back(std::span(out).subspan(to, counts[r][me]));
                        from += counts[me][r], to += counts[r][me];
                    }
                    all_to_all(outs, ins, {.group = g});
                } else if (form == 2) {  // and those that lie anywhere
                    std::vector<std::vector<int>> pieces_in, pieces_out;
                    std::size_t from = 0;
                    for (std::size_t r = 0; r < un; ++r) {
                        const auto at = in.begin() + static_cast<std::ptrdiff_t>(from);
                        pieces_in.emplace_back(at, at + static_cast<std::ptrdiff_t>(counts[me][r]));
                        pieces_out.emplace_back(counts[r][me], -1);
                        from += counts[me][r];
                    }
                    all_to_all(TensorList(pieces_out.begin(), pieces_out.end()),
                               ConstTensorList(pieces_in.begin(), pieces_in.end()), {.group = g});
                    out.clear();
                    for (const auto& piece : pieces_out) out.insert(out.end(), piece.begin(), piece.end());
                } else {
                    Work work = async::all_to_all_single(
                        out, in, {.output_split_sizes = out_sizes, .input_split_sizes = in_sizes, .group = g});
                    barrier({.group = g});
                    ASSERT_TRUE(work.is_completed());
                }
                ASSERT_EQ(out, want) << "round " << i << ", form " << form;
            }
        });
    }
}

TEST_P(Short, all_to_all_into_its_own_input_is_right) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        std::vector<int> x{10 * g.rank(), 10 * g.rank() + 1};
        all_to_all_single(x, x, {.group = g});
        EXPECT_EQ(x, (std::vector<int>{g.rank(), 10 + g.rank()}));
    });
}

// The result begins in the middle of this rank's own block.
TEST_P(Short, results_that_overlap_the_values_they_come_from_are_right) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        constexpr std::size_t block = 2000;
        const auto me = static_cast<std::size_t>(g.rank());
        const auto at = [](std::size_t rank, std::size_t k) { return static_cast<int>(rank * 10'000 + k); };
        std::vector<int> x(2 * block + 1);
        const std::span<int> all = std::span(x).first(2 * block), result = std::span(x).subspan(me * block + 1, block);
        const auto fill = [&] {
            for (std::size_t k = 0; k < x.size(); ++k) x[k] = at(me, k);
        };
        fill();
        reduce_scatter_tensor(result, all, {.group = g});
        for (std::size_t k = 0; k < block; ++k)
            ASSERT_EQ(result[k], at(0, me * block + k) + at(1, me * block + k)) << k;
        fill();
        ConstTensorList list;
        if (me == 0) list = {all.first(block), all.last(block)};
        scatter(result, list, {.src = 0, .group = g});
        for (std::size_t k = 0; k < block; ++k) ASSERT_EQ(result[k], at(0, me * block + k)) << k;
    });
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

// Ranks that share memory compare collectives in which nobody waits as soon as one of them waits again.
class WithoutWaiting : public Short {};
INSTANTIATE_TEST_SUITE_P(Ranks, WithoutWaiting, ::testing::ValuesIn([] {
                             std::vector<How> ways = every_way();
                             std::erase_if(
                                 ways, [](How how) { return how == How::tcp_processes || how == How::tcp_threads; });
                             return ways;
                         }()),
                         [](const auto& instance) { return to_string(instance.param); });

void broadcast_from_oneself(const ProcessGroup& g, int count = 2) {
    std::vector<int> x(static_cast<std::size_t>(count));
    broadcast(x, {.src = g.rank(), .group = g});
}

TEST_P(WithoutWaiting, a_disagreement_shows_in_whatever_comes_next_and_names_the_first_call_that_differed) {
    using Next = std::function<void(const ProcessGroup&)>;
    const std::pair<const char*, Next> nexts[] = {
        {"a barrier", [](const ProcessGroup& g) { barrier({.group = g}); }},
        {"a message",
         [](const ProcessGroup& g) {
             std::vector<int> x(1);
             (void)recv(x, {.src = 1 - g.rank(), .group = g});  // that nobody sends
         }},
        {"an all_to_all",
         [](const ProcessGroup& g) {
             std::vector<int> x(2), y(2);
             all_to_all_single(y, x, {.group = g});
         }},
        {"a large all_to_all",
         [](const ProcessGroup& g) {
             std::vector<int> x(20'000), y(20'000);
             all_to_all_single(y, x, {.group = g});
         }},
        {"a large all_reduce",
         [](const ProcessGroup& g) {
             std::vector<int> x(20'000);
             all_reduce(x, {.group = g});
         }},
        {"many more in which nobody waits",  // several times the slots, as below
         [](const ProcessGroup& g) {
             for (int i = 0; i < 700; ++i) broadcast_from_oneself(g, 3 + i % 3);
         }},
        {"many long ones in which nobody waits",
         [](const ProcessGroup& g) {
             for (int i = 0; i < 700; ++i) broadcast_from_oneself(g, 1000);
         }},
    };
    for (const auto& [name, next] : nexts) {
        run_ranks(2, GetParam(),
                  [&name, &next](const ProcessGroup& g) {
                      barrier({.group = g});
                      try {
                          broadcast_from_oneself(g, 3);
                          next(g);
                          ADD_FAILURE() << name << ": rank " << g.rank() << " noticed nothing";
                      } catch (const CollectiveMismatch& error) {
                          for (const char* side : {"operation #2", "broadcast of int32 × 3, root 0", "root 1"}) {
                              EXPECT_NE(std::string(error.what()).find(side), std::string::npos)
                                  << name << ": " << error.what();
                          }
                      }
                      std::this_thread::sleep_for(std::chrono::milliseconds(120));  // the other has yet to hear of it
                  },
                  {.timeout = std::chrono::seconds(20), .leave = false});
    }
}

TEST(WithoutWaitingThreads, a_disagreement_shows_on_one_rank_at_least_when_all_leave) {
    for (int round = 0; round < 20; ++round) {
        std::atomic<int> noticed{0};
        run_ranks(2, How::threads,
                  [&noticed](ProcessGroup g) {
                      broadcast_from_oneself(g);
                      try {
                          g.destroy();
                      } catch (const CollectiveMismatch&) {
                          ++noticed;
                      }
                  },
                  {.leave = false});
        ASSERT_GE(noticed.load(), 1);
    }
}

TEST_P(Short, all_to_all_tells_both_sizes_when_they_disagree) {
    for (const std::int64_t other : {1, 5000}) {  // blocks that fit into a slot, and blocks that do not
        run_ranks(2, GetParam(),
                  [other](const ProcessGroup& g) {
                      // Rank 0 sends two more to rank 1 than that expects.
                      const std::int64_t sent = g.rank() == 0 ? other + 2 : other;
                      std::vector<int> in(static_cast<std::size_t>(1 + sent)), out(static_cast<std::size_t>(1 + other));
                      using Sizes = std::vector<std::int64_t>;
                      const bool first = g.rank() == 0;
                      try {
                          all_to_all_single(out, in,
                                            {.output_split_sizes = first ? Sizes{1, other} : Sizes{other, 1},
                                             .input_split_sizes = first ? Sizes{1, sent} : Sizes{sent, 1},
                                             .group = g});
                          barrier({.group = g});  // a rank that was done before hears of it here
                          ADD_FAILURE() << "rank " << g.rank() << " noticed nothing";
                      } catch (const CollectiveMismatch& error) {
                          const bool one_host = GetParam() == How::threads || GetParam() == How::shm_processes;
                          const std::string words = one_host ? "rank 0 sends int32 × " + std::to_string(other + 2) +
                                                                   " to rank 1, which expects " + std::to_string(other)
                                                             : "all_to_all";
                          EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
                      }
                      std::this_thread::sleep_for(std::chrono::milliseconds(120));  // the other has yet to hear of it
                  },
                  {.timeout = std::chrono::seconds(20), .leave = false});
    }
}

}  // namespace
}  // namespace tutti::test
