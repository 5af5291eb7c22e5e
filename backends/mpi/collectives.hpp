// The collectives of MPI, in their non-blocking form: so that they can be given up.
//
// Threads: one at a time for a group. Blocks.
#pragma once

#include "mpi/communicators.hpp"

#include <tutti/backend.hpp>

namespace tutti::backends::mpi {

/// Runs it to its end, or returns false where MPI has nothing for it: avg; types that it does not know, or that are
/// rounded once at the end; bool; min and max of floating-point values, where it loses NaN; the order of ranks; counts
/// of all ranks together that an int cannot hold, in all_gather and reduce_scatter. The answer is the same on all
/// ranks. Throws DistBackendError with MPI's text; Aborted when the group is given up.
bool run_collective(const BackendRequest& request, const Communicators& communicators);

}  // namespace tutti::backends::mpi
