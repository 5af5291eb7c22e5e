// One rank of a benchmark: measures every row together with the others.
#include "bench/collectives/bench.hpp"

#include "bench/collectives/line.hpp"
#include "bench/collectives/sampling.hpp"

#include <tutti/distributed.hpp>

#include <memory>

namespace tutti::bench {
namespace {

/// The same number everywhere: rank 0's.
double agreed(double value, const ProcessGroup& group) {
    broadcast(std::span<double>(&value, 1), {.src = 0, .group = group});
    return value;
}

/// Runs `call`, which does the work of `work`, and fills in its findings.
void measure_row(Row& row, Case& work, const std::function<void()>& call, const Options& options, const Limits& limits,
                 const Ranks& ranks, const ProcessGroup& group) {
    if (options.check) {
        work.fill();
        call();
        std::uint64_t wrong = work.wrong();
        all_reduce(std::span<std::uint64_t>(&wrong, 1), {.group = group});
        row.wrong = wrong;
    }
    const Sampled sampled = sample(options.sampling, ranks, call);
    row.line_before_ns = sampled.line_before_ns;
    row.line_after_ns = sampled.line_after_ns;
    const std::vector<double>& times = sampled.times_us;
    row.cpu_us = sampled.cpu_us;
    row.median_us = quantile(times, 0.5);
    row.mean_us = sampled.mean_us;
    row.p10_us = quantile(times, 0.1);
    row.p90_us = quantile(times, 0.9);
    row.algbw_gbps = static_cast<double>(row.bytes) / row.median_us / 1000;
    row.bus_factor = work.bus_factor;
    row.busbw_gbps = row.algbw_gbps * work.bus_factor;
    row.bound_us = bound_us(row, limits);
}

}  // namespace

Ranks ranks_of(const ProcessGroup& group) {
    return {[group] { barrier({.group = group}); }, [group](double value) { return agreed(value, group); },
            [group](std::vector<double>& times) { all_reduce(times, {.op = ReduceOp::avg, .group = group}); },
            group.size()};
}

std::vector<Row> measure(const Options& options, const Limits& limits, const ProcessGroup& group, std::FILE* table) {
    const bool pinned = options.pin && pin_to(group.rank(), group.size());
    LineProbe line(pinned ? options.line_file : "", group.rank());
    Ranks ranks = ranks_of(group);
    ranks.line_ns = [&line] { return line.measure(); };
    if (options.transport == "inproc") ranks.processes = 1;
    std::vector<Row> rows;
    for (const std::string& collective : options.collectives) {
        for (const DType dtype : options.dtypes) {
            std::uint64_t last = UINT64_MAX;
            for (const std::uint64_t size : sizes_of(options)) {
                const auto work =
                    make_case(collective, size, dtype, op_from_string(options.op), group, options.symmetric);
                if (work->bytes() == last) continue;  // rounded to the same, or a barrier
                last = work->bytes();
                Row row{.collective = collective, .bytes = last, .count = last / size_of(dtype), .dtype = dtype};
                row.op = work->reduces ? options.op : "none";
                row.ranks = group.size();
                row.transport = options.transport;
                measure_row(
                    row, *work, [&work] { work->run(); }, options, limits, ranks, group);
                std::vector<Row> measured{row};
                if (options.plan) {
                    row.implementation = "tutti-plan";
                    measure_row(row, *work, work->planned(), options, limits, ranks, group);
                    measured.push_back(row);
                }
                if (group.rank() != 0) continue;
                const double plain_us = options.plan ? measured.front().median_us : 0;
                for (Row& one : measured) {
                    if (table != nullptr) print_row(table, one, limits, plain_us);
                    rows.push_back(std::move(one));
                }
            }
        }
    }
    return rows;
}

}  // namespace tutti::bench
