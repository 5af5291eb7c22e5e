// Quantised collectives: an all_reduce whose messages hold codes of 8 or 4 bits instead of floating-point numbers.
//
// They are faster where the network is the bottleneck: with int8 and the default options half as many bytes travel as
// for float16, a quarter as for float32; with int4 a bit more than half of that. Between ranks of one host they are
// never faster: copying is quicker than rounding. `tutti explain quantized_all_reduce` says when they are.
//
// The steps. The tensor is cut into slices, one for each rank, the slice's owner. (1) Every rank sends its part of each
// slice to the owner, as codes with one scale for each block of elements. (2) The owner adds up the decoded values in
// rank order, as float32, or, if all ranks use one scale, the codes themselves, exactly, as int32. (3) The owner
// converts the sums to numbers. (4) It sends them to all ranks (the second leg), as codes, or, without
// quantize_results, as numbers. quantized_reduce_scatter is (1) to (3), quantized_all_gather is (4). The steps of all
// tiles of a slice overlap. Every value is rounded twice, whatever the number of ranks, even with one rank; and every
// rank, the owner too, uses the decoded values: all ranks get the same bits.
//
// Error bounds. A rank's scale is s = m / 127 (int4: m / 7), where m is the largest magnitude in the block. A code is
// off by at most s / 2, so a sum is off by at most Σ s / 2 over all ranks; the second rounding adds half a scale of the
// sums. Together at most 1.003 Σ s for int8 (int4: 1.04 Σ s), without the second leg 0.501 Σ s, plus the rounding to
// the output's type. float8_e4m3fn: s = m / 448, each rounding off by at most 16 s (m / 28) and for smaller values by a
// sixteenth of the value; float8_e5m2: s = m / 57344, 4096 s (m / 14), an eighth. Stochastic rounding is off by up to
// twice as much, but unbiased.
//
// Special values. A block of zeros stays zeros. If a rank has a NaN or an infinity in a block, the whole block becomes
// NaN on all ranks. Scales are never subnormal: blocks whose largest magnitude is below 127 · 2^-126 are rounded to
// multiples of 2^-126. With a given scale, a value beyond the largest code becomes the largest code.
//
// Common to all: groups, time limits, buffers, order and errors are as in distributed.hpp. All ranks give the same
// type, block, scales, scale, quantize_results, op, dtypes and counts; otherwise CollectiveMismatch names both sides.
// Each rank may have its own rounding and seed. Memory: the ranks' backend has to be native (DistBackendError), the
// tensors in host memory. Not collected by Coalescing. Threads: as other collectives.
#pragma once

#include <tutti/distributed.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

namespace tutti {

namespace quantized {  // apart from the element types of these names, which GCC 12 takes for the same
/// The type of a code.
enum class Type {
    int8,           ///< -127 to 127
    int4,           ///< -7 to 7, two in a byte
    float8_e4m3fn,  ///< 3 bits of mantissa: relative precision within a block
    float8_e5m2,    ///< 2 bits of mantissa
};
}  // namespace quantized
using QuantizedType = quantized::Type;

/// The ranks whose values determine a scale.
enum class QuantizedScales {
    per_rank,  ///< each rank's own
    shared,    ///< common to all ranks, from their largest magnitudes, exchanged first; int8, int4: exact sums
};

enum class QuantizedRounding {
    nearest,     ///< to the nearest code, ties to even
    stochastic,  ///< up with a probability equal to the fraction cut off, so without bias. The random numbers depend
                 ///< only on `seed`, the rank and the element's number (Philox4x32-10), so that runs repeat
};

/// The enumerator with a name; throws InvalidArgument that lists the names.
TUTTI_API QuantizedType quantized_type_from_string(std::string_view name);
TUTTI_API QuantizedScales quantized_scales_from_string(std::string_view name);
TUTTI_API QuantizedRounding quantized_rounding_from_string(std::string_view name);

struct QuantizedOptions {
    /// Values of `block`: one scale for each row (the last dimension of the input), or one for the whole input. The
    /// results of blocks of more than 32,768 elements (131,072 between hosts) have a scale for each part of that size.
    static constexpr std::int64_t per_row = -1, per_tensor = -2;

    QuantizedType type = QuantizedType::int8;
    std::int64_t block = 256;  ///< elements with one scale: a multiple of 32 from 32 to 1024, or one of the above
    QuantizedScales scales = QuantizedScales::per_rank;
    /// One scale for all of the input, on all ranks, at least 2^-126. The input may then be int8, which holds codes
    /// already.
    std::optional<float> scale{};
    bool quantize_results = true;  ///< quantized_all_reduce: the results are sent (second leg) as codes, too
    QuantizedRounding rounding = QuantizedRounding::nearest;
    std::uint64_t seed = 0;
    ReduceOp op = ReduceOp::sum;  ///< sum or avg
    /// quantized_reduce_scatter, quantized_all_gather: elements of each rank's piece; empty: equal pieces.
    std::vector<std::int64_t> counts{};
    ProcessGroup group{};
    milliseconds timeout{0};
};

/// Adds up (or averages) `tensor` over all ranks, in place. float32, float16 or bfloat16.
/// errors   InvalidArgument before any traffic: another dtype or op, an invalid block or scale.
/// cost     with c bytes for a code with its part of the scale (int8 in blocks of 256: 1.016, int4: 0.516) each rank
///          sends 2 (n-1)/n · c bytes an element; without the second leg (n-1)/n · (c + the output's bytes).
/// follows  ZeRO++ (arXiv 2306.10209) and QuickReduce: two shots instead of a ring, whose error grows with n.
TUTTI_API void quantized_all_reduce(TensorView tensor, const QuantizedOptions& options = {});
/// As above, into another tensor with the same number of elements: float32, float16 or bfloat16, whatever the input's
/// type is.
TUTTI_API void quantized_all_reduce(TensorView output, ConstTensorView input, const QuantizedOptions& options = {});
/// `output` becomes this rank's piece of the sum of all inputs; pieces lie one after the other, in the order of ranks.
/// With per_row each piece has whole rows.
TUTTI_API void quantized_reduce_scatter(TensorView output, ConstTensorView input, const QuantizedOptions& options = {});
/// `output` becomes the inputs of all ranks, this one too, one after the other in rank order, each decoded from its
/// codes.
TUTTI_API void quantized_all_gather(TensorView output, ConstTensorView input, const QuantizedOptions& options = {});

namespace async {

[[nodiscard]] TUTTI_API Work quantized_all_reduce(TensorView tensor, const QuantizedOptions& options = {});
#define TUTTI_QUANTIZED_FUNCTION(name, ...) \
    [[nodiscard]] TUTTI_API Work name(TensorView output, ConstTensorView input, const QuantizedOptions& options = {});
#include <tutti/collectives.def>

}  // namespace async

/// quantized_all_reduce with error feedback: the next call on the same bucket adds the rounding errors of this one to
/// the values that it rounds, so that nothing is lost over many steps, as training wants of gradients.
/// Each rank carries over the errors of its own roundings, of both legs; a block with a NaN or an infinity adds no
/// error. With stochastic rounding each call uses other random numbers, from the seed and the number of earlier calls.
///
///     tutti::QuantizedReducer reducer({.type = tutti::QuantizedType::int4, .op = tutti::ReduceOp::avg});
///     for (;;) { compute(gradient); reducer.all_reduce(gradient); step(gradient); }
///
/// Memory: four bytes for each element of a bucket, and for each of this rank's slice. Threads: one at a time. The
/// calls of a bucket must be complete before the next one begins. May be moved, not copied.
class TUTTI_API QuantizedReducer {
 public:
    explicit QuantizedReducer(QuantizedOptions options = {});
    QuantizedReducer(QuantizedReducer&& other) noexcept;
    QuantizedReducer& operator=(QuantizedReducer&& other) noexcept;
    QuantizedReducer(const QuantizedReducer&) = delete;
    QuantizedReducer& operator=(const QuantizedReducer&) = delete;
    /// An operation under way continues, and keeps the memory that it needs.
    ~QuantizedReducer();

    /// In place, as quantized_all_reduce. `bucket`: any number that identifies the tensor from step to step; calls with
    /// the same number share rounding errors. A bucket with another number of elements than before begins anew.
    /// InvalidArgument while the bucket's last call is under way.
    void all_reduce(TensorView tensor, std::size_t bucket = 0);
    [[nodiscard]] Work start_all_reduce(TensorView tensor, std::size_t bucket = 0);
    /// The rounding errors of this rank that the next call adds: float32, one for each element; empty: nothing yet.
    Tensor residual(std::size_t bucket = 0) const;
    /// Forgets all rounding errors.
    void reset();
    const QuantizedOptions& options() const;

 private:
    struct State;
    State& checked(const char* method) const;
    std::unique_ptr<State> state_;
};

}  // namespace tutti
