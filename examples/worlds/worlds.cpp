// Worlds are objects: several, of different sizes, in one process; no global state. Here the ranks are threads.
//
//   build/examples/worlds
#include <tutti/tutti.hpp>

#include <atomic>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

namespace {

// Four trainers; the even and the odd ones form a world each as well.
bool train(const tutti::Store& store, int rank) {
    tutti::ProcessGroup trainers({.store = store, .rank = rank, .world_size = 4, .name = "trainers"});
    const std::string side = rank % 2 == 0 ? "even" : "odd";
    tutti::ProcessGroup half(
        {.store = tutti::PrefixStore(side, store), .rank = rank / 2, .world_size = 2, .name = side});

    std::vector<double> x(1000, rank), y(1000, rank);
    tutti::all_reduce(x, {.group = trainers});
    tutti::all_reduce(y, {.group = half});
    const double expected = rank % 2 == 0 ? 0 + 2 : 1 + 3;
    const bool good = x[999] == 0 + 1 + 2 + 3 && y[999] == expected;
    std::printf("trainer %d: %s gives %g, %s gives %g\n", rank, trainers.name().c_str(), x[0], half.name().c_str(),
                y[0]);
    half.destroy();
    trainers.destroy();
    return good;
}

}  // namespace

int main() {
    const tutti::HashStore store;  // a TCPStore or FileStore when ranks are processes
    std::atomic<int> good{0};
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 4; ++rank) {
        threads.emplace_back([&, rank] { good += train(store, rank) ? 1 : 0; });
    }
    for (std::thread& thread : threads) thread.join();
    return good == 4 ? 0 : 1;
}
