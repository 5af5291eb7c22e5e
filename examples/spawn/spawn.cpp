// Ranks without a launcher: a program starts its own, as processes and as threads, and is told which of them failed.
//
//   build/examples/spawn
#include <tutti/tutti.hpp>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr int ranks = 4;

// Every rank has the same sum, or the example fails.
void add_up(int rank, const tutti::ProcessGroup& group) {
    std::vector<int> x{rank + 1};
    tutti::all_reduce(x, {.group = group});
    if (x[0] != 10) throw std::runtime_error("the sum is " + std::to_string(x[0]));
    std::printf("rank %d: %d\n", rank, x[0]);
}

void processes() {
    tutti::spawn(
        [](int rank) {
            tutti::init_process_group();  // the world of these processes
            add_up(rank, tutti::default_group());
            tutti::destroy_process_group();
        },
        ranks);
}

void threads() {
    const tutti::HashStore store;
    tutti::spawn(
        [&](int rank) {
            tutti::ProcessGroup group({.store = store, .rank = rank, .world_size = ranks});
            add_up(rank, group);
            group.destroy();
        },
        ranks, {.method = tutti::SpawnMethod::threads});
}

bool a_failure_is_told() {
    try {
        tutti::spawn(
            [](int rank) {
                if (rank == 2) throw std::runtime_error("out of paper");
            },
            ranks);
    } catch (const tutti::ProcessRaisedException& error) {
        std::printf("%s\n", error.what());
        return error.rank() == 2;
    }
    return false;
}

}  // namespace

int main() {
    processes();
    threads();
    return a_failure_is_told() ? EXIT_SUCCESS : EXIT_FAILURE;
}
