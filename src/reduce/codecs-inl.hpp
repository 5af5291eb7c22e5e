// How each element type is loaded into vectors of the type it is accumulated in, and stored back. Included once for
// each CPU target.
//
// A codec moves two vectors at a time, a "step". Inside a step a codec may use any order of elements (for bfloat16 even
// and odd elements are apart, which needs no shuffles); load_in_order and store_in_order keep the order. Pointers are
// bytes: elements may lie at any address.
#if defined(TUTTI_REDUCE_CODECS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_REDUCE_CODECS_INL_HPP
#undef TUTTI_REDUCE_CODECS_INL_HPP
#else
#define TUTTI_REDUCE_CODECS_INL_HPP
#endif

#include <hwy/highway.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#undef TUTTI_HALF_IN_HARDWARE
#if (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2) || (HWY_ARCH_ARM_A64 && HWY_TARGET == HWY_NEON)
#define TUTTI_HALF_IN_HARDWARE 1
#else
#define TUTTI_HALF_IN_HARDWARE 0
#endif

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class T>
HWY_INLINE const T* elements(const std::byte* p) {
    return reinterpret_cast<const T*>(p);
}
template <class T>
HWY_INLINE T* elements(std::byte* p) {
    return reinterpret_cast<T*>(p);
}

// ---- types that are accumulated as they are

template <class T>
struct Plain {
    using Stored = T;
    using Value = T;
    using D = hn::ScalableTag<T>;
    using V = hn::Vec<D>;
    static constexpr std::size_t vector_bytes = hn::MaxLanes(D()) * sizeof(T);
    static constexpr bool can_stream = true;

    static HWY_INLINE void load(const std::byte* p, V& a, V& b) {
        a = hn::LoadU(D(), elements<T>(p));
        b = hn::LoadU(D(), elements<T>(p + vector_bytes));
    }
    static HWY_INLINE void store(std::byte* p, V a, V b) {
        hn::StoreU(a, D(), elements<T>(p));
        hn::StoreU(b, D(), elements<T>(p + vector_bytes));
    }
    static HWY_INLINE void stream(std::byte* p, V a, V b) {
        hn::Stream(a, D(), elements<T>(p));
        hn::Stream(b, D(), elements<T>(p + vector_bytes));
    }
    static HWY_INLINE void load_in_order(const std::byte* p, V& a, V& b) { load(p, a, b); }
    static HWY_INLINE void store_in_order(std::byte* p, V a, V b) { store(p, a, b); }
};

// Any byte but 0 is true; results are 0 or 1.
struct Bool : Plain<std::uint8_t> {
    static HWY_INLINE void load(const std::byte* p, V& a, V& b) {
        Plain::load(p, a, b);
        a = hn::Min(a, hn::Set(D(), std::uint8_t{1}));
        b = hn::Min(b, hn::Set(D(), std::uint8_t{1}));
    }
};

// ---- types that are accumulated in float32

using FloatD = hn::ScalableTag<float>;
using FloatV = hn::Vec<FloatD>;
using BitsD = hn::RebindToUnsigned<FloatD>;
using BitsV = hn::Vec<BitsD>;
using IntD = hn::RebindToSigned<FloatD>;
using ShortD = hn::Rebind<std::uint16_t, FloatD>;  // as many 16-bit elements as a float vector has
using ByteD = hn::Rebind<std::uint8_t, FloatD>;
constexpr std::size_t float_lanes = hn::MaxLanes(FloatD());

HWY_INLINE BitsV bits_of(FloatV v) {
    return hn::BitCast(BitsD(), v);
}
HWY_INLINE BitsV constant(std::uint32_t bits) {
    return hn::Set(BitsD(), bits);
}
// All values compared are below 2^31; signed comparisons are cheaper.
HWY_INLINE auto less(BitsV a, BitsV b) {
    return hn::RebindMask(BitsD(), hn::Lt(hn::BitCast(IntD(), a), hn::BitCast(IntD(), b)));
}

struct BFloat {
    using Stored = std::uint16_t;
    using Value = float;
    using D = FloatD;
    using V = FloatV;
    static constexpr bool can_stream = true;

    // The rounded value in the upper half of each lane.
    static HWY_INLINE BitsV rounded(V v) {
        const BitsV bits = bits_of(v);
        const BitsV odd = hn::And(hn::ShiftRight<16>(bits), constant(1));
        const BitsV nearest = hn::Add(hn::Add(bits, constant(0x7fff)), odd);
        return hn::IfThenElse(hn::RebindMask(BitsD(), hn::IsNaN(v)), hn::Or(bits, constant(0x400000)), nearest);
    }
    static HWY_INLINE void load_in_order(const std::byte* p, V& a, V& b) {
        const auto low = hn::PromoteTo(BitsD(), hn::LoadU(ShortD(), elements<Stored>(p)));
        const auto high = hn::PromoteTo(BitsD(), hn::LoadU(ShortD(), elements<Stored>(p + 2 * float_lanes)));
        a = hn::BitCast(D(), hn::ShiftLeft<16>(low));
        b = hn::BitCast(D(), hn::ShiftLeft<16>(high));
    }
    static HWY_INLINE void store_in_order(std::byte* p, V a, V b) {
        const auto low = hn::BitCast(IntD(), hn::ShiftRight<16>(rounded(a)));
        const auto high = hn::BitCast(IntD(), hn::ShiftRight<16>(rounded(b)));
        hn::StoreU(hn::DemoteTo(ShortD(), low), ShortD(), elements<Stored>(p));
        hn::StoreU(hn::DemoteTo(ShortD(), high), ShortD(), elements<Stored>(p + 2 * float_lanes));
    }
#if HWY_TARGET == HWY_SCALAR
    static HWY_INLINE void load(const std::byte* p, V& a, V& b) {
        load_in_order(p, a, b);
    }
    static HWY_INLINE void store(std::byte* p, V a, V b) {
        store_in_order(p, a, b);
    }
    static HWY_INLINE void stream(std::byte* p, V a, V b) {
        store_in_order(p, a, b);
    }
#else
    // A vector of pairs: even elements are the lower halves of 32-bit lanes, odd ones the upper halves.
    using PairD = hn::Repartition<Stored, FloatD>;
    static HWY_INLINE void load(const std::byte* p, V& even, V& odd) {
        const BitsV pairs = hn::BitCast(BitsD(), hn::LoadU(PairD(), elements<Stored>(p)));
        even = hn::BitCast(D(), hn::ShiftLeft<16>(pairs));
        odd = hn::BitCast(D(), hn::And(pairs, constant(0xffff0000U)));
    }
    static HWY_INLINE auto pairs(V even, V odd) {
        return hn::BitCast(PairD(),
                           hn::Or(hn::ShiftRight<16>(rounded(even)), hn::And(rounded(odd), constant(0xffff0000U))));
    }
    static HWY_INLINE void store(std::byte* p, V even, V odd) {
        hn::StoreU(pairs(even, odd), PairD(), elements<Stored>(p));
    }
    static HWY_INLINE void stream(std::byte* p, V even, V odd) {
        hn::Stream(pairs(even, odd), PairD(), elements<Stored>(p));
    }
#endif
};

#if HWY_TARGET == HWY_AVX3
// Rounds by the CPU's own instruction (AVX512_BF16), 32 numbers at once; vectors with subnormal numbers, which the
// instruction takes for zero, use the code above. The instruction is named directly, since the target does not promise
// it: callers of this codec have checked for it.
struct BFloatByInstruction : BFloat {
    // Elements of `low`, then those of `high`.
    static HWY_INLINE hn::Vec<PairD> in_order(V low, V high) {
        hn::Vec<PairD> both;
        asm("vcvtne2ps2bf16 %2, %1, %0" : "=v"(both.raw) : "v"(high.raw), "v"(low.raw));
        return both;
    }
    static HWY_INLINE bool any_subnormal(V a, V b) {
        constexpr int subnormal = 0x20;
        const __mmask16 in_a = _mm512_fpclass_ps_mask(a.raw, subnormal),
                        in_b = _mm512_fpclass_ps_mask(b.raw, subnormal);
        return HWY_UNLIKELY(_kortestz_mask16_u8(in_a, in_b) == 0);
    }
    static HWY_INLINE hn::Vec<PairD> pairs(V even, V odd) {
        alignas(64) static constexpr std::uint16_t pairing[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                                  21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                                  11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
        if (any_subnormal(even, odd)) return BFloat::pairs(even, odd);
        return {_mm512_permutexvar_epi16(_mm512_load_si512(pairing), in_order(even, odd).raw)};
    }
    static HWY_INLINE void store(std::byte* p, V even, V odd) {
        hn::StoreU(pairs(even, odd), PairD(), elements<Stored>(p));
    }
    static HWY_INLINE void stream(std::byte* p, V even, V odd) {
        hn::Stream(pairs(even, odd), PairD(), elements<Stored>(p));
    }
    static HWY_INLINE void store_in_order(std::byte* p, V a, V b) {
        if (any_subnormal(a, b)) return BFloat::store_in_order(p, a, b);
        hn::StoreU(in_order(a, b), PairD(), elements<Stored>(p));
    }
};
#endif

// IEEE binary16 → float32, exact; signalling NaN become quiet.
HWY_INLINE FloatV from_half(hn::Vec<ShortD> half) {
#if TUTTI_HALF_IN_HARDWARE
    return hn::PromoteTo(FloatD(), hn::BitCast(hn::Rebind<hwy::float16_t, FloatD>(), half));
#else
    const BitsV bits = hn::PromoteTo(BitsD(), half);
    const BitsV sign = hn::ShiftLeft<16>(hn::And(bits, constant(0x8000)));
    const BitsV magnitude = hn::And(bits, constant(0x7fff));
    const BitsV shifted = hn::ShiftLeft<13>(magnitude);
    const BitsV normal = hn::Add(shifted, constant(112U << 23));
    const FloatV count = hn::ConvertTo(FloatD(), hn::BitCast(IntD(), magnitude));
    const BitsV subnormal = bits_of(hn::Mul(count, hn::Set(FloatD(), 0x1p-24F)));
    const BitsV quiet = hn::IfThenElseZero(less(constant(0x7c00), magnitude), constant(0x400000));
    const BitsV special = hn::Or(hn::Or(shifted, constant(0x7f800000)), quiet);
    const BitsV finite = hn::IfThenElse(less(magnitude, constant(0x0400)), subnormal, normal);
    return hn::BitCast(FloatD(), hn::Or(sign, hn::IfThenElse(less(magnitude, constant(0x7c00)), finite, special)));
#endif
}

// float32 → a format with E exponent and M mantissa bits in the low bits of each lane, rounded to nearest even.
template <int E, int M, bool HasInfinity>
HWY_INLINE BitsV narrow(FloatV v) {
    constexpr std::uint32_t bias = (1U << (E - 1)) - 1;
    constexpr std::uint32_t all_ones = (1U << (E + M)) - 1;
    constexpr std::uint32_t infinity = ((1U << E) - 1) << M;
    constexpr std::uint32_t overflow = HasInfinity ? infinity : all_ones;
    constexpr int dropped = 23 - M;
    const BitsV bits = bits_of(v);
    const BitsV sign = hn::And(hn::ShiftRight<31 - E - M>(bits), constant(all_ones + 1));
    const BitsV magnitude = hn::And(bits, constant(0x7fffffff));
    // Subnormal results: adding this constant puts the last bit of the result at the last bit of the sum, so the
    // addition rounds.
    constexpr std::uint32_t magic = (127 - bias + dropped + 1) << 23;
    const FloatV shifted = hn::Add(hn::BitCast(FloatD(), magnitude), hn::Set(FloatD(), std::bit_cast<float>(magic)));
    const BitsV subnormal = hn::Sub(bits_of(shifted), constant(magic));
    const BitsV rebased = hn::Sub(magnitude, constant((127 - bias) << 23));
    const BitsV odd = hn::And(hn::ShiftRight<dropped>(rebased), constant(1));
    const BitsV nearest = hn::Add(hn::Add(rebased, constant((1U << (dropped - 1)) - 1)), odd);
    const BitsV normal = hn::ShiftRight<dropped>(nearest);
    const BitsV finite = hn::IfThenElse(less(magnitude, constant((128 - bias) << 23)), subnormal, normal);
    const BitsV bounded = hn::IfThenElse(less(finite, constant(overflow)), finite, constant(overflow));
    // binary16 keeps the payload of NaN, as the CPUs that convert in hardware do.
    BitsV not_a_number = constant(HasInfinity ? infinity | (1U << (M - 1)) : all_ones);
    if constexpr (M == 10) {
        not_a_number = hn::Or(not_a_number, hn::And(hn::ShiftRight<dropped>(magnitude), constant((1U << M) - 1)));
    }
    return hn::Or(sign, hn::IfThenElse(less(constant(0x7f800000), magnitude), not_a_number, bounded));
}

struct Half {
    using Stored = std::uint16_t;
    using Value = float;
    using D = FloatD;
    using V = FloatV;

    static HWY_INLINE auto to_half(V v) {
#if TUTTI_HALF_IN_HARDWARE
        return hn::BitCast(ShortD(), hn::DemoteTo(hn::Rebind<hwy::float16_t, FloatD>(), v));
#else
        return hn::DemoteTo(ShortD(), hn::BitCast(IntD(), narrow<5, 10, true>(v)));
#endif
    }
    static HWY_INLINE void load(const std::byte* p, V& a, V& b) {
        a = from_half(hn::LoadU(ShortD(), elements<Stored>(p)));
        b = from_half(hn::LoadU(ShortD(), elements<Stored>(p + 2 * float_lanes)));
    }
    static HWY_INLINE void store(std::byte* p, V a, V b) {
        hn::StoreU(to_half(a), ShortD(), elements<Stored>(p));
        hn::StoreU(to_half(b), ShortD(), elements<Stored>(p + 2 * float_lanes));
    }
#if HWY_TARGET == HWY_SCALAR
    static constexpr bool can_stream = false;
#else
    static constexpr bool can_stream = true;
    static HWY_INLINE void stream(std::byte* p, V a, V b) {
        const hn::Repartition<Stored, FloatD> whole;
        hn::Stream(hn::Combine(whole, to_half(b), to_half(a)), whole, elements<Stored>(p));
    }
#endif
    static HWY_INLINE void load_in_order(const std::byte* p, V& a, V& b) {
        load(p, a, b);
    }
    static HWY_INLINE void store_in_order(std::byte* p, V a, V b) {
        store(p, a, b);
    }
};

// Both 8-bit formats pass through binary16 (scaled, for E4M3), which holds all their values.
//
// Rounding by the CPU's additions: adding 2^(e + 23 - M) to a number of exponent e, and subtracting it again, leaves M
// bits of mantissa, rounded to nearest even. An e below the format's smallest exponent counts as the smallest, which
// rounds subnormals. The result then converts to binary16 exactly.
template <class Format, int E, int M, bool HasInfinity>
struct Float8 {
    using Stored = std::uint8_t;
    using Value = float;
    using D = FloatD;
    using V = FloatV;
    static constexpr bool can_stream = false;  // less than a vector is stored at a time

#if HWY_TARGET == HWY_SCALAR
    static HWY_INLINE void load(const std::byte* p, V& a, V& b) {
        a = from_half(Format::to_half(ShortD(), hn::PromoteTo(ShortD(), hn::LoadU(ByteD(), elements<Stored>(p)))));
        b = from_half(Format::to_half(ShortD(), hn::PromoteTo(ShortD(), hn::LoadU(ByteD(), elements<Stored>(p + 1)))));
        a = hn::Mul(a, hn::Set(D(), Format::scale));
        b = hn::Mul(b, hn::Set(D(), Format::scale));
    }
    static HWY_INLINE auto narrowed(V v) {
        return hn::DemoteTo(ByteD(), hn::BitCast(IntD(), narrow<E, M, HasInfinity>(v)));
    }
    static HWY_INLINE void store(std::byte* p, V a, V b) {
        hn::StoreU(narrowed(a), ByteD(), elements<Stored>(p));
        hn::StoreU(narrowed(b), ByteD(), elements<Stored>(p + 1));
    }
#else
    // A step fills one vector of 16-bit lanes, and half a vector of bytes.
    using WideD = hn::Repartition<std::uint16_t, FloatD>;
    using HalfBytesD = hn::Rebind<std::uint8_t, WideD>;

    static HWY_INLINE void load(const std::byte* p, V& a, V& b) {
        const auto bytes = hn::PromoteTo(WideD(), hn::LoadU(HalfBytesD(), elements<Stored>(p)));
        const auto halves = Format::to_half(WideD(), bytes);
        a = from_half(hn::LowerHalf(ShortD(), halves));
        b = from_half(hn::UpperHalf(ShortD(), halves));
        if constexpr (Format::scale != 1.0F) {
            a = hn::Mul(a, hn::Set(D(), Format::scale));
            b = hn::Mul(b, hn::Set(D(), Format::scale));
        }
    }
    // Rounded to M bits, divided by the scale, as binary16. A value that is too large stays too large; so does NaN if
    // the format does not distinguish the two.
    static HWY_INLINE auto rounded(V v) {
        constexpr std::uint32_t bias = (1U << (E - 1)) - 1;
        constexpr std::uint32_t too_large = 0x4a000000;  // 2^21; greater exponents would overflow below
        const BitsV bounded = hn::Min(hn::And(bits_of(v), constant(0x7fffffff)), constant(too_large));
        const BitsV exponent = hn::Max(hn::And(bounded, constant(0x7f800000)), constant((128 - bias) << 23));
        const V shift = hn::BitCast(D(), hn::Add(exponent, constant((23U - M) << 23)));
        V exact = hn::Sub(hn::Add(hn::BitCast(D(), bounded), shift), shift);
        if constexpr (Format::scale != 1.0F) exact = hn::Mul(exact, hn::Set(D(), 1.0F / Format::scale));
        if constexpr (HasInfinity) {
            exact = hn::IfThenElse(hn::IsNaN(v), hn::Set(D(), std::numeric_limits<float>::quiet_NaN()), exact);
        }
        return Half::to_half(hn::CopySign(exact, v));
    }
    static HWY_INLINE void store(std::byte* p, V a, V b) {
        const WideD d;
        const auto bytes = Format::from_half(d, hn::Combine(d, rounded(b), rounded(a)));
        const auto as_signed = hn::BitCast(hn::RebindToSigned<WideD>(), bytes);
        hn::StoreU(hn::DemoteTo(HalfBytesD(), as_signed), HalfBytesD(), elements<Stored>(p));
    }
#endif
    static HWY_INLINE void load_in_order(const std::byte* p, V& a, V& b) {
        load(p, a, b);
    }
    static HWY_INLINE void store_in_order(std::byte* p, V a, V b) {
        store(p, a, b);
    }
};

struct E5M2 : Float8<E5M2, 5, 2, true> {
    static constexpr float scale = 1;
    template <class D16, class V16>
    static HWY_INLINE V16 to_half(D16 /*d*/, V16 bytes) {
        return hn::ShiftLeft<8>(bytes);
    }
    template <class D16, class V16>
    static HWY_INLINE V16 from_half(D16 /*d*/, V16 half) {
        return hn::ShiftRight<8>(half);
    }
};

struct E4M3 : Float8<E4M3, 4, 3, false> {
    static constexpr float scale = 256;
    template <class D16, class V16>
    static HWY_INLINE V16 to_half(D16 d, V16 bytes) {
        const V16 sign = hn::ShiftLeft<8>(hn::And(bytes, hn::Set(d, std::uint16_t{0x80})));
        const V16 magnitude = hn::ShiftLeft<7>(hn::And(bytes, hn::Set(d, std::uint16_t{0x7f})));
        const V16 all_ones = hn::Set(d, std::uint16_t{0x7f << 7});
        const V16 nan = hn::IfThenElseZero(hn::Eq(magnitude, all_ones), hn::Set(d, std::uint16_t{0x7e00}));
        return hn::Or(hn::Or(sign, magnitude), nan);
    }
    template <class D16, class V16>
    static HWY_INLINE V16 from_half(D16 d, V16 half) {
        const V16 sign = hn::And(hn::ShiftRight<8>(half), hn::Set(d, std::uint16_t{0x80}));
        const V16 magnitude = hn::ShiftRight<7>(hn::And(half, hn::Set(d, std::uint16_t{0x7fff})));
        return hn::Or(sign, hn::Min(magnitude, hn::Set(d, std::uint16_t{0x7f})));
    }
};

}  // namespace HWY_NAMESPACE
}  // namespace tutti::kernels
HWY_AFTER_NAMESPACE();

#endif
