// One rank of a benchmark: measures every row together with the others.
#include "cli/bench/bench.hpp"

#include <tutti/distributed.hpp>

#include <memory>

namespace tutti::bench {
namespace {

/// The same number everywhere: rank 0's.
double agreed(double value, const ProcessGroup& group) {
    broadcast(std::span<double>(&value, 1), {.src = 0, .group = group});
    return value;
}

Ranks ranks_of(const ProcessGroup& group) {
    return {[group] { barrier({.group = group}); }, [group](double value) { return agreed(value, group); },
            [group](std::vector<double>& times) { all_reduce(times, {.op = ReduceOp::avg, .group = group}); }};
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
                const auto work = make_case(collective, static_cast<std::uint64_t>(size), dtype,
                                            op_from_string(options.op), group, options.symmetric);
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
                const std::vector<double> times = sample(options.sampling, ranks_of(group), [&work] { work->run(); });
                row.median_us = quantile(times, 0.5);
                row.p10_us = quantile(times, 0.1);
                row.p90_us = quantile(times, 0.9);
                row.algbw_gbps = static_cast<double>(row.bytes) / row.median_us / 1000;
                row.bus_factor = work->bus_factor;
                row.busbw_gbps = row.algbw_gbps * work->bus_factor;
                row.bound_us = bound_us(row, limits);
                if (group.rank() != 0) continue;
                if (table != nullptr) print_row(table, row);
                rows.push_back(std::move(row));
            }
        }
    }
    return rows;
}

}  // namespace tutti::bench
