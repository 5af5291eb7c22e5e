// JobEnvironment: the facts about the job that the launcher of this process gives in environment variables, and where
// each comes from.
//
// RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT win, each for itself. The rest comes from
// the first of these launchers that shows itself:
//
//   Open MPI      OMPI_COMM_WORLD_*; the master's address is that of mpirun's host (OMPI_MCA_orte_hnp_uri)
//   Hydra         MPICH's mpirun: PMI_RANK and MPI_LOCAL*; mpirun's host, from the command line of Hydra's proxy
//   Slurm         srun: SLURM_PROCID and its like; the first host of the step
//   Flux          FLUX_TASK_RANK and its like; the address where all ranks are on one host
//   PALS          Cray's mpiexec: PALS_RANKID, and PMI_SIZE
//   PMI           other process managers: ranks only
//   PMIx          prterun and others: the rank; its server tells the rest (pmix.hpp), rank 0's host too, which Open MPI
//   5 gives nowhere else
//
// When all ranks are on one host the address is 127.0.0.1. Rank 0 listens at the address, so under mpirun on several
// hosts it has to run on mpirun's host, as it does unless a hostfile says otherwise. The port is made from the values
// that identify the job, 20000 to 29999; the tasks of a Slurm job array have different ones. torchrun's own store
// serves MASTER_PORT and does not speak tutti's protocol: there rank 0 listens on a port that is made in the same way.
// `tutti run` serves tutti's store at TUTTI_STORE_PORT and leaves MASTER_PORT free for a store of PyTorch's.
//
// Threads: any; a function of its argument.
#pragma once

#include "rendezvous/pmix.hpp"

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace tutti::rendezvous {

struct Fact {
    std::string value;   ///< empty: not known
    std::string source;  ///< the variable, or how it was made from which
    bool made = false;   ///< worked out, rather than said by the variable `source`

    explicit operator bool() const noexcept { return !value.empty(); }
};

struct JobEnvironment {
    std::string launcher;  ///< "Open MPI (mpirun)", "Slurm (srun)", …
    Fact rank, world_size, local_rank, local_world_size, master_addr, master_port;
    std::string port_of_job;  ///< the job that a port was made of, which other jobs may share; empty: a port was said
    bool store_is_hosted = false;  ///< the launcher serves the store; otherwise rank 0 does
    std::string attempt;           ///< how often the launcher has started the job again; empty: unknown
};

/// Where the facts come from; tests give their own.
struct Surroundings {
    std::function<std::optional<std::string>(std::string_view variable)> variable;
    /// host:port at which the nearest ancestor that is a proxy of Hydra reaches mpirun.
    std::function<std::optional<std::string>()> hydra_control_port;
    std::function<std::optional<PmixFacts>()> pmix;  ///< asked at most once, where variables leave something open
};
/// Those of this process.
Surroundings surroundings();

/// Throws InvalidArgument that names a variable whose value makes no sense.
JobEnvironment read_job_environment(const Surroundings& from = surroundings());

}  // namespace tutti::rendezvous
