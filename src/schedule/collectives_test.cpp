#include <tutti/collectives.hpp>

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tutti {
namespace {

TEST(Collectives, numbers_travel_between_ranks_and_stay_what_they_are) {
    std::vector<std::string> names;
    for (int number = 0; number <= collective_count + 1; ++number)
        names.emplace_back(to_string(static_cast<Collective>(number)));
    EXPECT_EQ(names, (std::vector<std::string>{"unknown", "all_reduce", "broadcast", "reduce", "all_gather", "gather",
                                               "scatter", "reduce_scatter", "all_to_all", "barrier", "scan", "exscan",
                                               "gather_v", "scatter_v", "unknown"}));
}

TEST(Collectives, are_found_by_name) {
    for (const CollectiveTraits& traits : collective_table) {
        const auto found = collective_named(traits.name);
        ASSERT_TRUE(found) << traits.name;
        EXPECT_EQ(&traits_of(*found), &traits);
    }
    EXPECT_FALSE(collective_named("all_reduc"));
    EXPECT_FALSE(collective_named(""));
}

TEST(Collectives, a_root_is_alone_in_what_it_puts_in_or_gets) {
    const CollectiveTraits& scatter = traits_of(Collective::scatter);
    EXPECT_TRUE(scatter.reads(2, 2));
    EXPECT_FALSE(scatter.reads(1, 2));
    EXPECT_TRUE(scatter.writes(1, 2));
    const CollectiveTraits& reduce = traits_of(Collective::reduce);
    EXPECT_TRUE(reduce.reads(1, 2));
    EXPECT_FALSE(reduce.writes(1, 2));
    EXPECT_TRUE(reduce.writes(2, 2));
    const CollectiveTraits& all_reduce = traits_of(Collective::all_reduce);
    EXPECT_TRUE(all_reduce.reads(1, 2) && all_reduce.writes(1, 2));
    const CollectiveTraits& barrier = traits_of(Collective::barrier);
    EXPECT_FALSE(barrier.reads(1, 1) || barrier.writes(1, 1));
}

TEST(Collectives, exchanges_with_a_root_are_between_it_and_each_rank) {
    const CollectiveTraits &gather = traits_of(Collective::gather_v), &scatter = traits_of(Collective::scatter_v);
    EXPECT_TRUE(gather.exchanges_between(1, 2, 2) && gather.exchanges_between(2, 2, 2));
    EXPECT_FALSE(gather.exchanges_between(2, 1, 2) || gather.exchanges_between(0, 1, 2));
    EXPECT_TRUE(scatter.exchanges_between(2, 1, 2) && !scatter.exchanges_between(1, 2, 2));
    EXPECT_TRUE(traits_of(Collective::all_to_all).exchanges_between(0, 1, 0));
    EXPECT_FALSE(traits_of(Collective::gather).exchanges_between(1, 2, 2));
    EXPECT_FALSE(gather.has_blocks() || gather.writes(1, 2) || scatter.reads(1, 2));
}

TEST(Collectives, prefixes_combine_the_ranks_up_to_oneself_or_before) {
    const CollectiveTraits &scan = traits_of(Collective::scan), &exscan = traits_of(Collective::exscan);
    EXPECT_EQ(scan.combined_end(2, 5), 3);
    EXPECT_EQ(exscan.combined_end(2, 5), 2);
    EXPECT_EQ(traits_of(Collective::all_reduce).combined_end(2, 5), 5);
    EXPECT_TRUE(scan.writes(0, 0) && exscan.writes(1, 0));
    EXPECT_TRUE(exscan.reads(0, 0));
    EXPECT_FALSE(exscan.writes(0, 0)) << "no rank is before it";
    EXPECT_TRUE(scan.may_be_in_place(0, 0) && exscan.may_be_in_place(1, 0));
    EXPECT_FALSE(exscan.may_be_in_place(0, 0));
}

TEST(Collectives, each_has_a_function_of_its_name) {
    for (const CollectiveTraits& traits : collective_table) {
        bool found = false;
        for (const CollectiveFunction& function : collective_functions)
            found |= function.name == traits.name && to_string(function.collective) == traits.name;
        EXPECT_TRUE(found) << traits.name;
    }
}

}  // namespace
}  // namespace tutti
