// Halos of a three-dimensional block of doubles on a periodic mesh: the plain call, its plan, and the same as sends and
// receives of strided views. halos.py compares it with Open MPI.
#include "timing.hpp"

#include "bench/rank_program.hpp"

#include <tutti/tutti.hpp>

namespace {

// The same messages as a program would write them without exchange_halos.
void exchange_by_hand(double* cells, std::int64_t n, const tutti::DeviceMesh& mesh) {
    const std::int64_t strides[] = {n * n, n, 1};
    for (int d = 0; d < 3; ++d) {
        const auto beside = tutti::mesh_neighbors(mesh, d, {.periodic = true});
        std::int64_t shape[] = {n, n, n};
        shape[d] = 1;
        const auto face = [&](std::int64_t at) {
            return tutti::TensorView(cells + at * strides[d], tutti::Extents(shape), tutti::float64,
                                     tutti::Extents(strides));
        };
        if (beside.low == mesh.get_rank()) {
            tutti::copy(face(0), face(n - 2));
            tutti::copy(face(n - 1), face(1));
            continue;
        }
        tutti::wait_all(tutti::batch_isend_irecv(
            {tutti::isend_op(face(1), beside.low, {.tag = 1}), tutti::isend_op(face(n - 2), beside.high, {.tag = 2}),
             tutti::irecv_op(face(0), beside.low, {.tag = 2}), tutti::irecv_op(face(n - 1), beside.high, {.tag = 1})}));
    }
}

void run() {
    tutti::init_process_group();
    const auto shape = tutti::balanced_mesh_shape(tutti::get_world_size(), {0, 0, 0});
    const auto mesh = tutti::init_device_mesh("cpu", shape);
    const std::vector<tutti::Halo> halos{
        {.dim = 0, .periodic = true}, {.dim = 1, .periodic = true}, {.dim = 2, .periodic = true}};
    for (const int size : tutti::bench::halo_sizes) {
        const std::int64_t n = size + 2;
        std::vector<double> cells(static_cast<std::size_t>(n * n * n), 1.0);
        const tutti::TensorView block = tutti::view(cells.data(), {n, n, n});
        tutti::Plan plan = tutti::plan::exchange_halos(block, mesh, halos);
        const auto time = [&](const char* what, const auto& call) {
            const double us = tutti::bench::time_of(
                size, [] { tutti::barrier(); }, call);
            if (tutti::get_rank() == 0) tutti::bench::print_row(what, size, us);
        };
        time("plan", [&] { plan.run(); });
        time("plain", [&] { tutti::exchange_halos(block, mesh, halos); });
        time("asynchronous", [&] { plan.start().wait(); });
        time("by_hand", [&] { exchange_by_hand(cells.data(), n, mesh); });
    }
    tutti::destroy_process_group();
}

}  // namespace

int main() {
    return tutti::bench::run_as_rank("halo_bench", run);
}
