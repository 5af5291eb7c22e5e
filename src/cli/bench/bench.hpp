// The benchmark: what is measured, how, and how it is told.
//
// `tutti bench` measures the machine's limits, then starts the ranks (processes: this program again, with --worker;
// or threads); rank 0 prints a row as soon as it is measured. Sizes, columns and bus bandwidth follow nccl-tests
// (doc/PERFORMANCE.md there).
#pragma once

#include <tutti/dtype.hpp>
#include <tutti/process_group.hpp>
#include <tutti/reduce_op.hpp>
#include <tutti/tensor.hpp>

#include <cstdint>
#include <cstdio>
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
    int iterations = 0;             ///< samples of each row; 0: as many as fit in row_seconds
    int warmup = 5;
    double row_seconds = 0.3;
    bool check = true;
    bool pin = true;  ///< rank i on CPU i of those allowed, when there are enough
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
    std::optional<std::uint64_t> wrong;  ///< elements that differ from what they should be; empty: not checked
    double bound_us = 0;                 ///< the best that the limits allow
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
/// `bytes` is rounded down to what divides among the ranks.
std::unique_ptr<Case> make_case(const std::string& collective, std::uint64_t bytes, DType dtype, ReduceOp op,
                                const ProcessGroup& group);
ReduceOp op_from_string(const std::string& name);

/// Measures all rows; all ranks call it, rank 0 gets rows and prints them to `table` (may be null).
std::vector<Row> measure(const Options& options, const Limits& limits, const ProcessGroup& group, std::FILE* table);

void print_header(std::FILE* to, const Options& options, const Limits& limits);
void print_row(std::FILE* to, const Row& row);
void print_summary(std::FILE* to, const std::vector<Row>& rows);
/// A list of objects, one a row. Throws std::system_error that names the file.
void write_json(const std::string& file, const std::vector<Row>& rows);

}  // namespace tutti::bench
