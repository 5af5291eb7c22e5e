// Plans: calls that are made again and again on the same buffers; averages over a ring of neighbours.
//
//   tutti run -n 4 build/examples/plans
#include <tutti/tutti.hpp>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <vector>

namespace {

constexpr int steps = 1000;

double microseconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / steps;
}

}  // namespace

// Each rank holds one cell of a ring and replaces it by the average of itself and its neighbours, until all are equal.
int main() {
    tutti::init_process_group();
    const int rank = tutti::get_rank(), n = tutti::get_world_size();
    const int right = (rank + 1) % n, left = (rank + n - 1) % n;

    std::vector<double> cell{static_cast<double>(rank)}, from_left(1), from_right(1), spread(1);
    tutti::Plan to_right = tutti::plan::send(cell, right, {.tag = 1});  // chosen and checked once
    tutti::Plan to_left = tutti::plan::send(cell, left, {.tag = 2});
    tutti::Plan of_left = tutti::plan::recv(from_left, {.src = left, .tag = 1});
    tutti::Plan of_right = tutti::plan::recv(from_right, {.src = right, .tag = 2});
    tutti::Plan widest = tutti::plan::all_reduce(spread, {.op = tutti::ReduceOp::max});

    const double average = (n - 1) / 2.0;
    int step = 0;
    do {
        tutti::Work sent[] = {to_right.start(), to_left.start()};  // of the cell as it is now
        of_left.run();
        of_right.run();
        for (tutti::Work& work : sent) work.wait();
        cell[0] = (from_left[0] + cell[0] + from_right[0]) / 3;
        spread[0] = std::abs(cell[0] - average);
        widest.run();
    } while (spread[0] > 1e-9 && ++step < 10'000);
    const bool good = spread[0] <= 1e-9;

    auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < steps; ++i) tutti::all_reduce(spread, {.op = tutti::ReduceOp::max});
    const double plain_us = microseconds_since(start);
    start = std::chrono::steady_clock::now();
    for (int i = 0; i < steps; ++i) widest.run();
    const double planned_us = microseconds_since(start);
    if (rank == 0) {
        std::printf("%d ranks agree on %g after %d steps; an all_reduce takes %.2f us, planned %.2f us\n", n, cell[0],
                    step, plain_us, planned_us);
    }
    tutti::destroy_process_group();
    return good ? 0 : 1;
}
