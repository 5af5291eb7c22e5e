// One rank of windows_test.sh: a window between ranks of which some share memory and some do not. Every rank writes to
// every other one, long and short, and signals; all see what was written. Usage: windows [silent | let_go]
// silent: rank 0 says "waiting", and waits for a signal that nobody sends. let_go: the ranks but the first let go of
// the window one after the other, and those that are left hear of it.
#include <tutti/tutti.hpp>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
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

// Counters, and elements behind locks, of every rank, of which each has another number; all ranks, of this host and of
// others, change all of them at once.
bool count_up(int rank, int n) {
    enum { lock, counter, guarded };
    constexpr std::int64_t turns = 60;
    const tutti::Window window(tutti::int64, {guarded + 1 + rank});
    bool good = true;
    std::vector<std::int64_t> last(static_cast<std::size_t>(n), -1), value(1);
    for (std::int64_t turn = 0; turn < turns; ++turn) {
        for (int target = 0; target < n; ++target) {
            const auto number = window.fetch_add<std::int64_t>(1, target, {.offset = counter});
            good = good && number > last[static_cast<std::size_t>(target)];
            last[static_cast<std::size_t>(target)] = number;
            if (target > 0)
                window.accumulate(std::vector{turn}, target, tutti::ReduceOp::max, {.offset = guarded + target});
            if (turn % 10 != 0) continue;
            while (window.compare_and_swap<std::int64_t>(0, rank + 1, target, {.offset = lock}) != 0)
                std::this_thread::yield();
            window.get(value, target, {.offset = guarded});
            value[0] += 1000;
            window.put(value, target, {.offset = guarded});
            good = good && window.swap<std::int64_t>(0, target, {.offset = lock}) == rank + 1;
        }
    }
    window.fence();
    for (int target = 0; target < n; ++target) {
        good = good && window.element_count(target) == guarded + 1 + target;
        good = good && window.fetch<std::int64_t>(target, {.offset = counter}) == turns * n;
        if (target > 0)
            good = good && window.fetch<std::int64_t>(target, {.offset = guarded}) == turns / 10 * n * 1000 &&
                   window.fetch<std::int64_t>(target, {.offset = guarded + target}) == turns - 1;
    }
    window.close();
    return good;
}

// Of a window whose `owner` lets go of it: calls succeed until the news has come.
bool is_refused(const tutti::Window& window, int owner) {
    const std::string expected = "Window.put: rank " + std::to_string(owner) + " has let go of the window of int32";
    for (int turn = 0; turn < 10'000; ++turn) {
        try {
            window.put(std::vector<std::int32_t>(length), owner);
            window.flush(owner);
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        } catch (const tutti::InvalidArgument& error) {
            return std::string(error.what()).find(expected) == 0 ||
                   std::string(error.what()).find("Window.flush: rank " + std::to_string(owner)) == 0;
        }
    }
    return false;
}

bool let_go(tutti::Window& window, int rank, int n) {
    bool good = true;
    for (int owner = n - 1; owner > 0; --owner) {
        if (rank == owner) window = {};
        if (rank < owner) good = good && is_refused(window, owner);
        tutti::barrier();
    }
    std::vector<int> sum{1};
    tutti::all_reduce(sum);
    return good && sum[0] == n;
}

}  // namespace

int main(int count, char** words) {
    try {
        tutti::init_process_group();
        const int rank = tutti::get_rank(), n = tutti::get_world_size();
        tutti::Window window(tutti::int32, {n, length}, {.signals = n});
        int neighbours = 0;
        for (int other = 0; other < n; ++other) {
            if (other == rank || !window.is_mapped(other)) continue;
            ++neighbours;
            if (window.map_remote(other).element_count() != n * length) return 4;
        }
        std::printf("rank %d of %d, neighbours: %d\n", rank, n, neighbours);
        std::fflush(stdout);
        bool good = exchange(window, rank, n) && count_up(rank, n);
        if (count > 1 && std::strcmp(words[1], "let_go") == 0) {
            good = let_go(window, rank, n) && good;
            window = {};
        }
        if (count > 1 && std::strcmp(words[1], "silent") == 0) {
            std::puts("waiting");
            std::fflush(stdout);
            window.wait_signal(0, rounds + 1);
        }
        if (window) window.close();
        tutti::destroy_process_group();
        return good ? 0 : 3;
    } catch (const tutti::DistError& error) {
        std::printf("%s\n", error.what());
        return 1;
    }
}
