// Placement: which node of a job this one is, how many ranks it has and where node 0 is. Each value comes from its flag
// or, without one, from the variables of the platform that started this launcher:
//
//   PET_*                  torchrun's environment (see also torchrun_variables.hpp): PET_NNODES, PET_NODE_RANK,
//                          PET_NPROC_PER_NODE, PET_MASTER_ADDR, PET_MASTER_PORT, and PET_RDZV_ENDPOINT if the last
//                          two are not set. Kubeflow's Trainer sets them in every pod. Where
//                          PET_NNODES is MIN:MAX a node needs no rank.
//   JOB_COMPLETION_INDEX   a pod of a Kubernetes Indexed Job or JobSet: the node's rank. TUTTI_NNODES (or --nnodes)
//                          gives the number of pods. A headless service gives each pod a name,
//                          JOB-INDEX.SERVICE...; node 0's name is this pod's with the index 0.
//   SLURM_STEP_*           a step of srun with one task on each of several nodes, each a launcher: SLURM_NODEID, the
//                          step's first host, and a port derived from the numbers of the job and the step. In a step
//                          with more tasks per node, or with --nnodes 1, each launcher runs a job of one node.
//
// Threads: any; functions of their arguments.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace tutti::launch {

/// A value, and the flag or the variable that gave it.
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

/// The sources of variables and names; tests replace them.
struct Pod {
    std::function<std::optional<std::string>(std::string_view variable)> variable;
    /// The name by which other hosts find this one, with its domain if it has one.
    std::function<std::string()> full_name;
};
/// This process's sources.
Pod this_pod();

/// Parses HOST, HOST:PORT or [IPv6]:PORT into `placement`. Throws InvalidArgument that names `given`.
void set_endpoint(Placement& placement, const Given& given);

/// Whether a number of nodes is MIN:MAX with two different numbers.
bool is_range(const Given& nodes);
/// Whether `host` is this machine, as torchrun asks where no flag gives a node's rank: its name, or an address at which
/// a process can listen here. An unknown name is not.
bool is_this_host(const std::string& host);

/// Sets the empty fields of `placement`. Returns a sentence that says which variables gave which fields; empty: none
/// did. Throws InvalidArgument if only some of the variables that belong together are set: it names the missing ones.
std::string complete(Placement& placement, const Pod& pod);

}  // namespace tutti::launch
