// The benchmark: its cases, their measurement and its report.
//
// `tutti bench` measures the machine's limits, then starts the ranks (processes: this program again, with --worker;
// or threads); rank 0 prints a row as soon as it is measured. Sizes, columns and bus bandwidth follow nccl-tests
// (doc/PERFORMANCE.md there).
#pragma once

#include "bench/collectives/sampling.hpp"

#include <tutti/dtype.hpp>
#include <tutti/process_group.hpp>
#include <tutti/reduce_op.hpp>
#include <tutti/tensor.hpp>

#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tutti::bench {

struct Options {
    std::vector<std::string> collectives;
    int ranks = 2;
    std::uint64_t min_bytes = 8, max_bytes = std::uint64_t{64} << 20;
    double factor = 2;
    std::vector<std::uint64_t> sizes;  ///< in bytes; empty: from min_bytes to max_bytes by factor
    std::vector<DType> dtypes{DType::float32};
    std::string op = "sum";
    std::string transport = "shm";  ///< shm, tcp or inproc (ranks are threads)
    std::string json, csv;          ///< files to write; empty: none
    Sampling sampling;
    bool check = true;
    bool symmetric = false;            ///< tutti's buffers are symmetric memory
    bool pin = true;                   ///< rank i on CPU i of those allowed, when there are enough
    bool table = true;                 ///< rank 0 prints the rows
    bool plan = false;                 ///< measure each call as a plan too
    int beside = 0;                    ///< processes that compute meanwhile
    std::vector<std::string> against;  ///< peers: openmpi, mpich, gloo, torch
    int rounds = 3;                    ///< of tutti and each peer, or of the algorithms, in turn
    bool regret = false;               ///< all algorithms by name, and how much the choice is slower than the best
    std::string report;                ///< folder for a page, plots and the rows; empty: none
    std::string plot_python = "python3";
    std::string torch_python = "python3";
    std::string line_file;  ///< by which ranks measure a cache line's way between them (LineProbe); empty: not at all
};

/// The sizes of the rows, in bytes.
std::vector<std::uint64_t> sizes_of(const Options& options);

/// The machine's limits, measured before the rows.
struct Limits {
    double line_ns = 0;  ///< a cache line from one core to another, one way
    struct Copy {
        std::uint64_t bytes = 0;
        double gbps = 0;           ///< of one core alone
        double together_gbps = 0;  ///< of one core while as many as there are ranks copy
    };
    std::vector<Copy> copies;  ///< memcpy, by size: caches are faster than memory
    double tcp_us = 0;         ///< a byte over a loopback connection, one way, with blocking calls
    double tcp_gbps = 0;       ///< one loopback connection, one direction
};
Limits measure_limits(bool tcp, int ranks);
/// From one process to another, on its command line.
std::string to_text(const Limits& limits);
Limits limits_from_text(const std::string& text);

struct Row {
    std::string collective;
    std::uint64_t bytes = 0, count = 0;
    DType dtype = DType::float32;
    std::string op;  ///< "none" where there is none
    int ranks = 0;
    std::string transport;
    double median_us = 0, p10_us = 0, p90_us = 0, mean_us = 0;
    double algbw_gbps = 0, busbw_gbps = 0;
    double bus_factor = 1;               ///< busbw = algbw × this
    std::optional<std::uint64_t> wrong;  ///< elements that differ from the expected ones; empty: not checked
    std::optional<double> bound_us;      ///< the best that the limits allow; empty: not known
    double cpu_us = 0;                   ///< user and system time of one call, all ranks together
    double line_before_ns = 0;           ///< a cache line's way between the ranks' CPUs, before the row; 0: not known
    double line_after_ns = 0;
    std::string implementation = "tutti";  ///< tutti-plan: its plans
};

/// One collective on buffers of one size.
class Case {
 public:
    virtual ~Case() = default;
    /// Writes this rank's inputs, and something wrong into the outputs.
    virtual void fill() = 0;
    virtual void run() = 0;
    /// The same call as a plan, made once.
    virtual std::function<void()> planned() = 0;
    /// Elements of this rank's outputs that are wrong after fill() and one run().
    virtual std::uint64_t wrong() const = 0;
    virtual Tensor& output() = 0;             ///< this rank's; may be empty
    virtual std::uint64_t bytes() const = 0;  ///< nccl-tests' size: of the larger buffer
    bool reduces = false;
    double bus_factor = 1;  ///< busbw = algbw × this
};
std::vector<std::string> collective_names();
/// `bytes` is rounded down to divide among the ranks. `symmetric`: in symmetric memory; then all ranks call it.
std::unique_ptr<Case> make_case(const std::string& collective, std::uint64_t bytes, DType dtype, ReduceOp op,
                                const ProcessGroup& group, bool symmetric = false);
std::vector<std::string> op_names();
/// Takes "product", too. Throws InvalidArgument.
ReduceOp op_from_string(const std::string& name);

/// Measures all rows; all ranks call it, rank 0 gets rows and prints them to `table` (may be null).
std::vector<Row> measure(const Options& options, const Limits& limits, const ProcessGroup& group, std::FILE* table);

/// One collective of one size, by every algorithm that can serve it.
struct Regret {
    std::string collective;
    std::uint64_t bytes = 0;
    DType dtype = DType::float32;
    int ranks = 0;
    std::string transport;
    std::string chosen;  ///< the one that runs when nobody asks for one by name
    std::string best;
    std::vector<std::pair<std::string, double>> times_us;  ///< by algorithm: median over rounds of medians
    double percent() const;                                ///< by how much `chosen` is slower than `best`
};
/// Measures the algorithms in turn; all ranks call it, rank 0 gets the list and prints it to `table` (may be null).
std::vector<Regret> measure_regret(const Options& options, const ProcessGroup& group, std::FILE* table);
/// A list of objects. Throws std::system_error that names the file.
void write_json(const std::string& file, const std::vector<Regret>& regrets);

/// The ranks of a group, for sample().
Ranks ranks_of(const ProcessGroup& group);

/// A cache line's way when this row was measured, or, where that is not known, before the rows.
double line_ns(const Row& row, const Limits& limits);
/// The time that the limits allow: the way of one line or byte, and each byte that has to move to a rank copied once.
/// Empty where no limits were measured, and where the row took less: then the machine was busier, or its CPUs stood
/// otherwise, while they were measured.
std::optional<double> bound_us(const Row& row, const Limits& limits);
/// The time, by the machine's memory, of an all_reduce that moves each byte no more than it must: every rank reads as
/// much as the buffer (its part of each rank's) and writes as much, all at once. Empty: not known.
std::optional<double> traffic_bound_us(const Row& row, const Limits& limits);

/// The rounds to compare, of each implementation those in which the ranks' CPUs stood to one another as in the others':
/// a cache line took as long, before and after. Chosen so that the implementation with the fewest has the most. A round
/// without known lines is alike to all. All empty when no such rounds are there.
std::vector<std::vector<Row>> alike(const std::vector<std::vector<Row>>& rounds);

/// Starts tutti's ranks with these options; they write their rows to options.json. Returns an exit status.
using StartOwn = std::function<int(const Options& options)>;
/// Rounds of tutti and of each peer in turn; times are medians over those of the rounds that are alike. Up to as many
/// rounds again for rows that have none; all count where there are none even then, and stderr says for how many rows.
/// A peer that is not installed is left out, with a sentence on stderr. Rows of one size stand together, tutti's first.
/// Throws std::runtime_error when a program fails.
std::vector<Row> compare(const Options& options, const Limits& limits, const StartOwn& own);
std::vector<std::string> peer_names();
/// Of those that are asked for: which cannot be measured here, and why.
std::vector<std::pair<std::string, std::string>> absent_peers(const Options& options);

void print_header(std::FILE* to, const Options& options, const Limits& limits);
/// 0 where nothing is moved.
double cpu_ns_per_byte(const Row& row);
/// "41 %" of the time, or "-" where it is not known.
std::string bound_text(const Row& row);
/// `tutti_us`: tutti's time for the same work, where there are peers; 0: none. Without limits there is no column for
/// them.
void print_row(std::FILE* to, const Row& row, const Limits& limits, double tutti_us = 0);
void print_summary(std::FILE* to, const std::vector<Row>& rows);
/// A list of objects, one a row, each with the limits that count for it. Throws std::system_error that names the file.
void write_json(const std::string& file, const std::vector<Row>& rows, const Limits& limits);
void write_csv(const std::string& file, const std::vector<Row>& rows, const Limits& limits);
/// Throws std::runtime_error that names the file.
std::vector<Row> read_json(const std::string& file);

}  // namespace tutti::bench
