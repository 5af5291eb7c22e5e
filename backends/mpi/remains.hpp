// Remains: communicators of groups that this rank has left before others did. What these others still send must find
// its communicator, or MPI would take it for a message of a later one with the same number: so it stays until each of
// them has said that nothing more comes.
//
// Threads: any.
#pragma once

#include "mpi/library.hpp"

#include <set>

namespace tutti::backends::mpi {

/// Keeps the communicator until a message with the tag `end` has come from each of the peers; then frees it.
void keep_until_ended(MPI_Comm communicator, std::set<int> peers, int end);
/// Looks after all that are kept. Never waits.
void look_after_remains() noexcept;

}  // namespace tutti::backends::mpi
