#include "nccl/plan.hpp"

#include <tutti/error.hpp>

#include <algorithm>
#include <cstring>

namespace tutti::nccl {
namespace {

using Kind = ReduceOp::Kind;

std::optional<Type> number_type(DType dtype) {
    switch (dtype) {
        case DType::boolean: return uint8;
        case DType::uint8: return uint8;
        case DType::uint32: return uint32;
        case DType::uint64: return uint64;
        case DType::int8: return int8;
        case DType::int32: return int32;
        case DType::int64: return int64;
        case DType::float16: return float16;
        case DType::bfloat16: return bfloat16;
        case DType::float32:
        case DType::complex64: return float32;
        case DType::float64:
        case DType::complex128: return float64;
        case DType::float8_e4m3fn: return float8e4m3;
        case DType::float8_e5m2: return float8e5m2;
        case DType::uint16:
        case DType::int16: return std::nullopt;
    }
    return std::nullopt;
}

std::optional<Op> operator_of(Kind kind, DType dtype) {
    if (dtype == DType::boolean) {
        if (kind == Kind::sum || kind == Kind::max || kind == Kind::bor) return Op::max;
        if (kind == Kind::product || kind == Kind::min || kind == Kind::band) return Op::min;
        return std::nullopt;
    }
    switch (kind) {
        case Kind::sum:
        case Kind::premul_sum: return Op::sum;
        case Kind::avg: return Op::avg;
        case Kind::product: return is_complex(dtype) ? std::nullopt : std::optional(Op::prod);
        case Kind::min: return is_complex(dtype) ? std::nullopt : std::optional(Op::min);
        case Kind::max: return is_complex(dtype) ? std::nullopt : std::optional(Op::max);
        case Kind::band:
        case Kind::bor:
        case Kind::bxor:
        case Kind::user: return std::nullopt;
    }
    return std::nullopt;
}

// A factor is one element of the type: of integers it would lose its fraction, of float8 most of its digits.
bool takes_factor(Type type) {
    return type == float16 || type == bfloat16 || type == float32 || type == float64;
}

template <class T>
Scalar bytes_of(T value) {
    Scalar scalar;
    std::memcpy(scalar.bytes, &value, sizeof value);
    return scalar;
}

}  // namespace

std::optional<NativeReduction> native_reduction(const ReduceOp& op, DType dtype, int ranks,
                                                const Abilities& abilities) {
    const auto type = number_type(dtype);
    const auto native = operator_of(ranks == 1 && op.kind() == Kind::avg ? Kind::sum : op.kind(), dtype);
    if (!type || !native) return std::nullopt;
    if (std::ranges::find(abilities.reduced_types, *type) == abilities.reduced_types.end()) return std::nullopt;
    const bool premultiplied = op.kind() == Kind::premul_sum;
    if (premultiplied && (!abilities.premul_sum || !takes_factor(*type))) return std::nullopt;
    if (*native == Op::avg && !abilities.avg) return std::nullopt;
    if (*native == Op::prod && !abilities.product) return std::nullopt;
    const bool compares = *native == Op::min || *native == Op::max;
    if (compares && is_floating_point(dtype) && !abilities.carries_nan) return std::nullopt;
    return NativeReduction{
        .type = *type, .op = *native, .premultiplied = premultiplied, .parts = is_complex(dtype) ? 2U : 1U};
}

bool all_equal(std::span<const std::uint64_t> counts) {
    return std::ranges::adjacent_find(counts, std::not_equal_to{}) == counts.end();
}

bool fill_up(std::span<const std::uint64_t> counts) {
    std::uint64_t longest = 0, all = 0;
    for (const std::uint64_t count : counts) {
        longest = std::max(longest, count);
        all += count;
    }
    return 4 * longest * counts.size() <= 5 * all;
}

Scalar scalar_of(double factor, Type type) {
    switch (type) {
        case float64: return bytes_of(factor);
        case float32: return bytes_of(static_cast<float>(factor));
        case float16: return bytes_of(tutti::Float16(static_cast<float>(factor)));
        case bfloat16: return bytes_of(tutti::BFloat16(static_cast<float>(factor)));
        default: throw InternalError("nccl: a factor of type " + std::to_string(static_cast<int>(type)));
    }
}

}  // namespace tutti::nccl
