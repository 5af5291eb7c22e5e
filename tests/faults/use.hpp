// Whether a group works. Threads: one of each rank.
#pragma once

#include <tutti/tutti.hpp>

#include <stdexcept>
#include <string>
#include <vector>

namespace tutti::test {

/// Short and long sums, each as it must be, and messages around the ring; throws otherwise.
inline void use(const ProcessGroup& g) {
    const int n = g.size();
    for (const std::size_t count : {1, 1000, 1'000'000}) {
        std::vector<int> x(count, g.rank() + 1);
        all_reduce(x, {.group = g});
        for (const int v : x) {
            if (v != n * (n + 1) / 2) throw std::runtime_error("a wrong sum: " + std::to_string(v));
        }
    }
    if (n == 1) return;
    std::vector<int> mine(1, g.rank()), theirs(1);
    Work sent = isend(mine, (g.rank() + 1) % n, {.group = g});
    recv(theirs, {.src = (g.rank() + n - 1) % n, .group = g});
    sent.wait();
    if (theirs[0] != (g.rank() + n - 1) % n) throw std::runtime_error("a message of another rank");
}

}  // namespace tutti::test
