// LocalPolicies: what a rank measures and decides about its host at run time, for all groups of a world.
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
    transport::StagingCopy staging_copy, small_copy;  ///< for tiles; for short collectives and messages
    std::optional<CpuBalancer> cpu_balancer;  ///< set for ranks that share CPUs, unless TUTTI_WAIT determines how they
                                              ///< wait
    std::unique_ptr<Faults> faults;           ///< from TUTTI_FAULTS, for this rank; mostly null
};

}  // namespace tutti::detail
