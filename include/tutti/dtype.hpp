// Element types, and value types for the floating-point formats that C++20 has no name for.
#pragma once

#include <tutti/export.hpp>

#include <complex>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace tutti {

/// Element type of a tensor. The numbers are part of the wire format: never reorder.
enum class DType : std::uint8_t {
    boolean = 0,
    uint8 = 1,
    uint16 = 2,
    uint32 = 3,
    uint64 = 4,
    int8 = 5,
    int16 = 6,
    int32 = 7,
    int64 = 8,
    float16 = 9,
    bfloat16 = 10,
    float32 = 11,
    float64 = 12,
    complex64 = 13,      ///< two float32
    complex128 = 14,     ///< two float64
    float8_e4m3fn = 15,  ///< no infinities; NaN is S.1111.111; largest 448
    float8_e5m2 = 16,    ///< IEEE-like; largest 57344
};
inline constexpr int dtype_count = 17;

inline constexpr DType boolean = DType::boolean;
inline constexpr DType uint8 = DType::uint8;
inline constexpr DType uint16 = DType::uint16;
inline constexpr DType uint32 = DType::uint32;
inline constexpr DType uint64 = DType::uint64;
inline constexpr DType int8 = DType::int8;
inline constexpr DType int16 = DType::int16;
inline constexpr DType int32 = DType::int32;
inline constexpr DType int64 = DType::int64;
inline constexpr DType float16 = DType::float16;
inline constexpr DType bfloat16 = DType::bfloat16;
inline constexpr DType float32 = DType::float32;
inline constexpr DType float64 = DType::float64;
inline constexpr DType complex64 = DType::complex64;
inline constexpr DType complex128 = DType::complex128;
inline constexpr DType float8_e4m3fn = DType::float8_e4m3fn;
inline constexpr DType float8_e5m2 = DType::float8_e5m2;

/// Size of one element in bytes.
constexpr std::size_t size_of(DType dtype) noexcept {
    switch (dtype) {
        case DType::boolean:
        case DType::uint8:
        case DType::int8:
        case DType::float8_e4m3fn:
        case DType::float8_e5m2: return 1;
        case DType::uint16:
        case DType::int16:
        case DType::float16:
        case DType::bfloat16: return 2;
        case DType::uint32:
        case DType::int32:
        case DType::float32: return 4;
        case DType::uint64:
        case DType::int64:
        case DType::float64:
        case DType::complex64: return 8;
        case DType::complex128: return 16;
    }
    return 0;
}

constexpr bool is_complex(DType d) noexcept {
    return d == DType::complex64 || d == DType::complex128;
}
/// Real floating-point types, the 8- and 16-bit ones included.
constexpr bool is_floating_point(DType d) noexcept {
    return (d >= DType::float16 && d <= DType::float64) || d >= DType::float8_e4m3fn;
}
/// Integers and bool.
constexpr bool is_integral(DType d) noexcept {
    return d <= DType::int64;
}
/// Types that are accumulated in float32 and rounded once.
constexpr bool is_low_precision(DType d) noexcept {
    return d == DType::float16 || d == DType::bfloat16 || d >= DType::float8_e4m3fn;
}

/// "float32", "bfloat16", …; NumPy's names.
TUTTI_API std::string_view to_string(DType dtype) noexcept;
/// The inverse of to_string(); throws InvalidArgument that lists the names.
TUTTI_API DType dtype_from_string(std::string_view name);

/// IEEE 754 binary16. Conversions round to nearest even.
struct TUTTI_API Float16 {
    std::uint16_t bits = 0;
    Float16() = default;
    explicit Float16(float value) noexcept;
    explicit operator float() const noexcept;
    friend bool operator==(Float16 a, Float16 b) noexcept { return float(a) == float(b); }
};
/// bfloat16: the upper half of a float32. Conversions round to nearest even.
struct TUTTI_API BFloat16 {
    std::uint16_t bits = 0;
    BFloat16() = default;
    explicit BFloat16(float value) noexcept;
    explicit operator float() const noexcept;
    friend bool operator==(BFloat16 a, BFloat16 b) noexcept { return float(a) == float(b); }
};
/// OCP FP8 E4M3 without infinities: overflow becomes NaN, as ml_dtypes and PyTorch do.
struct TUTTI_API Float8E4M3FN {
    std::uint8_t bits = 0;
    Float8E4M3FN() = default;
    explicit Float8E4M3FN(float value) noexcept;
    explicit operator float() const noexcept;
    friend bool operator==(Float8E4M3FN a, Float8E4M3FN b) noexcept { return float(a) == float(b); }
};
/// OCP FP8 E5M2: overflow becomes infinity.
struct TUTTI_API Float8E5M2 {
    std::uint8_t bits = 0;
    Float8E5M2() = default;
    explicit Float8E5M2(float value) noexcept;
    explicit operator float() const noexcept;
    friend bool operator==(Float8E5M2 a, Float8E5M2 b) noexcept { return float(a) == float(b); }
};

namespace detail {
template <class T>
struct DTypeOf {};
template <DType D>
struct DTypeIs {
    static constexpr DType value = D;
};
template <class T>
constexpr DType integer_dtype() {
    constexpr bool is_signed = std::is_signed_v<T>;
    if constexpr (sizeof(T) == 1)
        return is_signed ? DType::int8 : DType::uint8;
    else if constexpr (sizeof(T) == 2)
        return is_signed ? DType::int16 : DType::uint16;
    else if constexpr (sizeof(T) == 4)
        return is_signed ? DType::int32 : DType::uint32;
    else
        return is_signed ? DType::int64 : DType::uint64;
}
template <class T>
requires(std::is_integral_v<T> && !std::is_same_v<T, bool> && sizeof(T) <= 8) struct DTypeOf<T>
    : DTypeIs<integer_dtype<T>()> {
};
template <>
struct DTypeOf<bool> : DTypeIs<DType::boolean> {};
template <>
struct DTypeOf<std::byte> : DTypeIs<DType::uint8> {};
template <>
struct DTypeOf<float> : DTypeIs<DType::float32> {};
template <>
struct DTypeOf<double> : DTypeIs<DType::float64> {};
template <>
struct DTypeOf<std::complex<float>> : DTypeIs<DType::complex64> {};
template <>
struct DTypeOf<std::complex<double>> : DTypeIs<DType::complex128> {};
template <>
struct DTypeOf<Float16> : DTypeIs<DType::float16> {};
template <>
struct DTypeOf<BFloat16> : DTypeIs<DType::bfloat16> {};
template <>
struct DTypeOf<Float8E4M3FN> : DTypeIs<DType::float8_e4m3fn> {};
template <>
struct DTypeOf<Float8E5M2> : DTypeIs<DType::float8_e5m2> {};
}  // namespace detail

/// A C++ type that can be an element of a tensor.
template <class T>
concept Element = requires {
    detail::DTypeOf<std::remove_cv_t<T>>::value;
};

/// The dtype of a C++ type: dtype_of<float> is float32.
template <Element T>
inline constexpr DType dtype_of = detail::DTypeOf<std::remove_cv_t<T>>::value;

}  // namespace tutti
