// Placement: which node of a job this one is, how many ranks it has and where node 0 is. Flags say it; the rest comes
// from the variables of the platform that started this launcher:
//
//   PET_*                  torchrun's environment (torchrun_variables.hpp has the rest): PET_NNODES, PET_NODE_RANK,
//                          PET_NPROC_PER_NODE, PET_MASTER_ADDR, PET_MASTER_PORT, and PET_RDZV_ENDPOINT where the last
//                          two are not set. Kubeflow's Trainer sets them in every pod.
//   JOB_COMPLETION_INDEX   a pod of a Kubernetes Indexed Job or JobSet: the node's rank. TUTTI_NNODES (or --nnodes)
//                          says how many pods there are. A headless service gives each pod a name,
//                          JOB-INDEX.SERVICE...; that of node 0 is the own one with 0 for the index.
//   SLURM_STEP_*           a step of srun with one task on each of several nodes, which is this launcher: SLURM_NODEID,
//                          the step's first host, and a port that is made from the numbers of the job and the step.
//                          A step with more tasks on a node starts launchers of one node; so does --nnodes 1.
//
// Threads: any; functions of their arguments.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace tutti::launch {

/// A value, and the flag or the variable that says it.
struct Given {
    std::string value;   ///< empty: not given
    std::string source;  ///< "--nnodes", "PET_NNODES"

    explicit operator bool() const noexcept { return !value.empty(); }
    /// "--nnodes 4", "PET_NNODES=4".
    std::string text() const;
};

struct Placement {
    Given nodes, node_rank, ranks, master_addr, master_port;
};

/// Where variables and names come from; tests give their own.
struct Pod {
    std::function<std::optional<std::string>(std::string_view variable)> variable;
    /// The name by which other hosts find this one, with its domain if it has one.
    std::function<std::string()> full_name;
};
/// This process's.
Pod this_pod();

/// HOST, HOST:PORT or [IPv6]:PORT; throws InvalidArgument that names `given`.
void set_endpoint(Placement& placement, const Given& given);

/// Sets the fields that `placement` leaves open. Returns a sentence that says which came from which variables; empty:
/// none. Throws InvalidArgument where variables say one half and not the other: it names those that are missing.
std::string complete(Placement& placement, const Pod& pod);

}  // namespace tutti::launch
