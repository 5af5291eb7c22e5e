// The same calls as window_bench.cpp makes, in MPI: MPI_Win_allocate, one epoch of MPI_Win_lock_all, and a flush where
// the result is needed.
#include "bench/window/time_of.hpp"

#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <cstdint>
#include <cstdio>

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int rank = 0, size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    std::int64_t* memory = nullptr;
    MPI_Win window{};
    MPI_Win_allocate(16, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
    memory[0] = memory[1] = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock_all(MPI_MODE_NOCHECK, window);
    const int target = size - 1;
    std::int64_t value = 1, before = 0, desired = 0;
    constexpr int calls = 20'000;
    const auto row = [&](const char* name, bool all, const auto& call) {
        double ns = 0;
        if (all || rank == 0)
            ns = tutti::bench::ns_of(
                calls,
                [&] {
                    if (all) MPI_Barrier(MPI_COMM_WORLD);
                },
                call);
        if (rank == 0) std::printf("openmpi %s%s %.1f ns\n", name, all ? " of all ranks at once" : "", ns);
        MPI_Barrier(MPI_COMM_WORLD);
    };
    for (const bool all : {false, true}) {
        row("fetch_add", all, [&] {
            MPI_Fetch_and_op(&value, &before, MPI_INT64_T, target, 0, MPI_SUM, window);
            MPI_Win_flush(target, window);
        });
        row("accumulate", all, [&] {
            MPI_Accumulate(&value, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, MPI_SUM, window);
            MPI_Win_flush_local(target, window);
        });
        row("compare_and_swap", all, [&] {
            desired = before + 1;
            std::int64_t expected = before;
            MPI_Compare_and_swap(&desired, &expected, &before, MPI_INT64_T, target, 0, window);
            MPI_Win_flush(target, window);
        });
        row("get", all, [&] {
            MPI_Get(&before, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, window);
            MPI_Win_flush(target, window);
        });
    }
    MPI_Win_unlock_all(window);
    MPI_Win_free(&window);
    MPI_Finalize();
    return 0;
}
