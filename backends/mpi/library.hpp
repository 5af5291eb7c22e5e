// The part of MPI that the backend uses: its C functions. check() checks every call.
//
// Threads: any; MPI has been initialised with MPI_THREAD_MULTIPLE.
#pragma once

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <tutti/backend.hpp>

#include <string>

namespace tutti::backends::mpi {

/// Throws DistBackendError with MPI's text, unless `code` is MPI_SUCCESS. `call`: the name of the function.
void check(int code, const char* call);

/// "Open MPI v4.1.4", "MPICH Version: 5.0.2".
std::string library_version();

/// This process in MPI_COMM_WORLD. Initialises MPI once if the program has not, and then finalises it at the process's
/// end. Throws DistBackendError if MPI does not have MPI_THREAD_MULTIPLE, or if an earlier group broke off
/// (break_off()).
struct Membership {
    int rank = 0, size = 1;
    std::string job;  ///< identifies the MPI_COMM_WORLD
};
Membership enter();
/// Call it after enter(), once the group makes no calls any more.
void leave() noexcept;
/// Says that MPI still knows given-up operations: tutti must not call it any more, since it might go on with them.
void break_off() noexcept;
bool has_broken_off() noexcept;

}  // namespace tutti::backends::mpi
