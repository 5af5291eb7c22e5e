// LocalPolicies: the measurements and decisions of a rank about its host while it works, for all groups of a world.
//
// Threads: one at a time (the world's lock).
#pragma once

#include "core/huge_pages.hpp"
#include "operation/faults.hpp"
#include "transport/shm/staging_copy.hpp"
#include "world/cpu_balancer.hpp"

#include <memory>
#include <optional>

namespace tutti::detail {

struct LocalPolicies {
    HugePages huge_pages;
    transport::StagingCopy staging_copy, small_copy;  ///< of tiles; of short collectives and messages
    std::optional<CpuBalancer> cpu_balancer;  ///< of ranks that share CPUs, unless TUTTI_WAIT says how they wait
    std::unique_ptr<Faults> faults;           ///< the faults that TUTTI_FAULTS asks for on this rank; mostly null
};

}  // namespace tutti::detail
