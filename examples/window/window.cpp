// A window: ranks write the edges of their cells into their neighbours' memory, which receive nothing.
//
//   tutti run -n 4 build/examples/window
//
// Heat spreads along a rod, of which each rank has a piece. A cell needs its neighbours' values of the step before; at
// the ends of a piece these come from other ranks. The result is compared with that of one loop over the whole rod.
#include <tutti/tutti.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <span>
#include <vector>

namespace {

constexpr int cells = 100, steps = 200;  // of each rank; of time
enum Signal { from_left, from_right, signals };

double begin(int cell) {
    return cell % 37 == 5 ? 1.0 : 0.0;
}
double next(double left, double here, double right) {
    return here + 0.25 * (left - 2 * here + right);
}

std::vector<double> whole_rod(int length) {
    std::vector<double> now(static_cast<std::size_t>(length) + 2, 0.0), then = now;
    for (int i = 0; i < length; ++i) now[static_cast<std::size_t>(i) + 1] = begin(i);
    for (int step = 0; step < steps; ++step) {
        for (std::size_t i = 1; i + 1 < now.size(); ++i) then[i] = next(now[i - 1], now[i], now[i + 1]);
        now = then;
    }
    return now;
}

}  // namespace

int main() {
    tutti::init_process_group();
    const int rank = tutti::get_rank(), n = tutti::get_world_size();

    // [step % 2][side]: a neighbour may be one step ahead, but not two, since it waits for this rank's edge.
    tutti::Window edges(tutti::float64, {2, signals}, {.signals = signals});
    const tutti::Tensor local = edges.local();

    std::vector<double> now(cells + 2, 0.0), then = now;
    for (int i = 0; i < cells; ++i) now[static_cast<std::size_t>(i) + 1] = begin(rank * cells + i);
    for (int step = 0; step < steps; ++step) {
        const std::int64_t row = step % 2 * signals;
        // This rank's last cell is left of its right neighbour's cells, and the other way round.
        if (rank + 1 < n)
            edges.put_signal(std::span(&now[cells], 1), rank + 1, {.offset = row + from_left, .signal = from_left});
        if (rank > 0)
            edges.put_signal(std::span(&now[1], 1), rank - 1, {.offset = row + from_right, .signal = from_right});
        const auto values = local.span<double>().subspan(static_cast<std::size_t>(row));
        const auto arrived = static_cast<std::uint64_t>(step) + 1;
        if (rank > 0) {
            edges.wait_signal(from_left, arrived);
            now[0] = values[from_left];
        }
        if (rank + 1 < n) {
            edges.wait_signal(from_right, arrived);
            now[cells + 1] = values[from_right];
        }
        for (std::size_t i = 1; i <= cells; ++i) then[i] = next(now[i - 1], now[i], now[i + 1]);
        now.swap(then);
        now[0] = now[cells + 1] = 0;  // outside the rod
    }
    edges.close();

    const std::vector<double> expected = whole_rod(n * cells);
    double worst = 0;
    for (std::size_t i = 1; i <= cells; ++i)
        worst = std::max(worst, std::abs(now[i] - expected[static_cast<std::size_t>(rank) * cells + i]));
    std::printf("rank %d: %d cells after %d steps, at most %g from the loop over the whole rod\n", rank, cells, steps,
                worst);
    tutti::destroy_process_group();
    return worst == 0 ? 0 : 1;
}
