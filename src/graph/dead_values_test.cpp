#include "graph/test_graphs.hpp"

#include <gtest/gtest.h>

namespace tutti::graph {
namespace {

using test::Program;

std::vector<int> left(const Program& p) {
    Result result = drop_dead_values(p.graph(), test::settings_of(p.graph()));
    mark_changed_groups(p.graph(), result.graph);
    std::vector<int> ids;
    for (const Node& n : result.graph.nodes) ids.push_back(n.id);
    EXPECT_EQ(result.text.size(), p.graph().nodes.size() - ids.size());
    EXPECT_FALSE(result.graph.changed()) << "communication is as it was";
    EXPECT_TRUE(prove({p.graph()}, {result.graph})) << test::faults_of(prove({p.graph()}, {result.graph}));
    return ids;
}

TEST(DeadValues, that_are_overwritten_unread_go_with_all_that_made_them) {
    Program p(0, 1);
    const Range x = p.buffer(64), y = p.buffer(64), z = p.buffer(64);
    p.compute({x}, {y});  // 0: only for 1
    p.compute({y}, {z});  // 1: overwritten by 3
    p.compute({}, {y});   // 2
    p.compute({x}, {z});  // 3
    EXPECT_EQ(left(p), (std::vector{2, 3}));
}

TEST(DeadValues, of_which_a_byte_is_read_stay) {
    Program p(0, 1);
    const Range x = p.buffer(64), y = p.buffer(64);
    p.compute({}, {x});
    p.compute({Program::part(x, 63, 1)}, {y});
    p.compute({}, {x});
    EXPECT_EQ(left(p), (std::vector{0, 1, 2}));
}

TEST(DeadValues, of_which_a_part_is_overwritten_stay) {
    Program p(0, 1);
    const Range x = p.buffer(64);
    p.compute({}, {x});
    p.compute({}, {Program::part(x, 0, 63)});
    EXPECT_EQ(left(p), (std::vector{0, 1}));
}

TEST(DeadValues, in_temporaries_go) {
    Program p(0, 1);
    const Range x = p.buffer(64), y = p.buffer(64);
    p.temporary(y);
    p.compute({x}, {y});
    p.compute({x}, {x});
    EXPECT_EQ(left(p), std::vector{1});
}

TEST(DeadValues, never_are_communication_or_steps_without_results) {
    Program p(0, 1);
    const Range x = p.buffer(64);
    p.temporary(x);
    p.all_reduce(x);
    p.compute({x}, {});
    p.all_reduce(x);
    EXPECT_EQ(left(p), (std::vector{0, 1, 2}));
}

}  // namespace
}  // namespace tutti::graph
