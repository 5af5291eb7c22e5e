// The table of kernels behind quantize.hpp: the best code for this CPU. Each works on one block, of any length.
#pragma once

#include "quantize/quantize.hpp"

namespace tutti::quantize {

/// Whether numbers may be beyond the largest code times the scale; far beyond, too.
enum class Reach { within, beyond };

/// The largest |x| as bits of a float, which order as numbers do; more than those of infinity where one is NaN.
using MagnitudeKernel = std::uint32_t (*)(const void* from, std::size_t count);
/// `words`: null, or a random word for each element.
using EncodeKernel = void (*)(const void* from, std::size_t count, float scale, Reach reach, const std::uint32_t* words,
                              std::byte* codes);
using DecodeKernel = void (*)(const std::byte* codes, std::size_t count, float scale, void* to);
using RandomKernel = void (*)(const Noise& noise, std::size_t count, std::uint32_t* words);
using AddCodesKernel = void (*)(const std::byte* codes, std::size_t count, std::int32_t* sums);

/// Kernels take at most so many elements at once.
inline constexpr std::size_t piece = 1024;

// Null for types that are not quantised.
MagnitudeKernel find_magnitude_kernel(DType from) noexcept;
EncodeKernel find_encode_kernel(Format format, DType from) noexcept;
DecodeKernel find_decode_kernel(Format format, DType to) noexcept;
DecodeKernel find_add_kernel(Format format, Into into) noexcept;  // to float32
AddCodesKernel find_add_codes_kernel(Format format) noexcept;     // adds to the present values
RandomKernel find_random_kernel() noexcept;

}  // namespace tutti::quantize
