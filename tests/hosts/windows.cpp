// One rank of windows_test.sh: a window between ranks of which some share memory and some do not. Every rank writes to
// every other one, long and short, and signals; all see what was written. Usage: windows [silent]
// silent: rank 0 says "waiting", and waits for a signal that nobody sends.
#include <tutti/tutti.hpp>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

namespace {

constexpr int rounds = 20;
constexpr std::int64_t length = 50'000;

// Of the row that `source` writes in `target`'s memory.
std::int32_t value(int source, int target, int round) {
    return source * 1000 + target * 100 + round;
}

bool is_row(const std::vector<std::int32_t>& row, std::int32_t wanted) {
    for (const std::int32_t each : row) {
        if (each == wanted) continue;
        std::printf("WRONG: %d instead of %d\n", each, wanted);
        return false;
    }
    return true;
}

bool exchange(const tutti::Window& window, int rank, int n) {
    const tutti::Tensor local = window.local();
    std::vector<std::int32_t> row(length);
    bool good = true;
    for (int round = 1; round <= rounds; ++round) {
        const bool is_long = round % 2 == 0;
        for (int target = 0; target < n; ++target) {
            row.assign(is_long ? length : 4, value(rank, target, round));
            window.put_signal(row, target, {.offset = rank * length, .signal = rank});
        }
        for (int source = 0; source < n; ++source) {
            window.wait_signal(source, static_cast<std::uint64_t>(round));
            row.assign(is_long ? length : 4, 0);
            std::memcpy(row.data(), local.data<std::int32_t>() + source * length, row.size() * sizeof row[0]);
            good = good && is_row(row, value(source, rank, round));
        }
        window.fence();
        for (int target = 0; target < n; ++target) {
            row.assign(4, 0);
            window.get(row, target, {.offset = (n - 1) * length});
            good = good && is_row(row, value(n - 1, target, round));
        }
        window.fence();
    }
    return good;
}

}  // namespace

int main(int count, char** words) {
    try {
        tutti::init_process_group();
        const int rank = tutti::get_rank(), n = tutti::get_world_size();
        const tutti::Window window(tutti::int32, {n, length}, {.signals = n});
        int neighbours = 0;
        for (int other = 0; other < n; ++other) {
            if (other == rank || !window.is_mapped(other)) continue;
            ++neighbours;
            if (window.map_remote(other).element_count() != n * length) return 4;
        }
        std::printf("rank %d of %d, neighbours: %d\n", rank, n, neighbours);
        std::fflush(stdout);
        const bool good = exchange(window, rank, n);
        if (count > 1 && std::strcmp(words[1], "silent") == 0) {
            std::puts("waiting");
            std::fflush(stdout);
            window.wait_signal(0, rounds + 1);
        }
        window.close();
        tutti::destroy_process_group();
        return good ? 0 : 3;
    } catch (const tutti::DistError& error) {
        std::printf("%s\n", error.what());
        return 1;
    }
}
