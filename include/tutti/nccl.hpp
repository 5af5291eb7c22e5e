// Options of groups on the backend "nccl" and the vendors' libraries like it (rccl, hccl, xccl):
// init_process_group({.backend = "nccl", .pg_options = NcclOptions{.is_high_priority_stream = true}}). docs/nccl.md
// says what the backend does.
//
// Follows torch.distributed.ProcessGroupNCCL.Options and NCCL's ncclConfig_t.
#pragma once

#include <tutti/export.hpp>

#include <optional>
#include <string>

namespace tutti {

/// Fields of ncclConfig_t. NCCL decides about fields without a value, and about fields that its version does not know.
struct NcclConfig {
    std::optional<int> cga_cluster_size, min_ctas, max_ctas, split_share, traffic_class, collnet_enable, cta_policy,
        shrink_share, nvls_ctas, n_channels_per_net_peer, nvlink_centric_sched;
    std::optional<int>
        blocking;  ///< accepted, no effect: communicators are always non-blocking, and the group's timeout applies
    std::optional<std::string> net_name, comm_name;
};

struct TUTTI_API NcclOptions {
    /// The device runs communication before other work that is ready to run.
    bool is_high_priority_stream = false;
    NcclConfig config{};
};

}  // namespace tutti
