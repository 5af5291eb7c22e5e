// Executable::bind: which tensors it takes, under which names, and what it refuses.
#include "conformance/world.hpp"

#include <tutti/graph.hpp>

#include <algorithm>

namespace tutti::test {
namespace {

using graph::Executable;

class GraphBindings : public ::testing::TestWithParam<How> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GraphBindings, ::testing::ValuesIn(every_way()),
                         [](const auto& instance) { return to_string(instance.param); });

using Values = std::vector<float>;

TEST_P(GraphBindings, refuse_to_bind_what_they_do_not_know_and_move_back) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        Values x(8), y(8), stray(8), other(8);
        Executable step(graph::capture([&] {
            all_reduce(x, {.group = g});
            all_reduce(y, {.op = ReduceOp::max, .group = g});
        }));
        const auto refusal = [&](const std::vector<graph::Binding>& bindings) {
            return message_of<InvalidArgument>([&] { step.bind(bindings); });
        };
        EXPECT_TRUE(has(refusal({{stray, other}}), "Executable.bind: captured is float32[8] at 0x"));
        EXPECT_TRUE(has(refusal({{x, other}, {stray, y}}), "which no node of the graph uses: expected a tensor of"));
        EXPECT_TRUE(has(refusal({{x, other}, {x, stray}}), "two bindings name one tensor"));
        EXPECT_TRUE(has(refusal({{x, y}}), "would stand for two tensors of the graph"));
        EXPECT_TRUE(has(refusal({{x, other}, {y, other}}), "would stand for two tensors of the graph"));
        const auto check = [&](Values& summed, Values& largest) {
            for (Values* v : {&x, &y, &stray, &other}) std::ranges::fill(*v, static_cast<float>(g.rank() + 1));
            step.replay();
            for (Values* v : {&x, &y, &stray, &other})
                EXPECT_EQ(v->front(), v == &summed ? 3.F : v == &largest ? 2.F : static_cast<float>(g.rank() + 1));
        };
        check(x, y);  // nothing of what was refused has moved
        step.bind(x, other);
        EXPECT_TRUE(has(refusal({{std::span(other).subspan(0, 4), std::span(stray).subspan(0, 4)}}), "no node"));
        EXPECT_TRUE(has(refusal({{std::span(x).subspan(0, 4), std::span(stray).subspan(0, 4)}}),
                        "of which a part has been bound already"));
        check(other, y);
        step.bind(other, x);
        check(x, y);
        const std::vector<graph::Binding> swap{{x, y}, {y, x}};
        step.bind(swap);
        check(y, x);
        step.bind(swap);
        check(x, y);
        step.bind(x, other);
        step.bind(x, stray);
        check(stray, y);
    });
}

TEST_P(GraphBindings, bind_what_they_read_to_one_tensor_and_move_both) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        Values x(4), y(4), both(4, 5.F), others(4, 7.F), all_x(8), all_y(8);
        Executable step(graph::capture([&] {
            all_gather_into_tensor(all_x, x, {.group = g});
            all_gather_into_tensor(all_y, y, {.group = g});
        }));
        step.bind(x, both);
        step.bind(y, both);
        step.replay();
        EXPECT_EQ(all_x, Values(8, 5.F));
        EXPECT_EQ(all_y, Values(8, 5.F));
        step.bind(both, others);
        step.replay();
        EXPECT_EQ(all_x, Values(8, 7.F));
        EXPECT_EQ(all_y, Values(8, 7.F));
        EXPECT_THROW(step.bind(all_x, std::span(all_y)), InvalidArgument);
    });
}

}  // namespace
}  // namespace tutti::test
