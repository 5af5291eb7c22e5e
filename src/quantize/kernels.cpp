// The kernels, for each CPU target: one block, any length, any address.
//
// The loops take elements in steps of two vectors, as everywhere (reduce/codecs-inl.hpp). They stage the rest through
// small buffers and treat it as one more step, so every element sees the same arithmetic wherever it stands.
#include "reduce/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quantize/kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "quantize/kernels.hpp"

#include "core/assert.hpp"
#include "reduce/codecs-inl.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace tutti::quantize {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using namespace kernels::HWY_NAMESPACE;  // NOLINT(google-build-using-namespace): the codecs, for this target

using FloatPlain = kernels::HWY_NAMESPACE::Plain<float>;
using SignedByteD = hn::Rebind<std::int8_t, FloatD>;  // as many bytes as a float vector has elements
constexpr std::size_t step = 2 * float_lanes;

HWY_INLINE FloatV set(float value) {
    return hn::Set(FloatD(), value);
}

// Calls body(bytes of one step, first element) for whole steps, and once more for a copy of the rest, padded with
// zeros.
template <class Codec, class F>
HWY_INLINE void for_each_step(const std::byte* from, std::size_t count, F body) {
    constexpr std::size_t bytes = sizeof(typename Codec::Stored);
    std::size_t i = 0;
    for (; i + step <= count; i += step) body(from + i * bytes, i);
    if (i < count) {
        alignas(64) std::byte staged[step * bytes] = {};
        std::memcpy(staged, from + i * bytes, (count - i) * bytes);
        body(staged, i);
    }
}

// ---- Magnitudes

// In float32, or, for types of 16 bits, by their own bits: they order as numbers do, too.
template <class Codec>
std::uint32_t magnitude(const void* from, std::size_t count) {
    TUTTI_ASSERT(count > 0);
    using Bits = std::make_signed_t<hwy::MakeUnsigned<typename Codec::Stored>>;
    const hn::ScalableTag<Bits> d;
    constexpr std::size_t lanes = hn::MaxLanes(d);
    const auto positive = hn::Set(d, std::numeric_limits<Bits>::max());
    const auto* bits = static_cast<const std::byte*>(from);
    const auto load = [&](std::size_t i)
                          HWY_ATTR { return hn::And(hn::LoadU(d, elements<Bits>(bits + i * sizeof(Bits))), positive); };
    auto a = hn::Zero(d), b = a;
    std::size_t i = 0;
    for (; i + 2 * lanes <= count; i += 2 * lanes) {
        a = hn::Max(a, load(i));
        b = hn::Max(b, load(i + lanes));
    }
    if (i < count) {
        alignas(64) Bits staged[2 * lanes] = {};
        std::memcpy(staged, bits + i * sizeof(Bits), (count - i) * sizeof(Bits));
        a = hn::Max(a, hn::And(hn::Load(d, staged), positive));
        b = hn::Max(b, hn::And(hn::Load(d, staged + lanes), positive));
    }
    alignas(64) std::byte largest_element[step * sizeof(Bits)] = {};
    const Bits most = hn::GetLane(hn::MaxOfLanes(d, hn::Max(a, b)));
    std::memcpy(largest_element, &most, sizeof most);
    FloatV x, y;
    Codec::load_in_order(largest_element, x, y);
    return hn::GetLane(bits_of(x));
}

// ---- Whole codes

HWY_INLINE hn::Vec<IntD> nearest(FloatV v) {
    // |v| is small: this leaves out hn::NearestInt's care for others.
#if HWY_TARGET == HWY_AVX2
    return hn::Vec<IntD>{_mm256_cvtps_epi32(v.raw)};
#elif HWY_TARGET == HWY_AVX3
    return hn::Vec<IntD>{_mm512_cvtps_epi32(v.raw)};
#else
    return hn::NearestInt(v);
#endif
}

// Four vectors of whole numbers between -128 and 127, as bytes, in order.
HWY_INLINE void store_bytes(hn::Vec<IntD> a, hn::Vec<IntD> b, hn::Vec<IntD> c, hn::Vec<IntD> d, std::int8_t* to) {
#if HWY_TARGET == HWY_AVX2
    const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(a.raw, b.raw), _mm256_packs_epi32(c.raw, d.raw));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_permutevar8x32_epi32(bytes, order));
#elif HWY_TARGET == HWY_AVX3
    const __m512i bytes = _mm512_packs_epi16(_mm512_packs_epi32(a.raw, b.raw), _mm512_packs_epi32(c.raw, d.raw));
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    _mm512_storeu_si512(to, _mm512_permutexvar_epi32(order, bytes));
#else
    for (const hn::Vec<IntD> v : {a, b, c, d}) {
        hn::StoreU(hn::DemoteTo(SignedByteD(), v), SignedByteD(), to);
        to += float_lanes;
    }
#endif
}

// From 0 to 1, 1 excluded.
HWY_INLINE FloatV chance(const std::uint32_t* words) {
    const BitsV bits = hn::ShiftRight<8>(hn::LoadU(BitsD(), words));
    return hn::Mul(hn::ConvertTo(FloatD(), hn::BitCast(IntD(), bits)), set(0x1p-24F));
}

template <class Codec, Reach reach, bool Chance>
HWY_INLINE void to_whole_as(const void* from, std::size_t count, float scale, float most, const std::uint32_t* words,
                            std::int8_t* to) {
    const FloatV inverse = set(1 / scale), above = set(most), below = set(-most);
    [[maybe_unused]] const auto bounded = [&](FloatV v) HWY_ATTR { return hn::Min(hn::Max(v, below), above); };
    const auto code = [&](FloatV v, std::size_t i) HWY_ATTR {
        FloatV quotient = hn::Mul(v, inverse);
        if constexpr (reach == Reach::beyond) quotient = bounded(quotient);
        if constexpr (Chance) quotient = bounded(hn::Floor(hn::Add(quotient, chance(words + i))));
        return nearest(quotient);
    };
    constexpr std::size_t bytes = sizeof(typename Codec::Stored);
    const auto two_steps = [&](const std::byte* p, std::size_t i, std::int8_t* target) HWY_ATTR {
        FloatV a, b, c, d;
        Codec::load_in_order(p, a, b);
        Codec::load_in_order(p + step * bytes, c, d);
        store_bytes(code(a, i), code(b, i + float_lanes), code(c, i + step), code(d, i + step + float_lanes), target);
    };
    const auto* source = static_cast<const std::byte*>(from);
    std::size_t i = 0;
    for (; i + 2 * step <= count; i += 2 * step) two_steps(source + i * bytes, i, to + i);
    if (i < count) {
        alignas(64) std::byte staged[2 * step * bytes] = {};
        alignas(64) std::int8_t codes[2 * step];
        std::memcpy(staged, source + i * bytes, (count - i) * bytes);
        two_steps(staged, i, codes);
        std::memcpy(to + i, codes, count - i);
    }
}

template <class Codec>
void to_whole(const void* from, std::size_t count, float scale, float most, Reach reach, const std::uint32_t* words,
              std::int8_t* to) {
    TUTTI_ASSERT(scale > 0);
    if (words != nullptr)
        to_whole_as<Codec, Reach::beyond, true>(from, count, scale, most, words, to);
    else if (reach == Reach::beyond)
        to_whole_as<Codec, Reach::beyond, false>(from, count, scale, most, words, to);
    else
        to_whole_as<Codec, Reach::within, false>(from, count, scale, most, words, to);
}

template <class Codec>
void encode_int8(const void* from, std::size_t count, float scale, Reach reach, const std::uint32_t* words,
                 std::byte* codes) {
    to_whole<Codec>(from, count, scale, largest(Format::int8), reach, words, reinterpret_cast<std::int8_t*>(codes));
}

// Halves of bytes: bytes first, then two into one.
template <class Codec>
void encode_int4(const void* from, std::size_t count, float scale, Reach reach, const std::uint32_t* words,
                 std::byte* codes) {
    TUTTI_ASSERT(count <= piece);
    alignas(64) std::int8_t bytes[piece + 1];
    to_whole<Codec>(from, count, scale, largest(Format::int4), reach, words, bytes);
    bytes[count] = 0;
    for (std::size_t i = 0; i < code_bytes(Format::int4, count); ++i)
        codes[i] = static_cast<std::byte>((bytes[2 * i] & 15) | (bytes[2 * i + 1] & 15) << 4);
}

struct Int8Codes {
    static const std::int8_t* bytes(const std::byte* codes, std::size_t /*count*/, std::int8_t* /*room*/) {
        return reinterpret_cast<const std::int8_t*>(codes);
    }
};
struct Int4Codes {
    static const std::int8_t* bytes(const std::byte* codes, std::size_t count, std::int8_t* room) {
        for (std::size_t i = 0; i < code_bytes(Format::int4, count); ++i) {
            const auto both = static_cast<unsigned>(codes[i]);
            room[2 * i] = static_cast<std::int8_t>(static_cast<int>((both & 15U) ^ 8U) - 8);
            room[2 * i + 1] = static_cast<std::int8_t>(static_cast<int>((both >> 4) ^ 8U) - 8);
        }
        return room;
    }
};

// As a codec of the reduce room, for read-only data.
struct WholeCodec {
    using Stored = std::int8_t;
    static HWY_INLINE hn::Vec<IntD> whole(const std::byte* p) {
        return hn::PromoteTo(IntD(), hn::LoadU(SignedByteD(), elements<std::int8_t>(p)));
    }
    static HWY_INLINE void load_in_order(const std::byte* p, FloatV& a, FloatV& b) {
        a = hn::ConvertTo(FloatD(), whole(p));
        b = hn::ConvertTo(FloatD(), whole(p + float_lanes));
    }
};

// ---- Floating-point codes

// Rounded to M bits of mantissa, or to a multiple of the format's smallest number, up by chance. |v| is at most the
// format's largest number, and so is the result.
template <int E, int M>
HWY_INLINE FloatV by_chance(FloatV v, const std::uint32_t* words) {
    constexpr int dropped = 23 - M;
    constexpr int bias = (1 << (E - 1)) - 1;
    constexpr std::uint32_t mask = (1U << dropped) - 1;
    const BitsV magnitude_bits = hn::And(bits_of(v), constant(0x7fffffff));
    const BitsV noise = hn::ShiftRight<32 - dropped>(hn::LoadU(BitsD(), words));
    const BitsV normal = hn::And(hn::Add(magnitude_bits, noise), constant(~mask));
    // Below the smallest normal number: the same with a fixed step.
    const float step_size = 1.0F / static_cast<float>(1U << (bias - 1 + M));
    const FloatV units =
        hn::Floor(hn::Add(hn::Mul(hn::BitCast(FloatD(), magnitude_bits), set(1 / step_size)), chance(words)));
    const BitsV subnormal = bits_of(hn::Mul(units, set(step_size)));
    constexpr std::uint32_t first_normal = static_cast<std::uint32_t>(128 - bias) << 23;
    const BitsV result = hn::IfThenElse(less(magnitude_bits, constant(first_normal)), subnormal, normal);
    return hn::CopySign(hn::BitCast(FloatD(), result), v);
}

template <class Codec, class Target, Format F, int E, int M>
void encode_float8(const void* from, std::size_t count, float scale, Reach /*reach*/, const std::uint32_t* words,
                   std::byte* codes) {
    TUTTI_ASSERT(scale > 0 && count <= piece);
    const FloatV inverse = set(1 / scale), above = set(largest(F)), below = set(-largest(F));
    const auto code = [&](FloatV v, std::size_t i) HWY_ATTR {
        const FloatV bounded = hn::Min(hn::Max(hn::Mul(v, inverse), below), above);
        return words == nullptr ? bounded : by_chance<E, M>(bounded, words + i);
    };
    for_each_step<Codec>(static_cast<const std::byte*>(from), count, [&](const std::byte* p, std::size_t i) HWY_ATTR {
        FloatV a, b;
        Codec::load_in_order(p, a, b);
        a = code(a, i);
        b = code(b, i + float_lanes);
        if (i + step <= count) {
            Target::store_in_order(codes + i, a, b);
        } else {
            alignas(64) std::byte staged[step];
            Target::store_in_order(staged, a, b);
            std::memcpy(codes + i, staged, count - i);
        }
    });
}

// ---- Back

// Stores float32 as it is, or rounded to a type of 16 bits.
template <class Target>
HWY_INLINE void store(std::byte* to, std::size_t i, std::size_t count, FloatV a, FloatV b) {
    constexpr std::size_t bytes = sizeof(typename Target::Stored);
    if (i + step <= count) {
        Target::store_in_order(to + i * bytes, a, b);
    } else {
        alignas(64) std::byte staged[step * bytes];
        Target::store_in_order(staged, a, b);
        std::memcpy(to + i * bytes, staged, (count - i) * bytes);
    }
}

// Stores code × scale, or adds it to or subtracts it from the present values.
template <class Target, Into into>
HWY_INLINE void put(std::byte* to, std::size_t i, std::size_t count, FloatV a, FloatV b) {
    if constexpr (into != Into::fresh) {
        static_assert(std::is_same_v<Target, FloatPlain>);
        FloatV x, y;
        if (i + step <= count) {
            FloatPlain::load(to + i * sizeof(float), x, y);
        } else {
            alignas(64) std::byte staged[step * sizeof(float)] = {};
            std::memcpy(staged, to + i * sizeof(float), (count - i) * sizeof(float));
            FloatPlain::load(staged, x, y);
        }
        a = into == Into::sum ? hn::Add(x, a) : hn::Sub(x, a);
        b = into == Into::sum ? hn::Add(y, b) : hn::Sub(y, b);
    }
    store<Target>(to, i, count, a, b);
}

template <class Codec, class Target, Into into>
HWY_INLINE void decode_with(const std::byte* codes, std::size_t count, float scale, void* to) {
    const FloatV by = set(scale);
    for_each_step<Codec>(codes, count, [&](const std::byte* p, std::size_t i) HWY_ATTR {
        FloatV a, b;
        Codec::load_in_order(p, a, b);
        put<Target, into>(static_cast<std::byte*>(to), i, count, hn::Mul(a, by), hn::Mul(b, by));
    });
}
template <class Codes, class Target, Into into>
void decode_whole(const std::byte* codes, std::size_t count, float scale, void* to) {
    TUTTI_ASSERT(count <= piece);
    alignas(64) std::int8_t room[piece + 1];
    decode_with<WholeCodec, Target, into>(reinterpret_cast<const std::byte*>(Codes::bytes(codes, count, room)), count,
                                          scale, to);
}
template <class Codec, class Target, Into into>
void decode_float8(const std::byte* codes, std::size_t count, float scale, void* to) {
    decode_with<Codec, Target, into>(codes, count, scale, to);
}

template <class Codes>
void sum_codes(const std::byte* codes, std::size_t count, std::int32_t* sums) {
    TUTTI_ASSERT(count <= piece);
    alignas(64) std::int8_t room[piece + 1];
    const auto* bytes = reinterpret_cast<const std::byte*>(Codes::bytes(codes, count, room));
    for_each_step<WholeCodec>(bytes, count, [&](const std::byte* p, std::size_t i) HWY_ATTR {
        const IntD d;
        const auto a = WholeCodec::whole(p), b = WholeCodec::whole(p + float_lanes);
        if (i + step <= count) {
            hn::StoreU(hn::Add(hn::LoadU(d, sums + i), a), d, sums + i);
            hn::StoreU(hn::Add(hn::LoadU(d, sums + i + float_lanes), b), d, sums + i + float_lanes);
        } else {
            for (std::size_t k = i; k < count; ++k)
                sums[k] += static_cast<std::int32_t>(elements<std::int8_t>(p)[k - i]);
        }
    });
}

// ---- Chance

// Philox4x32-10 of several counters side by side: one in each lane of 64 bits, of which words use the lower half.
void philox(const Noise& noise, std::size_t count, std::uint32_t* words) {
    TUTTI_ASSERT(count == 0 || words != nullptr);
    const hn::ScalableTag<std::uint64_t> d;
    constexpr std::size_t counters = hn::MaxLanes(d);
    const auto low = hn::Set(d, std::uint64_t{0xffffffff});
    const auto product = [&](hn::Vec<decltype(d)> a, std::uint64_t by) HWY_ATTR {
#if TUTTI_HALF_IN_HARDWARE
        const hn::Repartition<std::uint32_t, decltype(d)> halves;
        return hn::MulEven(hn::BitCast(halves, a), hn::BitCast(halves, hn::Set(d, by)));
#else  // vectors of one element
        alignas(64) std::uint64_t lanes[counters];
        hn::Store(a, d, lanes);
        for (std::uint64_t& lane : lanes) lane *= by;
        return hn::Load(d, lanes);
#endif
    };
    std::size_t skipped = noise.first % 4;  // words of the first counter
    std::uint64_t counter = noise.first / 4;
    for (std::size_t done = 0; done < count; counter += counters) {
        const auto numbers = hn::Add(hn::Set(d, counter), hn::Iota(d, 0));
        auto x0 = hn::And(numbers, low), x1 = hn::ShiftRight<32>(numbers);
        auto x2 = hn::Set(d, noise.stream & 0xffffffff), x3 = hn::Set(d, noise.stream >> 32);
        auto key0 = static_cast<std::uint32_t>(noise.key), key1 = static_cast<std::uint32_t>(noise.key >> 32);
        for (int round = 0; round < 10; ++round) {
            const auto a = product(x0, 0xD2511F53), b = product(x2, 0xCD9E8D57);
            x0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(b), x1), hn::Set(d, std::uint64_t{key0}));
            x2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(a), x3), hn::Set(d, std::uint64_t{key1}));
            x1 = hn::And(b, low);
            x3 = hn::And(a, low);
            key0 += 0x9E3779B9;
            key1 += 0xBB67AE85;
        }
        alignas(64) std::uint64_t pairs[2 * counters];
        hn::StoreInterleaved2(hn::Or(x0, hn::ShiftLeft<32>(x1)), hn::Or(x2, hn::ShiftLeft<32>(x3)), d, pairs);
        const std::size_t taken = std::min(4 * counters - skipped, count - done);
        std::memcpy(words + done, reinterpret_cast<const std::uint32_t*>(pairs) + skipped, taken * sizeof *words);
        done += taken;
        TUTTI_ASSERT(done <= count);
        skipped = 0;
    }
}

RandomKernel find_random() {
    return philox;
}

// ---- Tables

template <template <class> class F>
auto of_source(DType from) -> decltype(F<FloatPlain>::kernel()) {
    switch (from) {
        case DType::float32: return F<FloatPlain>::kernel();
        case DType::float16: return F<Half>::kernel();
        case DType::bfloat16: return F<BFloat>::kernel();
        default: return nullptr;
    }
}

template <class Codec>
struct MagnitudeOf {
    static MagnitudeKernel kernel() { return magnitude<Codec>; }
};
template <class Codec>
struct Int8Of {
    static EncodeKernel kernel() { return encode_int8<Codec>; }
};
template <class Codec>
struct Int4Of {
    static EncodeKernel kernel() { return encode_int4<Codec>; }
};
template <class Codec>
struct E4M3Of {
    static EncodeKernel kernel() { return encode_float8<Codec, E4M3, Format::float8_e4m3fn, 4, 3>; }
};
template <class Codec>
struct E5M2Of {
    static EncodeKernel kernel() { return encode_float8<Codec, E5M2, Format::float8_e5m2, 5, 2>; }
};

MagnitudeKernel find_magnitude(DType from) {
    return of_source<MagnitudeOf>(from);
}
EncodeKernel find_encode(Format format, DType from) {
    switch (format) {
        case Format::int8: return of_source<Int8Of>(from);
        case Format::int4: return of_source<Int4Of>(from);
        case Format::float8_e4m3fn: return of_source<E4M3Of>(from);
        case Format::float8_e5m2: return of_source<E5M2Of>(from);
    }
    return nullptr;
}

template <class Target, Into into>
DecodeKernel decode_to(Format format) {
    switch (format) {
        case Format::int8: return decode_whole<Int8Codes, Target, into>;
        case Format::int4: return decode_whole<Int4Codes, Target, into>;
        case Format::float8_e4m3fn: return decode_float8<E4M3, Target, into>;
        case Format::float8_e5m2: return decode_float8<E5M2, Target, into>;
    }
    return nullptr;
}
DecodeKernel find_decode(Format format, DType to) {
    switch (to) {
        case DType::float32: return decode_to<FloatPlain, Into::fresh>(format);
        case DType::float16: return decode_to<Half, Into::fresh>(format);
        case DType::bfloat16: return decode_to<BFloat, Into::fresh>(format);
        default: return nullptr;
    }
}
DecodeKernel find_add(Format format, Into into) {
    switch (into) {
        case Into::fresh: return decode_to<FloatPlain, Into::fresh>(format);
        case Into::sum: return decode_to<FloatPlain, Into::sum>(format);
        case Into::difference: return decode_to<FloatPlain, Into::difference>(format);
    }
    return nullptr;
}
AddCodesKernel find_add_codes(Format format) {
    switch (format) {
        case Format::int8: return sum_codes<Int8Codes>;
        case Format::int4: return sum_codes<Int4Codes>;
        default: return nullptr;
    }
}

}  // namespace HWY_NAMESPACE
}  // namespace tutti::quantize
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::quantize {

HWY_EXPORT(find_magnitude);
HWY_EXPORT(find_encode);
HWY_EXPORT(find_decode);
HWY_EXPORT(find_add);
HWY_EXPORT(find_add_codes);
HWY_EXPORT(find_random);

MagnitudeKernel find_magnitude_kernel(DType from) noexcept {
    return HWY_DYNAMIC_DISPATCH(find_magnitude)(from);
}
EncodeKernel find_encode_kernel(Format format, DType from) noexcept {
    return HWY_DYNAMIC_DISPATCH(find_encode)(format, from);
}
DecodeKernel find_decode_kernel(Format format, DType to) noexcept {
    return HWY_DYNAMIC_DISPATCH(find_decode)(format, to);
}
DecodeKernel find_add_kernel(Format format, Into into) noexcept {
    return HWY_DYNAMIC_DISPATCH(find_add)(format, into);
}
AddCodesKernel find_add_codes_kernel(Format format) noexcept {
    return HWY_DYNAMIC_DISPATCH(find_add_codes)(format);
}
RandomKernel find_random_kernel() noexcept {
    return HWY_DYNAMIC_DISPATCH(find_random)();
}

}  // namespace tutti::quantize
#endif
