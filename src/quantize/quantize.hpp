// Quantisation: numbers as codes of 8 or 4 bits. Elements come in blocks; each block has one scale, and a code stands
// for the number code × scale.
//
// The scale of a block is its largest magnitude divided by the largest code, so zero is exact and signs are treated
// alike. A block of zeros has the scale 0. A block with a NaN or an infinity has the scale NaN, and decodes to NaN in
// every element. No scale lies between 0 and smallest_scale: in a block whose scale would be smaller, numbers are
// rounded to multiples of smallest_scale.
//
// Threads: stateless; the kernels for this CPU are chosen once, on first use. Codes and scales may lie at any address.
#pragma once

#include "core/assert.hpp"

#include <tutti/dtype.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>

namespace tutti::quantize {

/// The format of a code. Part of the wire format: the same numbers on all ranks.
enum class Format : std::uint8_t {
    int8 = 0,           ///< -127 to 127
    int4 = 1,           ///< -7 to 7, two per byte, the first in the lower half
    float8_e4m3fn = 2,  ///< rounded to 3 bits of mantissa
    float8_e5m2 = 3,    ///< rounded to 2 bits of mantissa
};
inline constexpr int format_count = 4;

constexpr bool is_whole(Format format) noexcept {
    return format == Format::int8 || format == Format::int4;
}
/// The largest code.
constexpr float largest(Format format) noexcept {
    switch (format) {
        case Format::int8: return 127;
        case Format::int4: return 7;
        case Format::float8_e4m3fn: return 448;
        case Format::float8_e5m2: return 57344;
    }
    return 1;
}
/// The number of bytes of one block's codes.
constexpr std::size_t code_bytes(Format format, std::size_t elements) noexcept {
    return format == Format::int4 ? (elements + 1) / 2 : elements;
}

inline constexpr float smallest_scale = std::numeric_limits<float>::min();

/// The scale of a block whose largest magnitude is `magnitude`; NaN if that is not finite.
float scale_of(Format format, float magnitude) noexcept;

/// The largest difference between a number and its code × scale, in a block with the largest magnitude `magnitude`,
/// when rounding to nearest. Stochastic rounding: twice as much.
double error_bound(Format format, double magnitude) noexcept;

/// A run of consecutive elements, cut into blocks. The first block may have begun before the run: the run's first
/// `lead` elements (all, if the run is shorter) belong to this block.
struct Blocks {
    std::size_t count = 0;
    std::size_t block = 1;
    std::size_t lead = 1;  ///< 1 to block

    /// The number of blocks that have elements in the run, and so of scales.
    constexpr std::size_t blocks() const noexcept {
        TUTTI_ASSERT(block > 0 && lead >= 1 && lead <= block);
        return count == 0 ? 0 : count <= lead ? 1 : 1 + (count - lead + block - 1) / block;
    }
    constexpr std::size_t code_bytes(Format format) const noexcept {
        TUTTI_ASSERT(block > 0 && lead >= 1 && lead <= block);
        if (format != Format::int4) return count;
        if (count <= lead) return quantize::code_bytes(format, count);
        const std::size_t rest = count - lead;
        return quantize::code_bytes(format, lead) + rest / block * quantize::code_bytes(format, block) +
               quantize::code_bytes(format, rest % block);
    }
    /// Calls f(index, first element, elements, first byte of the codes) for each block.
    template <class F>
    constexpr void for_each_block(Format format, F&& f) const {
        TUTTI_ASSERT(block > 0 && lead >= 1 && lead <= block);
        std::size_t at = 0, code = 0;
        for (std::size_t index = 0; at < count; ++index) {
            const std::size_t whole = index == 0 ? lead : block;
            const std::size_t elements = whole < count - at ? whole : count - at;
            f(index, at, elements, code);
            at += elements;
            code += quantize::code_bytes(format, elements);
        }
    }
};

/// A counter-based random sequence for stochastic rounding: equal for the same key and element, however calls are
/// batched.
struct Noise {
    std::uint64_t key = 0;     ///< one for each call, from its seed, rank and direction
    std::uint64_t stream = 0;  ///< differs where numbers must be independent under one key
    std::uint64_t first = 0;   ///< the index of the run's first element
};
/// `count` words of Philox4x32-10: element e is word e % 4 of counter (e / 4, stream).
void random_words(const Noise& noise, std::size_t count, std::uint32_t* words) noexcept;

/// magnitudes[i] = the largest |x| of block i, NaN if an element is not finite. `dtype`: float32, float16 or bfloat16.
void find_magnitudes(DType dtype, const void* from, const Blocks& run, float* magnitudes);

/// The source of encode()'s scales.
enum class Scales {
    found,   ///< encode() computes them from the blocks and writes them
    given,   ///< scales[0] for all blocks, NaN for those that are not finite; written
    before,  ///< read; the caller computed them from these numbers and others
};
/// Writes the codes and scales of the run. Rounds to nearest even, or, with `noise`, up with the probability of the
/// fraction that is cut off. Numbers beyond the largest code (possible only with scales that were not found) become the
/// largest code.
void encode(Format format, DType dtype, const void* from, const Blocks& run, Scales kind, float* scales,
            std::byte* codes, const Noise* noise = nullptr);

/// to[i] = code × scale, rounded once. `dtype`: float32, float16 or bfloat16.
void decode(Format format, const std::byte* codes, const float* scales, const Blocks& run, DType dtype, void* to);

/// How add() changes the present values: replaces them, adds to them, or subtracts from them.
enum class Into { fresh, sum, difference };
/// sums[i] = code × scale, or += or -= code × scale, in float32.
void add(Format format, const std::byte* codes, const float* scales, const Blocks& run, Into into, float* sums);

/// As add(), for the codes themselves, which must be whole numbers; exact for up to 2^24 ranks. Not for `difference`.
void add_codes(Format format, const std::byte* codes, const Blocks& run, Into into, std::int32_t* sums);

}  // namespace tutti::quantize
