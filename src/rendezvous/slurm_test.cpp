#include "rendezvous/slurm.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace tutti::rendezvous::slurm {
namespace {

TEST(Slurm, lists_of_hosts_begin_with_a_host) {
    for (const auto& [list, host] : std::map<std::string, std::string>{{"node7", "node7"},
                                                                       {"a,b", "a"},
                                                                       {"n[001-003,007],m", "n001"},
                                                                       {"n[12]", "n12"},
                                                                       {"r[2-4]n[05,07]-ib,x", "r2n05-ib"},
                                                                       {"n[3", "n3"},
                                                                       {"", ""}}) {
        EXPECT_EQ(first_host(list), host) << list;
    }
}

TEST(Slurm, lists_of_tasks_have_one_number_for_each_node) {
    for (const auto& [node, tasks] : std::map<std::string, int>{{"0", 2}, {"2", 2}, {"3", 1}, {"4", 7}})
        EXPECT_EQ(tasks_of_node("2(x3),1,7", node), tasks) << node;
    EXPECT_FALSE(tasks_of_node("2(x3),1,7", "5") || tasks_of_node("2", "-1") || tasks_of_node("", "0"));
}

TEST(Slurm, tasks_of_a_job_array_have_ports_of_their_own) {
    std::set<std::uint16_t> ports;
    constexpr int jobs = 1000, steps = 3;
    for (int job = 0; job < jobs; ++job) {
        for (int step = 0; step < steps; ++step) {
            const auto one = port(std::to_string(4'712'345 + job), std::to_string(step));
            ASSERT_TRUE(one);
            EXPECT_GE(*one, 20000);
            EXPECT_LT(*one, 30000);
            ports.insert(*one);
        }
    }
    EXPECT_EQ(ports.size(), jobs * steps);
    EXPECT_EQ(port("18446744073709551615", "4294967290").value_or(0) / 10000, 2);
    EXPECT_FALSE(port("4711", "batch") || port("", "0"));
}

}  // namespace
}  // namespace tutti::rendezvous::slurm
