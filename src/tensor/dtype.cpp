// Names of the element types, and conversions of the small floating-point formats (round to nearest even).
#include "core/assert.hpp"
#include "core/suggestion.hpp"

#include <tutti/dtype.hpp>
#include <tutti/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <bit>
#include <cmath>

namespace tutti {
namespace {

constexpr std::array<std::string_view, dtype_count> names{
    "bool",    "uint8",    "uint16",  "uint32",  "uint64",    "int8",       "int16",         "int32",      "int64",
    "float16", "bfloat16", "float32", "float64", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2"};

// A binary format with a sign, `exponent` and `mantissa` bits, IEEE-like subnormals.
struct Format {
    int exponent;
    int mantissa;
    bool has_infinity;
};

// Rounds to nearest even in integer arithmetic on the bits of the float.
std::uint32_t encode(float value, Format f) {
    TUTTI_ASSERT(f.exponent + f.mantissa < 16 && f.mantissa >= 1);
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (bits >> 31) << (f.exponent + f.mantissa);
    const std::uint32_t all_ones = (1U << (f.exponent + f.mantissa)) - 1;
    const std::uint32_t infinity = ((1U << f.exponent) - 1) << f.mantissa;
    const std::uint32_t not_a_number = f.has_infinity ? infinity | (1U << (f.mantissa - 1)) : all_ones;
    const std::uint32_t magnitude = bits & 0x7fffffffU;
    if (magnitude > 0x7f800000U) {
        // binary16 keeps the bits of the payload that fit, as CPUs that convert in hardware do.
        const std::uint32_t payload = f.mantissa == 10 ? (magnitude >> (23 - f.mantissa)) & 0x3ffU : 0U;
        return sign | not_a_number | payload;
    }
    const int bias = (1 << (f.exponent - 1)) - 1;
    const std::uint32_t overflow = f.has_infinity ? infinity : all_ones;
    if (magnitude == 0x7f800000U) return sign | overflow;
    const int unbiased = static_cast<int>(magnitude >> 23) - 127;
    const int shift_normal = 23 - f.mantissa;
    std::uint32_t result = 0;
    if (unbiased >= 1 - bias) {
        const std::uint32_t rebased = magnitude - (static_cast<std::uint32_t>(127 - bias) << 23);
        const std::uint32_t half = (1U << (shift_normal - 1)) - 1 + ((rebased >> shift_normal) & 1U);
        result = (rebased + half) >> shift_normal;
    } else {
        const int shift = shift_normal + (1 - bias - unbiased);
        if (shift <= 24) {
            const std::uint32_t significand = (magnitude & 0x7fffffU) | (magnitude >> 23 != 0 ? 0x800000U : 0U);
            const std::uint32_t half = (1U << (shift - 1)) - 1 + ((significand >> shift) & 1U);
            result = (significand + half) >> shift;
        }
    }
    const std::uint32_t largest = f.has_infinity ? infinity - 1 : all_ones - 1;
    const std::uint32_t rounded = result > largest ? overflow : result;
    TUTTI_ASSERT(rounded <= all_ones);
    return sign | rounded;
}

float decode(std::uint32_t bits, Format f) {
    TUTTI_ASSERT(bits >> (f.exponent + f.mantissa) <= 1);
    const bool negative = ((bits >> (f.exponent + f.mantissa)) & 1U) != 0;
    const std::uint32_t exponent = (bits >> f.mantissa) & ((1U << f.exponent) - 1);
    const std::uint32_t mantissa = bits & ((1U << f.mantissa) - 1);
    const std::uint32_t top = (1U << f.exponent) - 1;
    const int bias = (1 << (f.exponent - 1)) - 1;
    const std::uint32_t sign = negative ? 0x80000000U : 0U;
    if (f.has_infinity ? exponent == top : exponent == top && mantissa == (1U << f.mantissa) - 1) {
        const bool infinite = f.has_infinity && mantissa == 0;
        const std::uint32_t payload = f.has_infinity ? mantissa << (23 - f.mantissa) : 0U;
        return std::bit_cast<float>(sign | (infinite ? 0x7f800000U : 0x7fc00000U | payload));
    }
    const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), 1 - bias - f.mantissa)
                                          : std::ldexp(static_cast<float>(mantissa | (1U << f.mantissa)),
                                                       static_cast<int>(exponent) - bias - f.mantissa);
    return negative ? -magnitude : magnitude;
}

constexpr Format half{5, 10, true};
constexpr Format e4m3fn{4, 3, false};
constexpr Format e5m2{5, 2, true};

}  // namespace

std::string_view to_string(DType dtype) noexcept {
    const auto index = static_cast<std::size_t>(dtype);
    return index < names.size() ? names[index] : "unknown";
}

DType dtype_from_string(std::string_view name) {
    for (std::size_t i = 0; i < names.size(); ++i) {
        if (names[i] == name) return static_cast<DType>(i);
    }
    // Their names in C++, MPI and nccl-tests.
    static constexpr auto others = std::to_array<std::pair<std::string_view, std::string_view>>({{"bf16", "bfloat16"},
                                                                                                 {"boolean", "bool"},
                                                                                                 {"char", "int8"},
                                                                                                 {"double", "float64"},
                                                                                                 {"float", "float32"},
                                                                                                 {"fp16", "float16"},
                                                                                                 {"fp32", "float32"},
                                                                                                 {"fp64", "float64"},
                                                                                                 {"half", "float16"},
                                                                                                 {"int", "int32"},
                                                                                                 {"long", "int64"}});
    const auto* const usual =
        std::ranges::find(others, std::string_view(name), &std::pair<std::string_view, std::string_view>::first);
    throw InvalidArgument(fmt::format("dtype \"{}\": expected one of {}{}", name, fmt::join(names, ", "),
                                      did_you_mean(usual == others.end() ? name : usual->second, names)));
}

Float16::Float16(float value) noexcept : bits(static_cast<std::uint16_t>(encode(value, half))) {}
Float16::operator float() const noexcept {
    return decode(bits, half);
}

BFloat16::BFloat16(float value) noexcept {
    const auto wide = std::bit_cast<std::uint32_t>(value);
    if ((wide & 0x7fffffffU) > 0x7f800000U) {
        bits = static_cast<std::uint16_t>((wide >> 16) | 0x40U);
    } else {
        bits = static_cast<std::uint16_t>((wide + 0x7fffU + ((wide >> 16) & 1U)) >> 16);
    }
}
BFloat16::operator float() const noexcept {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

Float8E4M3FN::Float8E4M3FN(float value) noexcept : bits(static_cast<std::uint8_t>(encode(value, e4m3fn))) {}
Float8E4M3FN::operator float() const noexcept {
    return decode(bits, e4m3fn);
}

Float8E5M2::Float8E5M2(float value) noexcept : bits(static_cast<std::uint8_t>(encode(value, e5m2))) {}
Float8E5M2::operator float() const noexcept {
    return decode(bits, e5m2);
}

}  // namespace tutti
