// The same halos with MPI's derived datatypes: dimension by dimension with Isend and Irecv, the same as persistent
// requests, and all faces at once with MPI_Neighbor_alltoallw (which leaves the corners out).
#include "timing.hpp"

// The C functions only: Open MPI's deprecated C++ bindings do not compile without warnings.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <array>
#include <vector>

namespace {

MPI_Datatype plane(int n, int dim, int at, bool whole) {
    int sizes[] = {n, n, n}, parts[] = {n, n, n}, starts[] = {0, 0, 0};
    for (int d = 0; d < 3 && !whole; ++d) parts[d] = n - 2, starts[d] = 1;
    parts[dim] = 1;
    starts[dim] = at;
    MPI_Datatype type = MPI_DATATYPE_NULL;
    MPI_Type_create_subarray(3, sizes, parts, starts, MPI_ORDER_C, MPI_DOUBLE, &type);
    MPI_Type_commit(&type);
    return type;
}

}  // namespace

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int size = 0, rank = 0, dims[3] = {0, 0, 0}, periods[3] = {1, 1, 1};
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Dims_create(size, 3, dims);
    MPI_Comm mesh = MPI_COMM_NULL;
    MPI_Cart_create(MPI_COMM_WORLD, 3, dims, periods, 0, &mesh);
    MPI_Comm_rank(mesh, &rank);
    for (const int inner : tutti::bench::halo_sizes) {
        const int n = inner + 2;
        std::vector<double> cells(static_cast<std::size_t>(n) * n * n, 1.0);
        std::array<std::array<MPI_Datatype, 4>, 3> types;
        std::array<std::array<MPI_Request, 4>, 3> requests;
        std::array<int, 3> low, high;
        std::vector<MPI_Datatype> sent, received;
        for (int d = 0; d < 3; ++d) {
            MPI_Cart_shift(mesh, d, 1, &low[d], &high[d]);
            types[d] = {plane(n, d, 0, true), plane(n, d, 1, true), plane(n, d, n - 2, true), plane(n, d, n - 1, true)};
            MPI_Recv_init(cells.data(), 1, types[d][0], low[d], 1, mesh, &requests[d][0]);
            MPI_Recv_init(cells.data(), 1, types[d][3], high[d], 2, mesh, &requests[d][1]);
            MPI_Send_init(cells.data(), 1, types[d][1], low[d], 2, mesh, &requests[d][2]);
            MPI_Send_init(cells.data(), 1, types[d][2], high[d], 1, mesh, &requests[d][3]);
            sent.insert(sent.end(), {plane(n, d, 1, false), plane(n, d, n - 2, false)});
            received.insert(received.end(), {plane(n, d, 0, false), plane(n, d, n - 1, false)});
        }
        const std::vector<int> counts(6, 1);
        const std::vector<MPI_Aint> places(6, 0);
        const auto time = [&](const char* what, const auto& call) {
            const double us = tutti::bench::time_of(
                inner, [&] { MPI_Barrier(mesh); }, call);
            if (rank == 0) tutti::bench::print_row(what, inner, us);
        };
        time("isend", [&] {
            for (int d = 0; d < 3; ++d) {
                std::array<MPI_Request, 4> now;
                MPI_Irecv(cells.data(), 1, types[d][0], low[d], 1, mesh, &now[0]);
                MPI_Irecv(cells.data(), 1, types[d][3], high[d], 2, mesh, &now[1]);
                MPI_Isend(cells.data(), 1, types[d][1], low[d], 2, mesh, &now[2]);
                MPI_Isend(cells.data(), 1, types[d][2], high[d], 1, mesh, &now[3]);
                MPI_Waitall(4, now.data(), MPI_STATUSES_IGNORE);
            }
        });
        time("persistent", [&] {
            for (auto& of_dim : requests) {
                MPI_Startall(4, of_dim.data());
                MPI_Waitall(4, of_dim.data(), MPI_STATUSES_IGNORE);
            }
        });
        time("neighbor_alltoallw", [&] {
            MPI_Neighbor_alltoallw(cells.data(), counts.data(), places.data(), sent.data(), cells.data(), counts.data(),
                                   places.data(), received.data(), mesh);
        });
        for (auto& of_dim : requests) {
            for (MPI_Request& request : of_dim) MPI_Request_free(&request);
        }
    }
    MPI_Finalize();
    return 0;
}
