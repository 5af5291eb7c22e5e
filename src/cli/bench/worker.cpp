// One rank of a benchmark: measures every row together with the others.
#include "cli/bench/bench.hpp"

#include "cli/bench/sampling.hpp"

#include <tutti/distributed.hpp>

#include <memory>

namespace tutti::bench {
namespace {

/// The same number everywhere: rank 0's.
double agreed(double value, const ProcessGroup& group) {
    broadcast(std::span<double>(&value, 1), {.src = 0, .group = group});
    return value;
}

/// How long a cache line takes between the CPUs of ranks 0 and 1. A virtual machine may move those at any moment: what
/// was measured minutes ago tells nothing about a call that takes three such ways.
class LineProbe {
 public:
    LineProbe(const Options& options, const Limits& limits, const ProcessGroup& group) : group_(group) {
        if (options.pin && limits.line_ns > 0 && options.transport != "tcp" && group.size() > 1)
            cpu_ = cpu_of(1, group.size());
    }
    /// 0: not known. All ranks call it; the others sleep meanwhile.
    double measure() const {
        if (cpu_ < 0) return 0;
        const double ns = group_.rank() == 0 ? line_ns_to(cpu_) : 0;
        barrier({.group = group_});
        return ns;
    }

 private:
    const ProcessGroup& group_;
    int cpu_ = -1;
};

constexpr std::uint64_t few_bytes = 64;

/// Runs `call`, which does the work of `work`, and fills in what it found.
void measure_row(Row& row, Case& work, const std::function<void()>& call, const Options& options, const Limits& limits,
                 const Ranks& ranks, const LineProbe& line, const ProcessGroup& group) {
    if (options.check) {
        work.fill();
        call();
        std::uint64_t wrong = work.wrong();
        all_reduce(std::span<std::uint64_t>(&wrong, 1), {.group = group});
        row.wrong = wrong;
    }
    const bool few = row.bytes <= few_bytes;
    const double before_ns = few ? line.measure() : 0;
    const Sampled sampled = sample(options.sampling, ranks, call);
    const double after_ns = few ? line.measure() : 0;
    row.line_ns = (before_ns + after_ns) / 2;
    const std::vector<double>& times = sampled.times_us;
    row.cpu_us = sampled.cpu_us;
    row.median_us = quantile(times, 0.5);
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
    const LineProbe line(options, limits, group);
    if (options.pin) pin_to(group.rank(), group.size());
    Ranks ranks = ranks_of(group);
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
                    row, *work, [&work] { work->run(); }, options, limits, ranks, line, group);
                std::vector<Row> measured{row};
                if (options.plan) {
                    row.implementation = "tutti-plan";
                    measure_row(row, *work, work->planned(), options, limits, ranks, line, group);
                    measured.push_back(row);
                }
                if (group.rank() != 0) continue;
                const double plain_us = options.plan ? measured.front().median_us : 0;
                for (Row& one : measured) {
                    if (table != nullptr) print_row(table, one, plain_us);
                    rows.push_back(std::move(one));
                }
            }
        }
    }
    return rows;
}

}  // namespace tutti::bench
