// Fingerprint: the arguments of an operation on which ranks must agree, packed into 64 bits from which an error message
// can describe them; the headers of all messages carry it.
//
//   5 bits operation | 5 dtype | 4 reduce op | 14 root + 1 | 36 count
// Counts that do not fit, and lists of counts, are hashed into the count's bits; its top bit says so.
#pragma once

#include "algorithm/quantized.hpp"
#include "schedule/schedule.hpp"

#include <tutti/reduce_op.hpp>

#include <cstdint>
#include <span>
#include <string>

namespace tutti::group {

/// The terms of a quantised collective on which ranks must agree, beside its count.
struct QuantizedTerms {
    int operation = 0;  ///< one of those below
    DType input = DType::float32;
    DType output = DType::float32;  ///< float32, float16 or bfloat16
    bool averages = false;
    quantize::Format format = quantize::Format::int8;
    algorithm::Quantizing::Scales scales = algorithm::Quantizing::Scales::own;
    bool gathers_codes = true;
    /// A multiple of 32 up to 1024, or one of these.
    std::uint64_t block = 256;
    static constexpr std::uint64_t row = 33 * 32, tensor = 34 * 32;
};

struct Fingerprint {
    static std::uint64_t pack(int operation, DType dtype, ReduceOp::Kind op, int root, std::uint64_t count);
    static std::uint64_t pack(int operation, DType dtype, ReduceOp::Kind op, int root,
                              std::span<const std::uint64_t> counts);
    /// Of a quantised collective. `counts` also holds the terms that cannot be read back from it (a scale, rows,
    /// different counts).
    static std::uint64_t pack(const QuantizedTerms& terms, std::span<const std::uint64_t> counts);
    /// For a graph whose passes changed its collectives: replaces the fingerprint of the first one by `hash`, a digest
    /// of all of the graph's collectives on the group.
    static std::uint64_t pack_graph(std::uint64_t first, std::uint64_t hash);
    /// "all_reduce of float32 × 10, sum"; for error messages. Sizes that differ between ranks are left out: an
    /// all_to_all has none, others have a digest of all sizes, as have coalesced collectives.
    static std::string describe(std::uint64_t fingerprint);
    /// "all_to_all: rank 0 sends int32 × 3 to rank 1, which expects 1": ranks make the same call, but a pair of them
    /// expects blocks of different lengths.
    static std::string describe_block(std::uint64_t fingerprint, int from, std::uint64_t sent_bytes, int to,
                                      std::uint64_t expected_bytes);
};

inline constexpr int point_to_point = 31;
/// Objects travel as bytes, by the collectives above; ranks compare the call, with the length of its list.
inline constexpr int broadcast_objects = 24;
inline constexpr int all_gather_objects = 25;
inline constexpr int gather_objects = 26;
inline constexpr int scatter_objects = 27;
inline constexpr int symmetric_memory = 28;
#define TUTTI_QUANTIZED_FUNCTION(name, number, ...) inline constexpr int name = number;
#include <tutti/collectives.def>
/// The making of groups, of so many ranks' lists; the root says by which call.
inline constexpr int group_creation = 23;
enum class Making : int { new_group = -1, split = 0, mesh = 1 };
/// Its root says with which collective the graph begins.
inline constexpr int graph_start = 29;
inline constexpr int object_message = 30;

constexpr bool is_message(std::uint64_t fingerprint) {
    return static_cast<int>(fingerprint >> 59) >= object_message;
}

}  // namespace tutti::group
