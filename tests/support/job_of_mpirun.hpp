// What mpirun, Open MPI's or MPICH's, says to a process that it has started.
#pragma once

#include <cstdlib>

namespace tutti::test {

/// -1: no mpirun has started this process.
inline int number_of_mpirun(const char* of_open_mpi, const char* of_mpich) {
    const char* value = std::getenv(of_open_mpi);
    if (value == nullptr) value = std::getenv(of_mpich);
    return value == nullptr ? -1 : std::atoi(value);
}
inline int rank_of_mpirun() {
    return number_of_mpirun("OMPI_COMM_WORLD_RANK", "PMI_RANK");
}
inline int ranks_of_mpirun() {
    return number_of_mpirun("OMPI_COMM_WORLD_SIZE", "PMI_SIZE");
}

}  // namespace tutti::test
