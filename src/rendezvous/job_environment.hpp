// JobEnvironment: the facts about the job that this process's launcher gives in environment variables, and the source
// of each fact.
//
// RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT take precedence, each on its own. The
// other facts come from the first of these launchers that is detected:
//
//   Open MPI      OMPI_COMM_WORLD_*; the master's address is that of mpirun's host (OMPI_MCA_orte_hnp_uri)
//   Hydra         MPICH's mpirun: PMI_RANK and MPI_LOCAL*; mpirun's host, from the command line of Hydra's proxy
//   Slurm         srun: SLURM_PROCID and related variables; the first host of the step
//   Flux          FLUX_TASK_RANK and related variables; the address only if all ranks are on one host
//   PALS          Cray's mpiexec: PALS_RANKID, and PMI_SIZE
//   PMI           other process managers: ranks only
//   PMIx          prterun and others: the rank; the PMIx server gives the other facts (pmix.hpp), also rank 0's host,
//   which Open MPI 5 gives nowhere else
//
// If all ranks are on one host the address is 127.0.0.1. Rank 0 listens at the address, so under mpirun on several
// hosts it has to run on mpirun's host, as it does unless a hostfile says otherwise. The port, 20000 to 29999, is
// derived from the values that identify the job; the tasks of a Slurm job array get different ports. Under torchrun,
// MASTER_PORT is served by torchrun's own store, which does not speak tutti's protocol: rank 0 listens on a derived
// port. `tutti run` serves tutti's store at TUTTI_STORE_PORT and leaves MASTER_PORT free for a PyTorch store.
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
    std::string source;  ///< the variable that gave it, or how it was derived
    bool made = false;   ///< derived, rather than given by the variable `source`

    explicit operator bool() const noexcept { return !value.empty(); }
};

struct JobEnvironment {
    std::string launcher;  ///< "Open MPI (mpirun)", "Slurm (srun)", …
    Fact rank, world_size, local_rank, local_world_size, master_addr, master_port;
    std::string port_of_job;  ///< the job that a port was derived from (others may get the same); empty: it was given
    bool store_is_hosted = false;  ///< the launcher serves the store; otherwise rank 0 does
    bool is_newcomer = false;  ///< TUTTI_NEWCOMER: the launcher gives no rank; a group of the job takes this process in
    bool replaces = false;     ///< TUTTI_REPLACES: the launcher starts newcomers for ranks that are lost
    std::string attempt;       ///< how often the launcher has restarted the job; empty: unknown
};

/// The sources of the facts; tests replace them.
struct Surroundings {
    std::function<std::optional<std::string>(std::string_view variable)> variable;
    /// host:port at which the nearest ancestor that is a proxy of Hydra reaches mpirun.
    std::function<std::optional<std::string>()> hydra_control_port;
    std::function<std::optional<PmixFacts>()> pmix;  ///< called at most once, if variables leave a fact unknown
};
/// This process's sources.
Surroundings surroundings();

/// Throws InvalidArgument that names a variable with an invalid value.
JobEnvironment read_job_environment(const Surroundings& from = surroundings());

}  // namespace tutti::rendezvous
