// Chooses the kernel for an operator and an element type, once, and calls it.
#include "reduce/reduce.hpp"

#include "core/assert.hpp"
#include "reduce/kernels.hpp"
#include "reduce/user.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

namespace tutti::kernels {
namespace {

// Indexed by the number of the type, and by that of the operator.
struct Kernels {
    std::array<std::array<CombineKernel, dtype_count>, reduce_op_count> combine{};
    std::array<ScaleKernel, dtype_count> scale{};
    std::array<RoundKernel, dtype_count> round{};

    Kernels() {
        for (std::size_t type = 0; type < dtype_count; ++type) {
            const auto dtype = static_cast<DType>(type);
            for (std::size_t op = 0; op < reduce_op_count; ++op) {
                const auto kind = static_cast<ReduceOp::Kind>(op);
                CombineKernel& kernel = combine[op][type];
                kernel = find_float_kernel(kind, dtype);
                if (kernel == nullptr) kernel = find_low_precision_kernel(kind, dtype);
                if (kernel == nullptr) kernel = find_integer_kernel(kind, dtype);
            }
            scale[type] = find_float_scale_kernel(dtype);
            if (scale[type] == nullptr) scale[type] = find_low_precision_scale_kernel(dtype);
            round[type] = find_round_kernel(dtype);
        }
    }
};

const Kernels& kernels() {
    static const Kernels instance;
    return instance;
}

// Toward zero, saturating; NaN gives 0. A factor of 1 changes nothing, not even integers that double cannot hold.
template <class T>
T scaled(T value, double factor) {
    if (factor == 1.0) return value;
    const double product = std::trunc(static_cast<double>(value) * factor);
    if (std::isnan(product)) return 0;
    if (product <= static_cast<double>(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
    if (product >= static_cast<double>(std::numeric_limits<T>::max())) return std::numeric_limits<T>::max();
    return static_cast<T>(product);
}

template <class T>
void scale_integers(void* dst, const void* src, double factor, std::size_t count) {
    TUTTI_ASSERT(count == 0 || (dst != nullptr && src != nullptr));
    auto* to = static_cast<std::byte*>(dst);
    const auto* from = static_cast<const std::byte*>(src);
    for (std::size_t i = 0; i < count; ++i) {
        T value;
        std::memcpy(&value, from + i * sizeof(T), sizeof(T));
        value = scaled(value, factor);
        std::memcpy(to + i * sizeof(T), &value, sizeof(T));
    }
}

// float32 and float64. The addresses may be any.
template <class To, class From>
void convert_each(void* dst, const void* src, std::size_t count) {
    TUTTI_ASSERT(count == 0 || (dst != nullptr && src != nullptr));
    auto* to = static_cast<std::byte*>(dst);
    const auto* from = static_cast<const std::byte*>(src);
    for (std::size_t i = 0; i < count; ++i) {
        From value;
        std::memcpy(&value, from + i * sizeof(From), sizeof(From));
        const auto converted = static_cast<To>(value);
        std::memcpy(to + i * sizeof(To), &converted, sizeof(To));
    }
}

}  // namespace

void combine(Operator op, DType dtype, void* dst, std::span<const void* const> inputs, std::size_t element_count,
             std::uint64_t divisor, Stores stores) {
    TUTTI_ASSERT(element_count == 0 || dst != nullptr);
    const ReduceOp::Kind kind = op.kind;
    TUTTI_ASSERT(kind != ReduceOp::Kind::premul_sum);
    TUTTI_ASSERT(divisor > 0);
    if (kind == ReduceOp::Kind::sum && !inputs.empty() && few::add(dtype, dst, inputs, element_count)) return;
    if (op.user != nullptr) [[unlikely]]
        return combine_by_user(*op.user, dst, inputs, element_count);
    const CombineKernel kernel = kernels().combine[static_cast<std::size_t>(kind)][static_cast<std::size_t>(dtype)];
    if (kernel == nullptr || inputs.empty()) {
        throw InternalError(fmt::format("kernels::combine: no kernel for {} of {} with {} inputs", to_string(kind),
                                        to_string(dtype), inputs.size()));
    }
    const bool divides = kind == ReduceOp::Kind::avg && divisor > 1;
    if (inputs.size() == 1 && !divides && dtype != DType::boolean) {
        if (element_count > 0 && dst != inputs[0]) std::memcpy(dst, inputs[0], element_count * size_of(dtype));
        return;
    }
    // A result that replaces an input is in the cache already: writing around it would throw it out.
    for (const void* input : inputs) {
        if (input == dst) stores = Stores::cached;
    }
    kernel({dst, inputs.data(), inputs.size(), element_count, divides ? divisor : 1, stores});
}

DType accumulation_dtype(DType dtype) noexcept {
    return is_low_precision(dtype) ? DType::float32 : dtype;
}

void premultiply(DType dtype, void* dst, const void* src, double factor, std::size_t count) {
    TUTTI_ASSERT(count == 0 || (dst != nullptr && src != nullptr));
    switch (dtype) {
        case DType::boolean: throw InternalError("kernels::premultiply: not defined for bool");
        case DType::uint8: return scale_integers<std::uint8_t>(dst, src, factor, count);
        case DType::uint16: return scale_integers<std::uint16_t>(dst, src, factor, count);
        case DType::uint32: return scale_integers<std::uint32_t>(dst, src, factor, count);
        case DType::uint64: return scale_integers<std::uint64_t>(dst, src, factor, count);
        case DType::int8: return scale_integers<std::int8_t>(dst, src, factor, count);
        case DType::int16: return scale_integers<std::int16_t>(dst, src, factor, count);
        case DType::int32: return scale_integers<std::int32_t>(dst, src, factor, count);
        case DType::int64: return scale_integers<std::int64_t>(dst, src, factor, count);
        default: return kernels().scale[static_cast<std::size_t>(dtype)](dst, src, factor, count);
    }
}

void round_to(DType to, void* dst, DType from, const void* src, std::size_t count) {
    TUTTI_ASSERT(count == 0 || (dst != nullptr && src != nullptr));
    if (to == from) {
        if (count > 0) std::memmove(dst, src, count * size_of(to));
        return;
    }
    const RoundKernel kernel = kernels().round[static_cast<std::size_t>(to)];
    if (kernel == nullptr || from != DType::float32) {
        throw InternalError(fmt::format("kernels::round_to: {} from {}", to_string(to), to_string(from)));
    }
    kernel(dst, src, count);
}

void convert(DType to, void* dst, DType from, const void* src, std::size_t count) {
    TUTTI_ASSERT(count == 0 || (dst != nullptr && src != nullptr));
    TUTTI_ASSERT(size_of(to) > 0 && size_of(from) > 0);
    if (to == DType::float64 && from == DType::float32) return convert_each<double, float>(dst, src, count);
    if (to == DType::float32 && from == DType::float64) return convert_each<float, double>(dst, src, count);
    if (to == DType::float32 && is_low_precision(from)) return premultiply(from, dst, src, 1.0, count);  // exact
    if (to == from) throw InternalError(fmt::format("kernels::convert: {} to itself", to_string(to)));
    round_to(to, dst, from, src, count);
}

}  // namespace tutti::kernels
