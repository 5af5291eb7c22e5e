// Numbers as codes of 8 or 4 bits. Elements come in blocks; each block has one scale, and a number is code × scale.
//
// The scale of a block is its largest magnitude divided by the largest code, so zero is exact and signs are treated
// alike. A block of zeros has the scale 0. A block with a NaN or an infinity has the scale NaN, and all of it comes
// back as NaN. No scale lies between 0 and smallest_scale: in a block of subnormal numbers, or of numbers so small that
// their scale would be one, numbers are multiples of smallest_scale.
//
// Threads: stateless; the kernels for this CPU are chosen once, on first use. Codes and scales may lie at any address.
#pragma once

#include "core/assert.hpp"

#include <tutti/dtype.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>

namespace tutti::quantize {

/// The format of a code. Equal numbers on all ranks: part of the wire format.
enum class Format : std::uint8_t {
    int8 = 0,           ///< -127 to 127
    int4 = 1,           ///< -7 to 7, two in a byte, the first one in the lower half
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
/// The bytes of the codes of one block.
constexpr std::size_t code_bytes(Format format, std::size_t elements) noexcept {
    return format == Format::int4 ? (elements + 1) / 2 : elements;
}

inline constexpr float smallest_scale = std::numeric_limits<float>::min();

/// The scale of a block whose largest magnitude is that; NaN where it is not finite.
float scale_of(Format format, float magnitude) noexcept;

/// How far a number of a block may be from its code × scale, where the block's largest magnitude is `magnitude`, and it
/// is rounded to nearest. By chance: twice as far.
double error_bound(Format format, double magnitude) noexcept;

/// Consecutive elements that are cut into blocks. The first block may have begun before them: `lead` elements of it, or
/// all there are, belong to the run.
struct Blocks {
    std::size_t count = 0;
    std::size_t block = 1;
    std::size_t lead = 1;  ///< 1 to block

    /// Blocks that it has elements of: so many scales.
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

/// Numbers that decide by chance, from a counter: the same for the same key and element, however they are batched.
struct Noise {
    std::uint64_t key = 0;     ///< of one call: of its seed, rank and direction
    std::uint64_t stream = 0;  ///< distinct where numbers must be independent under one key
    std::uint64_t first = 0;   ///< number of the run's first element
};
/// `count` words of Philox4x32-10: element e is word e % 4 of counter (e / 4, stream).
void random_words(const Noise& noise, std::size_t count, std::uint32_t* words) noexcept;

/// magnitudes[i] = the largest |x| of block i, NaN where one is not finite. Sources: float32, float16, bfloat16.
void find_magnitudes(DType dtype, const void* from, const Blocks& run, float* magnitudes);

/// Where the scales of encode() come from.
enum class Scales {
    found,   ///< from the blocks; written
    given,   ///< the first one holds for all, NaN for a block that is not finite; written
    before,  ///< read; found from these numbers and others
};
/// Codes and scales of the run. Rounded to nearest even, or, with `noise`, up with the probability of the fraction that
/// is cut off. Beyond the largest code, which only scales that were not found leave room for, the largest code is
/// taken.
void encode(Format format, DType dtype, const void* from, const Blocks& run, Scales kind, float* scales,
            std::byte* codes, const Noise* noise = nullptr);

/// to[i] = code × scale, rounded once. float32, float16, bfloat16.
void decode(Format format, const std::byte* codes, const float* scales, const Blocks& run, DType dtype, void* to);

/// The effect of add() on the present values.
enum class Into { fresh, sum, difference };
/// sums[i] = code × scale, or += or -= that, in float32.
void add(Format format, const std::byte* codes, const float* scales, const Blocks& run, Into into, float* sums);

/// The same for the codes themselves, which are whole; exact up to 2^24 ranks. Not `difference`.
void add_codes(Format format, const std::byte* codes, const Blocks& run, Into into, std::int32_t* sums);

}  // namespace tutti::quantize
