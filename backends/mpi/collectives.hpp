// The collectives of MPI, in their non-blocking form, so that they can be given up.
//
// Threads: one at a time for a group. Blocks.
#pragma once

#include "mpi/communicators.hpp"

#include <tutti/backend.hpp>

namespace tutti::backends::mpi {

/// Runs the request to its end, or returns false if MPI lacks it: avg; types that MPI does not know, or that are
/// rounded once at the end; bool; min and max of floating-point values, where it loses NaN; the order of ranks; in
/// all_gather and reduce_scatter, total counts that an int cannot hold. The answer is the same on all ranks. Throws
/// DistBackendError with MPI's text; Aborted when the group is given up.
bool run_collective(const BackendRequest& request, const Communicators& communicators);

}  // namespace tutti::backends::mpi
