// The machine of the tests of plays: numbers without any fraction that hides an error.
#pragma once

#include "algorithm/cost.hpp"
#include "algorithm/request.hpp"

namespace tutti::simulate {

/// A message of B bytes takes 3 + 10 + B/1000 + 2 us, and a sum of B bytes B/4000 us.
inline algorithm::CostModel round_numbers() {
    algorithm::CostModel costs;
    costs.cores = 64;
    costs.cache_kb = 1 << 20;
    costs.tcp_send_us = 3;
    costs.tcp_receive_us = 2;
    costs.tcp_us = 15;
    costs.tcp_gbps = 1;
    costs.combine_gbps = 4;
    costs.cache_copy_gbps = 8;
    return costs;
}

/// Ranks in order on equal hosts.
inline algorithm::Layout layout_of_hosts(int ranks, int hosts) {
    algorithm::Layout layout;
    for (int rank = 0; rank < ranks; ++rank) layout.host_of.push_back(rank / (ranks / hosts));
    layout.shared_memory = true;
    layout.slot_bytes = 128 << 10;
    layout.slots = 8;
    layout.machines = hosts;
    return layout;
}

}  // namespace tutti::simulate
