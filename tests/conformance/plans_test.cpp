// Plans: calls that are checked once and made often.
#include "conformance/world.hpp"
#include "support/covers.hpp"

#include <algorithm>
#include <thread>
#include <utility>

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

class Plans : public ::testing::TestWithParam<How> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Plans, ::testing::ValuesIn(every_way()),
                         [](const auto& instance) { return to_string(instance.param); });

// Element k of rank r's input in round i.
int input(int rank, int round, std::size_t k) {
    return 1000 * rank + 10 * round + static_cast<int>(k % 7);
}
std::vector<int> inputs(int rank, int round, std::size_t count) {
    std::vector<int> values(count);
    for (std::size_t k = 0; k < count; ++k) values[k] = input(rank, round, k);
    return values;
}
/// Into the same memory: a plan keeps to it.
void put(std::vector<int>& into, const std::vector<int>& values) {
    ASSERT_EQ(into.size(), values.size());
    std::ranges::copy(values, into.begin());
}
std::vector<int> sums(int ranks, int round, std::size_t count) {
    std::vector<int> values(count);
    for (std::size_t k = 0; k < count; ++k) {
        for (int r = 0; r < ranks; ++r) values[k] += input(r, round, k);
    }
    return values;
}

// Short and long, empty too; run() and start() by turns; the buffers change between the rounds.
TEST_P(Plans, do_what_the_plain_calls_do_round_after_round) {
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        const int n = g.size(), me = g.rank();
        const auto un = static_cast<std::size_t>(n), um = static_cast<std::size_t>(me);
        for (const std::size_t count : {std::size_t{0}, std::size_t{2}, std::size_t{600}, std::size_t{30'000}}) {
            std::vector<int> x(count), y(count), up_to_me(count), before_me(count), root_only(count), all(count * un),
                into(count * un), listed(count * un);
            std::vector<int> part(count), scattered(count), reduced(count), summed(count), exchanged(count * un),
                traded(count * un), wide(count * un);
            TensorList gather_list, all_list, traded_list;
            ConstTensorList scatter_list, wide_list;
            for (std::size_t r = 0; r < un; ++r) {
                all_list.emplace_back(std::span(listed).subspan(r * count, count));
                traded_list.emplace_back(std::span(traded).subspan(r * count, count));
                wide_list.emplace_back(std::span<const int>(wide).subspan(r * count, count));
                if (me != 1) continue;
                gather_list.emplace_back(std::span(all).subspan(r * count, count));
                scatter_list.emplace_back(std::span<const int>(wide).subspan(r * count, count));
            }
            std::vector<Plan> plans;
            plans.push_back(plan::all_reduce(x, {.group = g}));
            plans.push_back(plan::broadcast(y, {.src = 2, .group = g}));
            plans.push_back(plan::scan(up_to_me, {.group = g}));
            plans.push_back(plan::exscan(before_me, {.group = g}));
            plans.push_back(plan::reduce(root_only, {.dst = 1, .group = g}));
            plans.push_back(plan::all_gather(all_list, part, {.group = g}));
            plans.push_back(plan::all_gather_into_tensor(into, part, {.group = g}));
            plans.push_back(plan::gather(part, gather_list, {.dst = 1, .group = g}));
            plans.push_back(plan::scatter(scattered, scatter_list, {.src = 1, .group = g}));
            plans.push_back(plan::reduce_scatter(reduced, wide_list, {.group = g}));
            plans.push_back(plan::reduce_scatter_tensor(summed, wide, {.group = g}));
            plans.push_back(plan::all_to_all_single(exchanged, wide, {.group = g}));
            plans.push_back(plan::all_to_all(traded_list, wide_list, {.group = g}));
            plans.push_back(plan::barrier({.group = g}));
            for (int round = 0; round < 4; ++round) {
                for (auto* own : {&x, &y, &root_only, &part, &up_to_me, &before_me})
                    put(*own, inputs(me, round, count));
                put(wide, inputs(me, round, count * un));
                for (auto* result : {&all, &into, &listed, &scattered, &reduced, &summed, &exchanged, &traded})
                    std::ranges::fill(*result, -1);
                for (Plan& each : plans) {
                    if (round % 2 == 0)
                        each.run();
                    else
                        each.start().wait();
                }
                const auto mine = [&](const std::vector<int>& values) {
                    return std::vector<int>(values.begin() + static_cast<std::ptrdiff_t>(um * count),
                                            values.begin() + static_cast<std::ptrdiff_t>((um + 1) * count));
                };
                std::vector<int> everyone, pieces;
                for (int r = 0; r < n; ++r) {
                    const auto block = inputs(r, round, count), piece = mine(inputs(r, round, count * un));
                    everyone.insert(everyone.end(), block.begin(), block.end());
                    pieces.insert(pieces.end(), piece.begin(), piece.end());
                }
                EXPECT_EQ(x, sums(n, round, count));
                EXPECT_EQ(y, inputs(2, round, count));
                EXPECT_EQ(up_to_me, sums(me + 1, round, count));
                EXPECT_EQ(before_me, me == 0 ? inputs(0, round, count) : sums(me, round, count));
                EXPECT_EQ(root_only, me == 1 ? sums(n, round, count) : inputs(me, round, count));
                EXPECT_EQ(into, everyone);
                EXPECT_EQ(listed, everyone);
                EXPECT_EQ(all, me == 1 ? everyone : std::vector<int>(count * un, -1));
                EXPECT_EQ(scattered, mine(inputs(1, round, count * un)));
                EXPECT_EQ(reduced, mine(sums(n, round, count * un)));
                EXPECT_EQ(summed, reduced);
                EXPECT_EQ(exchanged, pieces);
                EXPECT_EQ(traded, pieces);
            }
        }
    });
}

// What is not in one piece is packed anew at each run; so is what is scaled.
TEST_P(Plans, read_strided_and_scaled_buffers_as_they_are_at_each_run) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        for (const std::int64_t count : {std::int64_t{3}, std::int64_t{20'000}}) {
            const auto size = static_cast<std::size_t>(2 * count);
            std::vector<float> x(size), scaled(size / 2), column(size);
            const TensorView every_second(x.data(), {count}, float32, {2}),
                target(column.data(), {count}, float32, {2});
            Plan sum = plan::all_reduce(every_second, {.group = g});
            Plan premul = plan::all_reduce(scaled, {.op = ReduceOp::premul_sum(0.5), .group = g});
            Plan gathered = plan::broadcast(target, {.src = 1, .group = g});
            for (int round = 1; round < 4; ++round) {
                for (std::size_t k = 0; k < size; ++k)
                    x[k] = static_cast<float>(round * (g.rank() + 1) + (k % 2 ? 100 : 0));
                std::ranges::fill(scaled, static_cast<float>(round * (g.rank() + 1)));
                for (std::size_t k = 0; k < size; ++k) column[k] = static_cast<float>(g.rank() * round);
                sum.run();
                premul.run();
                gathered.run();
                for (std::size_t k = 0; k < size; ++k) {
                    const auto as_before = static_cast<float>(round * (g.rank() + 1) + 100);
                    ASSERT_EQ(x[k], k % 2 ? as_before : static_cast<float>(3 * round)) << k;
                    ASSERT_EQ(column[k], static_cast<float>(k % 2 ? g.rank() * round : round)) << k;
                }
                for (const float value : scaled) ASSERT_EQ(value, 1.5F * static_cast<float>(round));
            }
        }
    });
}

TEST_P(Plans, and_plain_calls_meet) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        for (const std::size_t count : {1, 1000, 100'000}) {
            std::vector<int> x(count), in(count);
            Plan sum = plan::all_reduce(x, {.group = g});
            Plan to = plan::send(x, 1 - g.rank(), {.tag = 3, .group = g});
            Plan from = plan::recv(in, {.src = 1 - g.rank(), .tag = 3, .group = g});
            for (int round = 0; round < 6; ++round) {
                const bool planned = (round + g.rank()) % 2 == 0;
                put(x, inputs(g.rank(), round, count));
                planned ? sum.run() : all_reduce(x, {.group = g});
                ASSERT_EQ(x, sums(2, round, count));
                put(x, inputs(g.rank(), round, count));
                Work sent = planned ? to.start() : isend(x, 1 - g.rank(), {.tag = 3, .group = g});
                if (round % 3 == 0)
                    from.run();
                else
                    recv(in, {.src = 1 - g.rank(), .tag = 3, .group = g});
                sent.wait();
                ASSERT_EQ(in, inputs(1 - g.rank(), round, count));
            }
        }
    });
}

TEST_P(Plans, and_works_tell_the_sender_s_rank_in_the_group) {
    run_ranks(3, GetParam(), [](const ProcessGroup& w) {
        const ProcessGroup g = w.split({.color = w.rank() == 0 ? -1 : 0});
        int value = w.rank();
        if (w.rank() == 2) {
            for (int i = 0; i < 2; ++i) send(std::span(&value, 1), 1, {.group = g});
        } else if (w.rank() == 1) {
            Work received = irecv(std::span(&value, 1), {.group = g});
            received.wait();
            EXPECT_EQ(received.source_rank(), 1);
            Plan in = plan::recv(std::span(&value, 1), {.src = 2, .group = g});
            in.run();
            EXPECT_EQ(in.source_rank(), 1);
        }
        if (w.rank() > 0) barrier({.group = g});  // a device's library may lose what a rank sent that has left
    });
}

TEST_P(Plans, of_messages_tell_who_sent) {
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        int value = g.rank();
        if (g.rank() != 0) {
            Plan out = plan::send(std::span(&value, 1), 0, {.group = g});
            EXPECT_THROW((void)out.source_rank(), InvalidArgument);
            for (int round = 0; round < 3; ++round) out.run();
        } else {
            Plan in = plan::recv(std::span(&value, 1), {.group = g});
            Plan from_two = plan::recv(std::span(&value, 1), {.src = 2, .group = g});
            EXPECT_THROW((void)in.source_rank(), InvalidArgument) << "nothing has come yet";
            from_two.run();
            EXPECT_EQ(from_two.source_rank(), 2);
            EXPECT_EQ(value, 2);
            int heard[3] = {};
            for (int round = 0; round < 4; ++round) {
                in.run();
                EXPECT_EQ(in.source_rank(), value);
                ++heard[value];
            }
            Work last = in.start();
            last.wait();
            ++heard[last.source_rank()];
            EXPECT_EQ(heard[1], 3);
            EXPECT_EQ(heard[2], 2);
        }
        barrier({.group = g});
    });
}

TEST_P(Plans, are_one_call_at_a_time) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        std::vector<int> x(3, g.rank());
        int token = 0;
        Plan sum = plan::all_reduce(x, {.group = g});
        Plan moved = std::move(sum);
        EXPECT_FALSE(sum);  // NOLINT(bugprone-use-after-move): that is what is tested
        EXPECT_THROW(sum.run(), InvalidArgument);
        EXPECT_THROW((void)sum.start(), InvalidArgument);
        if (g.rank() == 0) {
            Work work = moved.start();
            EXPECT_THROW(moved.run(), InvalidArgument);
            EXPECT_THROW((void)moved.start(), InvalidArgument);
            send(std::span(&token, 1), 1, {.group = g});
            work.wait();
        } else {
            recv(std::span(&token, 1), {.src = 0, .group = g});  // not before
            moved.run();
        }
        EXPECT_EQ(x, std::vector<int>(3, 1));
        moved.run();
        EXPECT_EQ(x, std::vector<int>(3, 2));
    });
}

TEST_P(Plans, refuse_bad_arguments_when_they_are_made_and_leave_the_group_whole) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        std::vector<float> x(4), y(4);
        EXPECT_THROW((void)plan::broadcast(x, {.group = g}), InvalidArgument);
        EXPECT_THROW((void)plan::all_reduce(x, {.op = ReduceOp::bor, .group = g}), InvalidArgument);
        EXPECT_THROW((void)plan::all_reduce(x, {.group = g, .timeout = -1ms}), InvalidArgument);
        EXPECT_THROW((void)plan::all_gather_into_tensor(x, y, {.group = g}), InvalidArgument);
        EXPECT_THROW((void)plan::send(x, 2, {.group = g}), InvalidArgument);
        EXPECT_THROW((void)plan::send(x, g.rank(), {.group = g}), InvalidArgument);
        EXPECT_THROW((void)plan::recv(x, {.tag = -1, .group = g}), InvalidArgument);
        EXPECT_THROW(Plan().run(), InvalidArgument);
        barrier({.group = g});
    });
}

TEST_P(Plans, of_a_group_that_is_gone_or_late_fail) {
    run_ranks(2, GetParam(),
              [](const ProcessGroup& g) {
                  std::vector<float> x(4), y(100'000);
                  Plan shorter = plan::all_reduce(x, {.group = g, .timeout = 200ms});
                  Plan longer = plan::all_reduce(y, {.group = g});
                  shorter.run();
                  longer.run();
                  if (g.rank() == 1) {
                      ProcessGroup(g).destroy();
                      EXPECT_THROW(shorter.run(), Aborted);
                      EXPECT_THROW(longer.run(), Aborted);
                      EXPECT_THROW((void)longer.start(), Aborted);
                      return;
                  }
                  EXPECT_THROW(shorter.run(), DistError);  // the other has left, or the time is over
                  EXPECT_THROW(longer.run(), DistError) << "the group is unusable";
              },
              {.leave = false});
}

}  // namespace
}  // namespace tutti::test
