// checksum_bench [BYTES [ROUNDS]]: the cost of checksums over TCP for an all_reduce of two ranks of this host. Both
// have a group with and one without, and use them in turn, so that the same things disturb both; with
// TUTTI_TCP_CONNECTIONS=1 neither gets more connections than the other. Prints the time and the CPU time of a rank: the
// least, the median, and the median of the differences within a turn.
#include <tutti/spawn.hpp>
#include <tutti/tutti.hpp>

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

double cpu_ms() {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    const auto ms = [](const timeval& t) {
        return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_usec) / 1e3;
    };
    return ms(usage.ru_utime) + ms(usage.ru_stime);
}

double quantile(std::vector<double> values, double q) {
    std::ranges::sort(values);
    return values[static_cast<std::size_t>(q * static_cast<double>(values.size() - 1))];
}

using Samples = std::array<std::vector<double>, 2>;  // without, with checksums

void print(const char* what, const Samples& ms) {
    std::vector<double> changes;
    for (std::size_t i = 0; i < ms[0].size(); ++i) changes.push_back(100 * (ms[1][i] / ms[0][i] - 1));
    std::printf("%-8s without: %.2f (median %.2f) ms, with: %.2f (median %.2f) ms; within a turn %+.1f %%\n", what,
                quantile(ms[0], 0), quantile(ms[0], 0.5), quantile(ms[1], 0), quantile(ms[1], 0.5),
                quantile(changes, 0.5));
}

tutti::ProcessGroup join(const tutti::Store& store, int rank, const char* checksums) {
    ::setenv("TUTTI_TCP_CHECKSUM", checksums, 1);
    return tutti::ProcessGroup({.store = tutti::PrefixStore(checksums, store),
                                .rank = rank,
                                .world_size = 2,
                                .transport = tutti::TransportKind::tcp});
}

void run(const tutti::Store& store, int rank, std::size_t bytes, int rounds) {
    std::array groups{join(store, rank, "off"), join(store, rank, "on")};
    std::vector<float> x(bytes / sizeof(float));
    Samples wall, cpu;
    for (int i = 0; i < 2 * (rounds + 3); ++i) {
        const auto which = static_cast<std::size_t>((i + i / 2) % 2);  // the first one changes
        tutti::barrier({.group = groups[which]});
        const double cpu_before = cpu_ms();
        const auto before = Clock::now();
        tutti::all_reduce(x, {.group = groups[which]});
        if (i < 6) continue;
        wall[which].push_back(std::chrono::duration<double, std::milli>(Clock::now() - before).count());
        cpu[which].push_back(cpu_ms() - cpu_before);
    }
    if (rank == 0) {
        print("time", wall);
        print("CPU time", cpu);
    }
    for (auto& group : groups) group.destroy();
}

}  // namespace

int main(int argc, char** argv) {
    const std::size_t bytes = argc > 1 ? std::stoul(argv[1]) : std::size_t{64} << 20;
    const int rounds = argc > 2 ? std::stoi(argv[2]) : 60;
    const tutti::TCPStore store({.is_master = true, .wait_for_workers = false});
    tutti::spawn(
        [&](int rank) {
            run(tutti::TCPStore({.port = store.port(), .wait_for_workers = false}), rank, bytes, rounds);
            std::fflush(stdout);
        },
        2);
}
