// One rank of a benchmark: measures every row together with the others.
#include "cli/bench/bench.hpp"

#include <tutti/distributed.hpp>

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <thread>

namespace tutti::bench {
namespace {

using Clock = std::chrono::steady_clock;

double us_since(Clock::time_point start) {
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

void pin_to(int rank, int ranks) {
    cpu_set_t allowed;
    if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < ranks) return;
    for (int cpu = 0, index = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (!CPU_ISSET(cpu, &allowed) || index++ != rank) continue;
        cpu_set_t mine;
        CPU_ZERO(&mine);
        CPU_SET(cpu, &mine);
        ::sched_setaffinity(0, sizeof mine, &mine);
        return;
    }
}

/// The same number everywhere: rank 0's.
double agreed(double value, const ProcessGroup& group) {
    broadcast(std::span<double>(&value, 1), {.src = 0, .group = group});
    return value;
}

double quantile(const std::vector<double>& sorted, double q) {
    const double at = q * static_cast<double>(sorted.size() - 1);
    const auto low = static_cast<std::size_t>(at);
    const std::size_t high = std::min(low + 1, sorted.size() - 1);
    return sorted[low] + (at - static_cast<double>(low)) * (sorted[high] - sorted[low]);
}

// Times of single calls in microseconds, each the mean over the ranks.
std::vector<double> samples_of(Case& work, const Options& options, const ProcessGroup& group) {
    for (int i = 0; i < options.warmup; ++i) work.run();
    // Several calls a sample where one is too short for the clock; at least 5 samples, more while time is left.
    barrier({.group = group});
    auto start = Clock::now();
    for (int i = 0; i < 3; ++i) work.run();
    const double one_us = agreed(us_since(start) / 3, group);
    const int batch = std::clamp(static_cast<int>(20 / std::max(one_us, 0.05)), 1, 256);
    const double fit = options.row_seconds * 1e6 / std::max(one_us * batch, 1.0);
    const int samples = options.iterations > 0 ? options.iterations : std::clamp(static_cast<int>(fit), 5, 2000);

    std::vector<double> times(static_cast<std::size_t>(samples));
    barrier({.group = group});
    for (double& time : times) {
        start = Clock::now();
        for (int i = 0; i < batch; ++i) work.run();
        time = us_since(start) / batch;
    }
    all_reduce(times, {.op = ReduceOp::avg, .group = group});
    std::ranges::sort(times);
    return times;
}

// What the limits allow: the way of one line or byte, and each byte that has to move to a rank copied once.
double bound_us(const Row& row, const Limits& limits, double bus_factor) {
    if (row.ranks < 2) return 0;
    const bool tcp = row.transport == "tcp";
    const double first = tcp ? limits.tcp_us : limits.line_ns / 1000;
    double gbps = tcp ? limits.tcp_gbps : 0;
    for (const auto& copy : limits.copies) {
        if (!tcp && (gbps == 0 || copy.bytes <= row.bytes)) gbps = copy.gbps;
    }
    return first + (gbps > 0 ? static_cast<double>(row.bytes) * bus_factor / gbps / 1000 : 0);
}

}  // namespace

std::vector<Row> measure(const Options& options, const Limits& limits, const ProcessGroup& group, std::FILE* table) {
    if (options.pin) pin_to(group.rank(), group.size());
    std::vector<Row> rows;
    for (const std::string& collective : options.collectives) {
        for (const DType dtype : options.dtypes) {
            std::uint64_t last = UINT64_MAX;
            for (double size = static_cast<double>(options.min_bytes); size <= static_cast<double>(options.max_bytes);
                 size *= options.factor) {
                const auto work =
                    make_case(collective, static_cast<std::uint64_t>(size), dtype, op_from_string(options.op), group);
                const auto bytes = static_cast<std::uint64_t>(agreed(static_cast<double>(work->bytes()), group));
                if (bytes == last) continue;  // rounded to the same, or a barrier
                last = bytes;
                Row row{.collective = collective, .bytes = last, .count = last / size_of(dtype), .dtype = dtype};
                row.op = work->reduces ? options.op : "none";
                row.ranks = group.size();
                row.transport = options.transport;
                if (options.check) {
                    work->fill();
                    work->run();
                    std::uint64_t wrong = work->wrong();
                    all_reduce(std::span<std::uint64_t>(&wrong, 1), {.group = group});
                    row.wrong = wrong;
                }
                const std::vector<double> times = samples_of(*work, options, group);
                row.median_us = quantile(times, 0.5);
                row.p10_us = quantile(times, 0.1);
                row.p90_us = quantile(times, 0.9);
                row.algbw_gbps = static_cast<double>(row.bytes) / row.median_us / 1000;
                row.busbw_gbps = row.algbw_gbps * work->bus_factor;
                row.bound_us = bound_us(row, limits, work->bus_factor);
                if (group.rank() != 0) continue;
                if (table != nullptr) print_row(table, row);
                rows.push_back(std::move(row));
            }
        }
    }
    return rows;
}

}  // namespace tutti::bench
