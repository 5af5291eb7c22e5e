// The kernels of quantize.hpp, in the fastest implementation that this CPU supports. Each works on one block, of any
// length.
#pragma once

#include "quantize/quantize.hpp"

namespace tutti::quantize {

/// Whether numbers may exceed the largest code times the scale, even by far.
enum class Reach { within, beyond };

/// The bit pattern of the largest |x| as a float; such patterns compare as the numbers do. If an element is NaN, the
/// result exceeds infinity's pattern.
using MagnitudeKernel = std::uint32_t (*)(const void* from, std::size_t count);
/// `words`: one random word for each element, for stochastic rounding; null: rounds to nearest.
using EncodeKernel = void (*)(const void* from, std::size_t count, float scale, Reach reach, const std::uint32_t* words,
                              std::byte* codes);
using DecodeKernel = void (*)(const std::byte* codes, std::size_t count, float scale, void* to);
using RandomKernel = void (*)(const Noise& noise, std::size_t count, std::uint32_t* words);
using AddCodesKernel = void (*)(const std::byte* codes, std::size_t count, std::int32_t* sums);

/// The most elements that a kernel takes at once.
inline constexpr std::size_t piece = 1024;

// Null for types that cannot be quantised.
MagnitudeKernel find_magnitude_kernel(DType from) noexcept;
EncodeKernel find_encode_kernel(Format format, DType from) noexcept;
DecodeKernel find_decode_kernel(Format format, DType to) noexcept;
DecodeKernel find_add_kernel(Format format, Into into) noexcept;  // to float32
AddCodesKernel find_add_codes_kernel(Format format) noexcept;     // adds to the present values
RandomKernel find_random_kernel() noexcept;

}  // namespace tutti::quantize
