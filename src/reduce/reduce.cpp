#include "reduce/reduce.hpp"

#include "reduce/kernels.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>

namespace tutti::reduce {
namespace {

using Table = std::array<std::array<Kernel, dtype_count>, reduce_op_count>;

const Table& kernels() {
    static const Table table = [] {
        Table result{};
        for (int op = 0; op < reduce_op_count; ++op) {
            for (int type = 0; type < dtype_count; ++type) {
                result[static_cast<std::size_t>(op)][static_cast<std::size_t>(type)] =
                    find_kernel(static_cast<ReduceOp::Kind>(op), static_cast<DType>(type));
            }
        }
        return result;
    }();
    return table;
}

template <class From, class To, class F>
void convert(void* dst, const void* src, std::size_t count, F f) {
    auto* to = static_cast<std::byte*>(dst);
    const auto* from = static_cast<const std::byte*>(src);
    for (std::size_t i = 0; i < count; ++i) {
        From value;
        std::memcpy(&value, from + i * sizeof(From), sizeof(From));
        const To result = f(value);
        std::memcpy(to + i * sizeof(To), &result, sizeof(To));
    }
}

// Toward zero, saturating; exact at the limits of the type.
template <class T>
T scaled(T value, double factor) {
    const double product = std::trunc(static_cast<double>(value) * factor);
    if (std::isnan(product)) return 0;
    if (product <= static_cast<double>(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
    if (product >= static_cast<double>(std::numeric_limits<T>::max())) return std::numeric_limits<T>::max();
    return static_cast<T>(product);
}

template <class T>
void premultiply_integer(void* dst, const void* src, double factor, std::size_t count) {
    convert<T, T>(dst, src, count, [&](T v) { return scaled(v, factor); });
}
template <class T>
void premultiply_small(void* dst, const void* src, double factor, std::size_t count) {
    const auto f = static_cast<float>(factor);
    convert<T, float>(dst, src, count, [&](T v) { return float(v) * f; });
}
template <class T>
void premultiply_real(void* dst, const void* src, double factor, std::size_t count) {
    const T f = static_cast<T>(factor);
    convert<T, T>(dst, src, count, [&](T v) { return v * f; });
}

}  // namespace

void combine(ReduceOp::Kind kind, DType dtype, void* dst, std::span<const void* const> inputs,
             std::size_t element_count, std::uint64_t divisor, Stores stores) {
    const Kernel kernel = kernels()[static_cast<std::size_t>(kind)][static_cast<std::size_t>(dtype)];
    if (kernel == nullptr || inputs.empty()) {
        throw InternalError(fmt::format("reduce::combine: no kernel for {} of {} with {} inputs", to_string(kind),
                                        to_string(dtype), inputs.size()));
    }
    kernel({dst, inputs.data(), inputs.size(), element_count, kind == ReduceOp::Kind::avg ? divisor : 1,
            stores == Stores::streaming});
}

DType accumulation_dtype(DType dtype) noexcept {
    return is_low_precision(dtype) ? DType::float32 : dtype;
}

void premultiply(DType dtype, void* dst, const void* src, double factor, std::size_t count) {
    switch (dtype) {
        case DType::uint8: return premultiply_integer<std::uint8_t>(dst, src, factor, count);
        case DType::uint16: return premultiply_integer<std::uint16_t>(dst, src, factor, count);
        case DType::uint32: return premultiply_integer<std::uint32_t>(dst, src, factor, count);
        case DType::uint64: return premultiply_integer<std::uint64_t>(dst, src, factor, count);
        case DType::int8: return premultiply_integer<std::int8_t>(dst, src, factor, count);
        case DType::int16: return premultiply_integer<std::int16_t>(dst, src, factor, count);
        case DType::int32: return premultiply_integer<std::int32_t>(dst, src, factor, count);
        case DType::int64: return premultiply_integer<std::int64_t>(dst, src, factor, count);
        case DType::float16: return premultiply_small<Float16>(dst, src, factor, count);
        case DType::bfloat16: return premultiply_small<BFloat16>(dst, src, factor, count);
        case DType::float8_e4m3fn: return premultiply_small<Float8E4M3FN>(dst, src, factor, count);
        case DType::float8_e5m2: return premultiply_small<Float8E5M2>(dst, src, factor, count);
        case DType::float32: return premultiply_real<float>(dst, src, factor, count);
        case DType::float64: return premultiply_real<double>(dst, src, factor, count);
        case DType::complex64: return premultiply_real<float>(dst, src, factor, 2 * count);
        case DType::complex128: return premultiply_real<double>(dst, src, factor, 2 * count);
        case DType::boolean: break;
    }
    throw InternalError("reduce::premultiply: not defined for bool");
}

void round_to(DType to, void* dst, DType from, const void* src, std::size_t count) {
    if (to == from) {
        if (count > 0) std::memmove(dst, src, count * size_of(to));
        return;
    }
    switch (to) {
        case DType::float16: return convert<float, Float16>(dst, src, count, [](float v) { return Float16(v); });
        case DType::bfloat16: return convert<float, BFloat16>(dst, src, count, [](float v) { return BFloat16(v); });
        case DType::float8_e4m3fn:
            return convert<float, Float8E4M3FN>(dst, src, count, [](float v) { return Float8E4M3FN(v); });
        case DType::float8_e5m2:
            return convert<float, Float8E5M2>(dst, src, count, [](float v) { return Float8E5M2(v); });
        default: throw InternalError(fmt::format("reduce::round_to: {} from {}", to_string(to), to_string(from)));
    }
}

}  // namespace tutti::reduce
