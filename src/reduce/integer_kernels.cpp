// Kernels of the integers and bool, for each CPU target.
//
// Sums and products wrap around, so signed and unsigned types share them; bitwise operators see only bytes.
#include "core/assert.hpp"
#include "reduce/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce/integer_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <limits>

#include "reduce/loops-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels {
namespace HWY_NAMESPACE {

using Kind = ReduceOp::Kind;

// Division by a number that stays the same, as a multiplication with its reciprocal: floor(2^n / d) * v / 2^n is the
// quotient of v, or one less, for v below 2^n; the remainder tells which. Wide holds the product.
template <class T, class Wide, int N>
HWY_INLINE void divide_all(T* values, std::size_t count, std::uint64_t divisor) {
    TUTTI_ASSERT(divisor > 1);
    using U = std::make_unsigned_t<T>;
    constexpr std::uint64_t largest = std::numeric_limits<U>::max();
    if (divisor > largest) {
        std::memset(values, 0, count * sizeof(T));
        return;
    }
    const auto d = static_cast<Wide>(divisor);
    const auto reciprocal = static_cast<Wide>((~std::uint64_t{0} >> (64 - N)) / divisor);
    for (std::size_t i = 0; i < count; ++i) {
        const bool negative = values[i] < 0;
        const auto bits = static_cast<U>(values[i]);
        const auto magnitude = static_cast<Wide>(negative ? static_cast<U>(U{0} - bits) : bits);
        auto quotient = static_cast<Wide>((magnitude * reciprocal) >> N);
        quotient += magnitude - quotient * d >= d ? 1 : 0;
        values[i] = static_cast<T>(static_cast<U>(negative ? Wide{0} - quotient : quotient));
    }
}
__extension__ using Unsigned128 = unsigned __int128;

// The wrapped sum, block by block, divided while it is in the cache.
template <class T>
void average(const Call& call) {
    TUTTI_ASSERT(call.input_count >= 1);
    using U = std::make_unsigned_t<T>;
    if (call.divisor <= 1) return combine_all<Plain<U>, Sum>(call);
    constexpr std::size_t block = block_bytes / sizeof(T);
    alignas(64) U sums[block];
    for (std::size_t at = 0; at < call.element_count; at += block) {
        const std::size_t count = std::min(block, call.element_count - at);
        accumulate_all<Plain<U>, Sum>(sums, call, at * sizeof(T), count);
        auto* values = reinterpret_cast<T*>(sums);  // the signed twin of a type may alias it
        if constexpr (sizeof(T) <= 2) {
            divide_all<T, std::uint32_t, 16>(values, count, call.divisor);
        } else if constexpr (sizeof(T) == 4) {
            divide_all<T, std::uint64_t, 32>(values, count, call.divisor);
        } else {
            divide_all<T, Unsigned128, 64>(values, count, call.divisor);
        }
        std::memcpy(static_cast<std::byte*>(call.dst) + at * sizeof(T), sums, count * sizeof(T));
    }
}

template <class T>
CombineKernel of_integer(Kind kind) {
    using Bits = Plain<std::make_unsigned_t<T>>;
    using Bytes = Plain<std::uint8_t>;
    switch (kind) {
        case Kind::sum: return combine_all<Bits, Sum>;
        case Kind::avg: return average<T>;
        case Kind::product: return combine_all<Bits, Product>;
        case Kind::min: return combine_all<Plain<T>, Min>;
        case Kind::max: return combine_all<Plain<T>, Max>;
        case Kind::band: return combine_parts<Bytes, And, sizeof(T)>;
        case Kind::bor: return combine_parts<Bytes, Or, sizeof(T)>;
        case Kind::bxor: return combine_parts<Bytes, Xor, sizeof(T)>;
        default: return nullptr;
    }
}

CombineKernel of_bool(Kind kind) {
    switch (kind) {
        case Kind::sum:
        case Kind::max:
        case Kind::bor: return combine_all<Bool, Or>;
        case Kind::product:
        case Kind::min:
        case Kind::band: return combine_all<Bool, And>;
        case Kind::bxor: return combine_all<Bool, Xor>;
        default: return nullptr;
    }
}

CombineKernel find_integer(Kind kind, DType dtype) {
    switch (dtype) {
        case DType::boolean: return of_bool(kind);
        case DType::uint8: return of_integer<std::uint8_t>(kind);
        case DType::uint16: return of_integer<std::uint16_t>(kind);
        case DType::uint32: return of_integer<std::uint32_t>(kind);
        case DType::uint64: return of_integer<std::uint64_t>(kind);
        case DType::int8: return of_integer<std::int8_t>(kind);
        case DType::int16: return of_integer<std::int16_t>(kind);
        case DType::int32: return of_integer<std::int32_t>(kind);
        case DType::int64: return of_integer<std::int64_t>(kind);
        default: return nullptr;
    }
}

}  // namespace HWY_NAMESPACE
}  // namespace tutti::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::kernels {

HWY_EXPORT(find_integer);

CombineKernel find_integer_kernel(ReduceOp::Kind kind, DType dtype) noexcept {
    return HWY_DYNAMIC_DISPATCH(find_integer)(kind, dtype);
}

}  // namespace tutti::kernels
#endif
