// The operators on vectors. Included once for each CPU target.
//
// Minimum and maximum compare and select rather than use the CPU's own instruction, so that NaN and signed zeros come
// out equally on every target.
#if defined(TUTTI_REDUCE_OPERATORS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_REDUCE_OPERATORS_INL_HPP
#undef TUTTI_REDUCE_OPERATORS_INL_HPP
#else
#define TUTTI_REDUCE_OPERATORS_INL_HPP
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

struct Sum {
    template <class D, class V>
    static HWY_INLINE V apply(D /*d*/, V a, V b) {
        return hn::Add(a, b);
    }
};

struct Product {
    template <class D, class V>
    static HWY_INLINE V apply(D d, V a, V b) {
#if HWY_TARGET != HWY_SCALAR
        if constexpr (sizeof(hn::TFromD<D>) == 1) {
            // No CPU multiplies bytes: low and high bytes separately, as 16-bit lanes.
            const hn::Repartition<std::uint16_t, D> d16;
            const auto a16 = hn::BitCast(d16, a);
            const auto b16 = hn::BitCast(d16, b);
            const auto low_byte = hn::Set(d16, std::uint16_t{0x00ff});
            const auto low = hn::And(hn::Mul(a16, b16), low_byte);
            const auto high = hn::Mul(hn::template ShiftRight<8>(a16), hn::AndNot(low_byte, b16));
            return hn::BitCast(d, hn::Or(low, high));
        } else
#endif
        {
            (void)d;
            return hn::Mul(a, b);
        }
    }
};

struct Min {
    template <class D, class V>
    static HWY_INLINE V apply(D /*d*/, V a, V b) {
        if constexpr (std::is_floating_point_v<hn::TFromD<D>>) {
            return hn::IfThenElse(hn::Or(hn::Lt(a, b), hn::IsNaN(a)), a, b);  // b where b is NaN
        } else {
            return hn::Min(a, b);
        }
    }
};

struct Max {
    template <class D, class V>
    static HWY_INLINE V apply(D /*d*/, V a, V b) {
        if constexpr (std::is_floating_point_v<hn::TFromD<D>>) {
            return hn::IfThenElse(hn::Or(hn::Gt(a, b), hn::IsNaN(a)), a, b);
        } else {
            return hn::Max(a, b);
        }
    }
};

struct And {
    template <class D, class V>
    static HWY_INLINE V apply(D /*d*/, V a, V b) {
        return hn::And(a, b);
    }
};
struct Or {
    template <class D, class V>
    static HWY_INLINE V apply(D /*d*/, V a, V b) {
        return hn::Or(a, b);
    }
};
struct Xor {
    template <class D, class V>
    static HWY_INLINE V apply(D /*d*/, V a, V b) {
        return hn::Xor(a, b);
    }
};

}  // namespace HWY_NAMESPACE
}  // namespace tutti::kernels
HWY_AFTER_NAMESPACE();

#endif
