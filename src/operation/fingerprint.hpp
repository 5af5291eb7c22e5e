// Fingerprint: the arguments of an operation on which ranks must agree, packed into 64 bits from which an error message
// can describe them; the headers of all messages carry it.
//
//   5 bits operation | 5 dtype | 4 reduce op | 14 root + 1 | 36 count
// Counts that do not fit, and lists of counts, are hashed into the count's bits, of which the top bit is then set.
// With an operator of the caller the count has 19 bits, above them stand 16 of the operator's digest; where the count
// does not fit, both are hashed. Such an operator is of one kind if it is commutative, and of another if it is not.
#pragma once

#include "algorithm/quantized.hpp"
#include "schedule/schedule.hpp"
#include "tensor/user_operator.hpp"

#include <tutti/reduce_op.hpp>

#include <cstdint>
#include <span>
#include <string>

namespace tutti::group {

/// The parameters of a quantised collective, in addition to its count, on which ranks must agree.
struct QuantizedTerms {
    int operation = 0;  ///< a number of the quantised functions below
    DType input = DType::float32;
    DType output = DType::float32;  ///< float32, float16 or bfloat16
    bool averages = false;
    quantize::Format format = quantize::Format::int8;
    algorithm::Quantizing::Scales scales = algorithm::Quantizing::Scales::own;
    bool gathers_codes = true;
    /// A multiple of 32 up to 1024, or `row` or `tensor`.
    std::uint64_t block = 256;
    static constexpr std::uint64_t row = 33 * 32, tensor = 34 * 32;
};

/// What a message between neighbours (tutti/neighbors.hpp) is a part of; both sides must agree.
struct NeighborTerms {
    enum class Function : int { exchange_halos = 1, all_to_all = 2, all_gather = 3 };
    Function function = Function::exchange_halos;
    std::uint64_t dim = 0, low = 0, high = 0;  ///< of halos: the tensor's dimension, the widths
    std::uint64_t earlier = 0;  ///< of halos: the dimensions that the call exchanged before, a bit for each
    bool periodic = false;
};

struct Fingerprint {
    static std::uint64_t pack(int operation, DType dtype, ReduceOp::Kind op, int root, std::uint64_t count);
    static std::uint64_t pack(int operation, DType dtype, ReduceOp::Kind op, int root,
                              std::span<const std::uint64_t> counts);
    /// The same for an operator of the caller.
    static std::uint64_t pack(int operation, DType dtype, const tutti::detail::UserOperator& op, int root,
                              std::uint64_t count);
    static std::uint64_t pack(int operation, DType dtype, const tutti::detail::UserOperator& op, int root,
                              std::span<const std::uint64_t> counts);
    /// The fingerprint of a quantised collective. `counts` also holds terms that the fingerprint only hashes (a scale,
    /// rows, different counts).
    static std::uint64_t pack(const QuantizedTerms& terms, std::span<const std::uint64_t> counts);
    /// The fingerprint of a message of `count` elements between neighbours. Holds a dimension up to 7, widths up to
    /// 15, and of the earlier dimensions the first four.
    static std::uint64_t pack(const NeighborTerms& terms, DType dtype, std::uint64_t count);
    /// For a graph whose passes changed its collectives: replaces the fingerprint of its first collective. `hash`: a
    /// digest of all of the graph's collectives on the group.
    static std::uint64_t pack_graph(std::uint64_t first, std::uint64_t hash);
    /// "all_reduce of float32 × 10, sum"; for error messages. Leaves out sizes that may differ between ranks: an
    /// all_to_all has none in its fingerprint, others (also coalesced collectives) have a digest of all sizes.
    static std::string describe(std::uint64_t fingerprint);
    static DType dtype(std::uint64_t fingerprint) { return static_cast<DType>((fingerprint >> 54) & 31); }
    /// "all_to_all: rank 0 sends int32 × 3 to rank 1, which expects 1": the ranks make the same call, but two of them
    /// disagree about the length of a block.
    static std::string describe_block(std::uint64_t fingerprint, int from, std::uint64_t sent_bytes, int to,
                                      std::uint64_t expected_bytes);
};

inline constexpr int point_to_point = 31;
/// Collectives of objects move bytes by the collectives above; ranks compare the call and the length of its list.
inline constexpr int broadcast_objects = 24;
inline constexpr int all_gather_objects = 25;
inline constexpr int gather_objects = 26;
inline constexpr int scatter_objects = 27;
inline constexpr int symmetric_memory = 28;
#define TUTTI_QUANTIZED_FUNCTION(name, number, ...) inline constexpr int name = number;
#include <tutti/collectives.def>
/// The creation of groups. The count is the number of rank lists; the root says by which call.
inline constexpr int group_creation = 23;
enum class Making : int { new_group = -1, split = 0, mesh = 1 };
/// The start of a graph; the root is the collective with which the graph begins.
inline constexpr int graph_start = 29;
inline constexpr int object_message = 30;
/// The fingerprint of a probe, which waits for a message of any type and length.
inline constexpr std::uint64_t any_message = 0;

constexpr bool is_message(std::uint64_t fingerprint) {
    return static_cast<int>(fingerprint >> 59) >= object_message;
}

}  // namespace tutti::group
