// window_bench [short]: one rank of a job. Without a word: nanoseconds of atomic calls on the last rank's memory, of
// rank 0 alone and of all ranks at once on one element. short: microseconds of short calls between the ranks of a host,
// in turns without a window and with one that has ranks on another host; the best of some rounds. Rank 0 prints a line
// for each.
#include "bench/rank_program.hpp"
#include "bench/window/time_of.hpp"

#include <tutti/tutti.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

namespace {

using tutti::Window;

constexpr int calls = 20'000, short_calls = 500, rounds = 8;

void measure_atomics() {
    const Window window(tutti::int64, {2});
    const int rank = tutti::get_rank(), target = tutti::get_world_size() - 1;
    std::int64_t value = 1, before = 0;
    const auto row = [&](const char* name, bool all, const auto& call) {
        double ns = 0;
        if (all || rank == 0)
            ns = tutti::bench::ns_of(
                calls,
                [&] {
                    if (all) tutti::barrier();
                },
                call);
        if (rank == 0) std::printf("tutti %s%s %.1f ns\n", name, all ? " of all ranks at once" : "", ns);
        tutti::barrier();
    };
    for (const bool all : {false, true}) {
        row("fetch_add", all, [&] { (void)window.fetch_add<std::int64_t>(1, target); });
        row("accumulate", all, [&] { window.accumulate(value, target); });
        row("compare_and_swap", all, [&] { before = window.compare_and_swap(before, before + 1, target); });
        row("get", all, [&] { window.get(before, target); });
    }
    window.close();
}

void measure_short_calls() {
    const tutti::ProcessGroup here = [] {
        const std::vector<int> hosts = tutti::default_group().hosts();
        return tutti::default_group().split({.color = hosts[static_cast<std::size_t>(tutti::get_rank())]});
    }();
    double sum = 1;
    const auto reduce = [&] { tutti::all_reduce(sum, {.op = tutti::ReduceOp::max, .group = here}); };
    const auto to_and_fro = [&, peer = here.global_rank(here.size() > 1 ? 1 - here.rank() % 2 : 0)] {
        if (here.rank() == 0) tutti::send(sum, peer, {.group = here});
        tutti::recv(sum, {.src = peer, .group = here});
        if (here.rank() == 1) tutti::send(sum, peer, {.group = here});
    };
    struct Best {
        double reduced = 1e12, there = 1e12;
    } open, closed;
    const auto measure = [&](Best& best) {
        if (here.size() == 1) return;
        const auto meet = [&] { tutti::barrier({.group = here}); };
        best.reduced = std::min(best.reduced, tutti::bench::ns_of(short_calls, meet, reduce));
        best.there = std::min(best.there, tutti::bench::ns_of(short_calls, meet, to_and_fro));
    };
    for (int round = 0; round < rounds; ++round) {
        tutti::barrier();
        measure(closed);
        const Window window(tutti::int64, {1});
        window.fence();
        measure(open);
        window.close();
    }
    if (tutti::get_rank() != 0) return;
    for (const auto& [when, best] : {std::pair("no window", closed), std::pair("window open", open)})
        std::printf("%s: all_reduce of 8 B %.2f us, a message of 8 B to and fro %.2f us\n", when, best.reduced / 1000,
                    best.there / 1000);
}

}  // namespace

int main(int count, char** words) {
    return tutti::bench::run_as_rank("window_bench", [&] {
        tutti::init_process_group();
        if (count > 1 && std::strcmp(words[1], "short") == 0)
            measure_short_calls();
        else
            measure_atomics();
        tutti::destroy_process_group();
    });
}
