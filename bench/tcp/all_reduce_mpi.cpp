// MPI's all_reduce of floats, in place. Started by veth.py.
#include "contender.hpp"

#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    contender::Ranks ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &ranks.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks.size);
    ranks.barrier = [] { MPI_Barrier(MPI_COMM_WORLD); };
    ranks.mean = [&](double value) {
        MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        return value / ranks.size;
    };
    const int status = contender::run(argc, argv, ranks, [](float* data, std::size_t count) {
        return [=] { MPI_Allreduce(MPI_IN_PLACE, data, static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); };
    });
    MPI_Finalize();
    return status;
}
