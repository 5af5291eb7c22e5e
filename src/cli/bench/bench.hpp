// The benchmark: what is measured, how, and how it is told.
//
// `tutti bench` measures the machine's limits, then starts the ranks (processes: this program again, with --worker;
// or threads); rank 0 prints a row as soon as it is measured. Sizes, columns and bus bandwidth follow nccl-tests
// (doc/PERFORMANCE.md there).
#pragma once

#include "cli/bench/sampling.hpp"

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
    std::vector<DType> dtypes{DType::float32};
    std::string op = "sum";
    std::string transport = "shm";  ///< shm, tcp or inproc (ranks are threads)
    std::string json;               ///< file to write; empty: none
    Sampling sampling;
    bool check = true;
    bool symmetric = false;            ///< tutti's buffers are symmetric memory
    bool pin = true;                   ///< rank i on CPU i of those allowed, when there are enough
    bool table = true;                 ///< rank 0 prints the rows
    std::vector<std::string> against;  ///< peers: openmpi, mpich, gloo, torch
    int rounds = 3;                    ///< of tutti and each peer in turn
    std::string report;                ///< folder for plots and a page; empty: none
    std::string torch_python = "python3";
};

/// What this machine can do at best, measured before the rows.
struct Limits {
    double line_ns = 0;  ///< a cache line from one core to another, one way
    struct Copy {
        std::uint64_t bytes = 0;
        double gbps = 0;
    };
    std::vector<Copy> copies;  ///< memcpy by one core, by size: caches are faster than memory
    double tcp_us = 0;         ///< a byte over a loopback connection, one way, with blocking calls
    double tcp_gbps = 0;       ///< one loopback connection, one direction
};
Limits measure_limits(bool tcp);
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
    double median_us = 0, p10_us = 0, p90_us = 0;
    double algbw_gbps = 0, busbw_gbps = 0;
    double bus_factor = 1;               ///< busbw = algbw × this
    std::optional<std::uint64_t> wrong;  ///< elements that differ from what they should be; empty: not checked
    double bound_us = 0;                 ///< the best that the limits allow
    std::string implementation = "tutti";
};

/// One collective on buffers of one size.
class Case {
 public:
    virtual ~Case() = default;
    /// Writes this rank's inputs, and something wrong into the outputs.
    virtual void fill() = 0;
    virtual void run() = 0;
    /// Elements of this rank's outputs that are wrong after fill() and one run().
    virtual std::uint64_t wrong() const = 0;
    virtual Tensor& output() = 0;             ///< this rank's; may be empty
    virtual std::uint64_t bytes() const = 0;  ///< nccl-tests' size: of the larger buffer
    virtual std::uint64_t count() const = 0;
    bool reduces = false;
    double bus_factor = 1;  ///< busbw = algbw × this
};
std::vector<std::string> collective_names();
/// `bytes` is rounded down to what divides among the ranks. `symmetric`: in symmetric memory; then all ranks call it.
std::unique_ptr<Case> make_case(const std::string& collective, std::uint64_t bytes, DType dtype, ReduceOp op,
                                const ProcessGroup& group, bool symmetric = false);
ReduceOp op_from_string(const std::string& name);

/// Measures all rows; all ranks call it, rank 0 gets rows and prints them to `table` (may be null).
std::vector<Row> measure(const Options& options, const Limits& limits, const ProcessGroup& group, std::FILE* table);

/// What the limits allow: the way of one line or byte, and each byte that has to move to a rank copied once.
double bound_us(const Row& row, const Limits& limits);

/// Rounds of tutti (`own`, which writes its rows to the file it is given and returns an exit status) and of each peer
/// in turn; times are medians over the rounds. A peer that is not installed is left out, with a sentence on stderr.
/// Rows of one size stand together, tutti's first. Throws std::runtime_error when a program fails.
std::vector<Row> compare(const Options& options, const Limits& limits,
                         const std::function<int(const std::string& json)>& own);
std::vector<std::string> peer_names();

/// Plots (SVG, by gnuplot) of each collective's time and bus bandwidth over size, and index.html, in `folder`.
/// Throws std::runtime_error when gnuplot is missing or fails.
void write_report(const std::string& folder, const std::vector<Row>& rows, const Limits& limits);

void print_header(std::FILE* to, const Options& options, const Limits& limits);
/// `tutti_us`: tutti's time for the same work, where there are peers; 0: none.
void print_row(std::FILE* to, const Row& row, double tutti_us = 0);
void print_summary(std::FILE* to, const std::vector<Row>& rows);
/// A list of objects, one a row. Throws std::system_error that names the file.
void write_json(const std::string& file, const std::vector<Row>& rows);
/// Throws std::runtime_error that names the file.
std::vector<Row> read_json(const std::string& file);

}  // namespace tutti::bench
