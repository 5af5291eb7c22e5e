// What a rank can do for shared memory before it knows where the others are.
#include "world/host_sharing.hpp"

#include <gtest/gtest.h>

namespace tutti::detail {
namespace {

// Rings between all of them would take more addresses than a process has.
TEST(HostSharing, is_possible_in_a_world_of_many_hosts) {
    const Health health(3);
    for (const int ranks : {2, 1000, 100'000, 1'000'000}) {
        HostSharing sharing(0, ranks, "world", TransportKind::automatic, health);
        EXPECT_EQ(sharing.prepare(), "") << ranks << " ranks";
    }
}

}  // namespace
}  // namespace tutti::detail
