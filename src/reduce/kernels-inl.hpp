// The kernels, compiled once for each CPU target by Highway's foreach_target (see kernels.cpp).
//
// Loops are plain and branch-free, so that the compiler vectorises them for the target; no expression is contracted,
// and every element is computed by the same operations wherever it stands, so results do not depend on the vector
// length, the alignment or the count. Low-precision types are widened block by block into float accumulators that stay
// in the first-level cache, and rounded once at the end.
// (No include guard: included once per target.)

HWY_BEFORE_NAMESPACE();
namespace tutti::reduce {
namespace HWY_NAMESPACE {

// ---- operators

struct Sum {
    template <class T>
    static T apply(T a, T b) {
        if constexpr (std::is_integral_v<T>) {
            using U = std::make_unsigned_t<T>;
            return static_cast<T>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
        } else {
            return a + b;
        }
    }
};
struct Product {
    template <class T>
    static T apply(T a, T b) {
        if constexpr (std::is_integral_v<T>) {
            return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
        } else {
            return a * b;
        }
    }
};
struct Min {
    template <class T>
    static T apply(T a, T b) {
        if constexpr (std::is_floating_point_v<T>) {
            const T less = a < b ? a : b;  // b if either is NaN
            return a != a ? a : less;
        } else {
            return a < b ? a : b;
        }
    }
};
struct Max {
    template <class T>
    static T apply(T a, T b) {
        if constexpr (std::is_floating_point_v<T>) {
            const T more = a > b ? a : b;
            return a != a ? a : more;
        } else {
            return a > b ? a : b;
        }
    }
};
struct And {
    template <class T>
    static T apply(T a, T b) {
        return static_cast<T>(a & b);
    }
};
struct Or {
    template <class T>
    static T apply(T a, T b) {
        return static_cast<T>(a | b);
    }
};
struct Xor {
    template <class T>
    static T apply(T a, T b) {
        return static_cast<T>(a ^ b);
    }
};

// ---- element types: how they are stored, and in what they are accumulated

template <class T>
struct Plain {
    using Stored = T;
    using Value = T;
    static Value widen(Stored s) { return s; }
    static Stored narrow(Value v) { return v; }
};
struct Bool {
    using Stored = std::uint8_t;
    using Value = std::uint8_t;
    static Value widen(Stored s) { return s != 0; }
    static Stored narrow(Value v) { return v; }
};
struct BFloat {
    using Stored = std::uint16_t;
    using Value = float;
    static Value widen(Stored s) { return std::bit_cast<float>(static_cast<std::uint32_t>(s) << 16); }
    static Stored narrow(Value v) {
        const auto bits = std::bit_cast<std::uint32_t>(v);
        const auto rounded = static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
        const auto quiet = static_cast<std::uint16_t>((bits >> 16) | 0x40U);
        return (bits & 0x7fffffffU) > 0x7f800000U ? quiet : rounded;
    }
};
// Formats of 16 and 8 bits with `E` exponent and `M` mantissa bits, by bit operations without branches.
template <class S, int E, int M, bool HasInfinity>
struct Small {
    using Stored = S;
    using Value = float;
    static constexpr int bias = (1 << (E - 1)) - 1;
    static constexpr std::uint32_t all_ones = (1U << (E + M)) - 1;
    static constexpr std::uint32_t infinity = ((1U << E) - 1) << M;
    static Value widen(Stored s) {
        const std::uint32_t sign = (static_cast<std::uint32_t>(s) >> (E + M)) << 31;
        const std::uint32_t magnitude = s & all_ones;
        // Scaling by a power of two turns the small format's subnormals into normal floats exactly.
        constexpr float scale = std::bit_cast<float>(static_cast<std::uint32_t>(127 + 127 - bias) << 23);
        const std::uint32_t finite = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude << (23 - M)) * scale);
        const bool special = HasInfinity ? magnitude >= infinity : magnitude == all_ones;
        const std::uint32_t payload = HasInfinity ? (magnitude & ((1U << M) - 1)) << (23 - M) : 0x400000U;
        return std::bit_cast<float>(sign | (special ? 0x7f800000U | payload : finite));
    }
    static Stored narrow(Value v) {
        const auto bits = std::bit_cast<std::uint32_t>(v);
        const std::uint32_t sign = (bits >> 31) << (E + M);
        const std::uint32_t magnitude = bits & 0x7fffffffU;
        // Subnormal results: adding a constant makes the float addition round at the right bit.
        constexpr std::uint32_t magic_bits = static_cast<std::uint32_t>(127 - bias + (23 - M) + 1) << 23;
        const std::uint32_t subnormal =
            std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + std::bit_cast<float>(magic_bits)) -
            magic_bits;
        const std::uint32_t rebased = magnitude - (static_cast<std::uint32_t>(127 - bias) << 23);
        const std::uint32_t normal = (rebased + ((1U << (23 - M - 1)) - 1) + ((rebased >> (23 - M)) & 1U)) >> (23 - M);
        const std::uint32_t smallest_normal = static_cast<std::uint32_t>(127 - bias + 1) << 23;
        const std::uint32_t finite = magnitude < smallest_normal ? subnormal : normal;
        constexpr std::uint32_t largest = HasInfinity ? infinity - 1 : all_ones - 1;
        constexpr std::uint32_t overflow = HasInfinity ? infinity : all_ones;
        const bool too_large = magnitude >= 0x7f800000U || (magnitude >= smallest_normal && normal > largest);
        const std::uint32_t bounded = too_large ? overflow : finite;
        const std::uint32_t not_a_number = HasInfinity ? infinity | (1U << (M - 1)) : all_ones;
        return static_cast<Stored>(sign | (magnitude > 0x7f800000U ? not_a_number : bounded));
    }
};
using Half = Small<std::uint16_t, 5, 10, true>;
using E4M3 = Small<std::uint8_t, 4, 3, false>;
using E5M2 = Small<std::uint8_t, 5, 2, true>;

// ---- loops

constexpr std::size_t block = 1024;  // elements; accumulators stay in the first-level cache

template <class V>
HWY_INLINE V divided(V value, std::uint64_t divisor) {
    if constexpr (std::is_integral_v<V> && std::is_signed_v<V>) {
        return static_cast<V>(static_cast<std::int64_t>(value) / static_cast<std::int64_t>(divisor));
    } else if constexpr (std::is_integral_v<V>) {
        return static_cast<V>(static_cast<std::uint64_t>(value) / divisor);
    } else {
        return value / static_cast<V>(divisor);
    }
}

// Unaligned memory: elements are loaded and stored through memcpy, which compiles to plain moves.
template <class T>
HWY_INLINE T load(const std::byte* base, std::size_t i) {
    T value;
    std::memcpy(&value, base + i * sizeof(T), sizeof(T));
    return value;
}
template <class T>
HWY_INLINE void store(std::byte* base, std::size_t i, T value) {
    std::memcpy(base + i * sizeof(T), &value, sizeof(T));
}

// N inputs of one block known at compile time: one pass, nothing in between.
template <class Type, class Op, std::size_t N>
HWY_INLINE void pass(std::byte* dst, const std::byte* const* in, std::size_t count, std::uint64_t divisor) {
    using S = typename Type::Stored;
    const std::byte* inputs[N];
    for (std::size_t k = 0; k < N; ++k) inputs[k] = in[k];
    const auto combined = [&](std::size_t i) HWY_ATTR {
        auto value = Type::widen(load<S>(inputs[0], i));
        for (std::size_t k = 1; k < N; ++k) value = Op::apply(value, Type::widen(load<S>(inputs[k], i)));
        return value;
    };
    if (divisor > 1) {
        for (std::size_t i = 0; i < count; ++i) store<S>(dst, i, Type::narrow(divided(combined(i), divisor)));
    } else {
#pragma GCC ivdep
        for (std::size_t i = 0; i < count; ++i) store<S>(dst, i, Type::narrow(combined(i)));
    }
}

template <class Type, class Op>
void run(const Call& call) {
    using S = typename Type::Stored;
    using V = typename Type::Value;
    auto* dst = static_cast<std::byte*>(call.dst);
    const std::byte* inputs[8];
    for (std::size_t at = 0; at < call.element_count; at += block) {
        const std::size_t count = std::min(block, call.element_count - at);
        const std::size_t offset = at * sizeof(S);
        if (call.input_count <= 8) {
            for (std::size_t k = 0; k < call.input_count; ++k) {
                inputs[k] = static_cast<const std::byte*>(call.inputs[k]) + offset;
            }
        }
        switch (call.input_count) {
            case 1: pass<Type, Op, 1>(dst + offset, inputs, count, call.divisor); break;
            case 2: pass<Type, Op, 2>(dst + offset, inputs, count, call.divisor); break;
            case 3: pass<Type, Op, 3>(dst + offset, inputs, count, call.divisor); break;
            case 4: pass<Type, Op, 4>(dst + offset, inputs, count, call.divisor); break;
            case 8: pass<Type, Op, 8>(dst + offset, inputs, count, call.divisor); break;
            default: {
                HWY_ALIGN V sums[block];
                const auto input = [&](std::size_t k) {
                    return static_cast<const std::byte*>(call.inputs[k]) + offset;
                };
                const std::byte* first = input(0);
                for (std::size_t i = 0; i < count; ++i) sums[i] = Type::widen(load<S>(first, i));
                for (std::size_t k = 1; k < call.input_count; ++k) {
                    const std::byte* next = input(k);
                    for (std::size_t i = 0; i < count; ++i) sums[i] = Op::apply(sums[i], Type::widen(load<S>(next, i)));
                }
                if (call.divisor > 1) {
                    for (std::size_t i = 0; i < count; ++i) sums[i] = divided(sums[i], call.divisor);
                }
                for (std::size_t i = 0; i < count; ++i) store<S>(dst + offset, i, Type::narrow(sums[i]));
            }
        }
    }
}

// A complex number is two reals to sums.
template <class Real>
void run_complex(const Call& call) {
    Call reals = call;
    reals.element_count *= 2;
    run<Plain<Real>, Sum>(reals);
}

template <class Type>
Kernel of_number(ReduceOp::Kind kind) {
    switch (kind) {
        case ReduceOp::Kind::sum:
        case ReduceOp::Kind::avg: return run<Type, Sum>;
        case ReduceOp::Kind::product: return run<Type, Product>;
        case ReduceOp::Kind::min: return run<Type, Min>;
        case ReduceOp::Kind::max: return run<Type, Max>;
        default: break;
    }
    if constexpr (std::is_integral_v<typename Type::Value>) {
        switch (kind) {
            case ReduceOp::Kind::band: return run<Type, And>;
            case ReduceOp::Kind::bor: return run<Type, Or>;
            case ReduceOp::Kind::bxor: return run<Type, Xor>;
            default: break;
        }
    }
    return nullptr;
}

Kernel of_bool(ReduceOp::Kind kind) {
    switch (kind) {
        case ReduceOp::Kind::sum:
        case ReduceOp::Kind::max:
        case ReduceOp::Kind::bor: return run<Bool, Or>;
        case ReduceOp::Kind::product:
        case ReduceOp::Kind::min:
        case ReduceOp::Kind::band: return run<Bool, And>;
        case ReduceOp::Kind::bxor: return run<Bool, Xor>;
        default: return nullptr;
    }
}

Kernel find(ReduceOp::Kind kind, DType dtype) {
    switch (dtype) {
        case DType::boolean: return of_bool(kind);
        case DType::uint8: return of_number<Plain<std::uint8_t>>(kind);
        case DType::uint16: return of_number<Plain<std::uint16_t>>(kind);
        case DType::uint32: return of_number<Plain<std::uint32_t>>(kind);
        case DType::uint64: return of_number<Plain<std::uint64_t>>(kind);
        case DType::int8: return of_number<Plain<std::int8_t>>(kind);
        case DType::int16: return of_number<Plain<std::int16_t>>(kind);
        case DType::int32: return of_number<Plain<std::int32_t>>(kind);
        case DType::int64: return of_number<Plain<std::int64_t>>(kind);
        case DType::float16: return of_number<Half>(kind);
        case DType::bfloat16: return of_number<BFloat>(kind);
        case DType::float32: return of_number<Plain<float>>(kind);
        case DType::float64: return of_number<Plain<double>>(kind);
        case DType::complex64: return kind <= ReduceOp::Kind::avg ? run_complex<float> : nullptr;
        case DType::complex128: return kind <= ReduceOp::Kind::avg ? run_complex<double> : nullptr;
        case DType::float8_e4m3fn: return of_number<E4M3>(kind);
        case DType::float8_e5m2: return of_number<E5M2>(kind);
    }
    return nullptr;
}

const char* name() {
    return hwy::TargetName(HWY_TARGET);
}

}  // namespace HWY_NAMESPACE
}  // namespace tutti::reduce
HWY_AFTER_NAMESPACE();
