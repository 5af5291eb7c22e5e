// The loops over elements, for any codec and operator. Included once for each CPU target.
//
// The loops take elements in steps of two vectors. They copy the remainder through small buffers and treat it as one
// more step, so every element gets the same arithmetic at any position: results do not depend on the vector length, the
// alignment or the count.
#if defined(TUTTI_REDUCE_LOOPS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_REDUCE_LOOPS_INL_HPP
#undef TUTTI_REDUCE_LOOPS_INL_HPP
#else
#define TUTTI_REDUCE_LOOPS_INL_HPP
#endif

#include "core/assert.hpp"
#include "reduce/codecs-inl.hpp"
#include "reduce/kernels.hpp"
#include "reduce/operators-inl.hpp"

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

constexpr std::size_t block_bytes = 8192;  // of accumulators: a quarter of a first-level cache

template <class Codec>
constexpr std::size_t step_of() {
    return 2 * hn::MaxLanes(typename Codec::D());
}

// Combines element 0 … step-1 of N inputs, from left to right.
template <class Codec, class Op, std::size_t N>
HWY_INLINE void fold(const std::byte* const* inputs, std::size_t offset, typename Codec::V& a, typename Codec::V& b) {
    const typename Codec::D d;
    Codec::load(inputs[0] + offset, a, b);
    for (std::size_t k = 1; k < N; ++k) {
        typename Codec::V c, e;
        Codec::load(inputs[k] + offset, c, e);
        a = Op::apply(d, a, c);
        b = Op::apply(d, b, e);
    }
}

template <class V>
HWY_INLINE void divide(V divisor, V& a, V& b) {
    a = hn::Div(a, divisor);
    b = hn::Div(b, divisor);
}

// Copies of the last, incomplete step of each input.
template <class Codec, std::size_t N>
struct Staged {
    using Stored = typename Codec::Stored;
    static constexpr std::size_t bytes = step_of<Codec>() * sizeof(Stored);

    HWY_INLINE Staged(const std::byte* const* from, std::size_t offset, std::size_t used) {
        TUTTI_ASSERT(used <= bytes);
        for (std::size_t k = 0; k < N; ++k) {
            std::memset(memory[k], 0, bytes);
            std::memcpy(memory[k], from[k] + offset, used);
            inputs[k] = memory[k];
        }
    }
    alignas(64) std::byte memory[N][bytes];
    const std::byte* inputs[N];
};

// Combines less than a step of N inputs, at byte `offset`.
template <class Codec, class Op, std::size_t N>
HWY_NOINLINE void partial_step(const Call& call, std::size_t offset, std::size_t used) {
    TUTTI_ASSERT(call.input_count >= N);
    TUTTI_ASSERT(offset + used <= call.element_count * sizeof(typename Codec::Stored));
    using Stored = typename Codec::Stored;
    using Value = typename Codec::Value;
    const std::byte* inputs[N];
    for (std::size_t k = 0; k < N; ++k) inputs[k] = static_cast<const std::byte*>(call.inputs[k]);
    const Staged<Codec, N> staged(inputs, offset, used);
    typename Codec::V a, b;
    fold<Codec, Op, N>(staged.inputs, 0, a, b);
    if constexpr (std::is_floating_point_v<Value>) {
        if (call.divisor > 1) divide(hn::Set(typename Codec::D(), static_cast<Value>(call.divisor)), a, b);
    }
    alignas(64) std::byte result[step_of<Codec>() * sizeof(Stored)];
    Codec::store(result, a, b);
    std::memcpy(static_cast<std::byte*>(call.dst) + offset, result, used);
}

// dst = all N inputs combined, in one pass. Only floating-point types can be divided.
template <class Codec, class Op, std::size_t N>
HWY_NOINLINE void one_pass(const Call& call) {
    TUTTI_ASSERT(call.input_count == N);
    using Stored = typename Codec::Stored;
    using Value = typename Codec::Value;
    constexpr bool may_divide = std::is_floating_point_v<Value>;
    constexpr std::size_t step_bytes = step_of<Codec>() * sizeof(Stored);
    const std::byte* inputs[N];
    for (std::size_t k = 0; k < N; ++k) inputs[k] = static_cast<const std::byte*>(call.inputs[k]);
    auto* const dst = static_cast<std::byte*>(call.dst);
    const std::size_t bytes = call.element_count * sizeof(Stored);
    const bool divides = may_divide && call.divisor > 1;
    const auto divisor = hn::Set(typename Codec::D(), static_cast<Value>(call.divisor));

    std::size_t offset = 0;
    if constexpr (Codec::can_stream) {
        constexpr std::size_t vector_bytes = hn::MaxLanes(hn::ScalableTag<std::uint8_t>());
        const std::size_t peel = (0 - reinterpret_cast<std::uintptr_t>(dst)) % vector_bytes;
        if (call.stores == Stores::streaming && peel % sizeof(Stored) == 0 && peel < bytes) {
            if (peel > 0) partial_step<Codec, Op, N>(call, 0, peel);
            for (offset = peel; offset + step_bytes <= bytes; offset += step_bytes) {
                typename Codec::V a, b;
                fold<Codec, Op, N>(inputs, offset, a, b);
                if constexpr (may_divide) {
                    if (divides) divide(divisor, a, b);
                }
                Codec::stream(dst + offset, a, b);
            }
            hwy::FlushStream();
        }
    }
    for (; offset + step_bytes <= bytes; offset += step_bytes) {
        typename Codec::V a, b;
        fold<Codec, Op, N>(inputs, offset, a, b);
        if constexpr (may_divide) {
            if (divides) divide(divisor, a, b);
        }
        Codec::store(dst + offset, a, b);
    }
    TUTTI_ASSERT(offset <= bytes && bytes - offset < step_bytes);
    if (offset < bytes) partial_step<Codec, Op, N>(call, offset, bytes - offset);
}

// sums = inputs, or sums op= inputs (First: the sums hold nothing yet). sums has room for whole steps.
template <class Codec, class Op, std::size_t N, bool First>
HWY_NOINLINE void accumulate(typename Codec::Value* sums, const void* const* all, std::size_t offset,
                             std::size_t count) {
    const std::byte* inputs[N];
    for (std::size_t k = 0; k < N; ++k) inputs[k] = static_cast<const std::byte*>(all[k]);
    using Stored = typename Codec::Stored;
    using V = typename Codec::V;
    constexpr std::size_t step = step_of<Codec>();
    const typename Codec::D d;
    const auto take = [&](typename Codec::Value* at, const std::byte* const* from, std::size_t where) HWY_ATTR {
        V a, b;
        if constexpr (First) {
            fold<Codec, Op, N>(from, where, a, b);
        } else {
            a = hn::Load(d, at);
            b = hn::Load(d, at + step / 2);
            for (std::size_t k = 0; k < N; ++k) {
                V c, e;
                Codec::load(from[k] + where, c, e);
                a = Op::apply(d, a, c);
                b = Op::apply(d, b, e);
            }
        }
        hn::Store(a, d, at);
        hn::Store(b, d, at + step / 2);
    };
    std::size_t i = 0;
    for (; i + step <= count; i += step) take(sums + i, inputs, offset + i * sizeof(Stored));
    if (i < count) {
        const Staged<Codec, N> staged(inputs, offset + i * sizeof(Stored), (count - i) * sizeof(Stored));
        take(sums + i, staged.inputs, 0);
    }
}

// dst = sums, rounded.
template <class Codec>
HWY_NOINLINE void finish(std::byte* dst, const typename Codec::Value* sums, std::size_t count, std::uint64_t divisor) {
    TUTTI_ASSERT(divisor > 0);
    using Stored = typename Codec::Stored;
    using Value = typename Codec::Value;
    constexpr std::size_t step = step_of<Codec>();
    const typename Codec::D d;
    for (std::size_t i = 0; i < count; i += step) {
        auto a = hn::Load(d, sums + i);
        auto b = hn::Load(d, sums + i + step / 2);
        if constexpr (std::is_floating_point_v<Value>) {
            if (divisor > 1) divide(hn::Set(d, static_cast<Value>(divisor)), a, b);
        }
        if (i + step <= count) {
            Codec::store(dst + i * sizeof(Stored), a, b);
        } else {
            alignas(64) std::byte result[step * sizeof(Stored)];
            Codec::store(result, a, b);
            std::memcpy(dst + i * sizeof(Stored), result, (count - i) * sizeof(Stored));
        }
    }
}

// sums = all inputs combined, four at a time, so that the sums are seldom read and written.
template <class Codec, class Op>
HWY_INLINE void accumulate_all(typename Codec::Value* sums, const Call& call, std::size_t offset, std::size_t count) {
    TUTTI_ASSERT(call.input_count >= 1);
    std::size_t k = 1;
    if (call.input_count >= 4) {
        accumulate<Codec, Op, 4, true>(sums, call.inputs, offset, count);
        k = 4;
    } else {
        accumulate<Codec, Op, 1, true>(sums, call.inputs, offset, count);
    }
    for (; k + 4 <= call.input_count; k += 4) {
        accumulate<Codec, Op, 4, false>(sums, call.inputs + k, offset, count);
    }
    TUTTI_ASSERT(k <= call.input_count && call.input_count - k < 4);
    for (; k < call.input_count; ++k) accumulate<Codec, Op, 1, false>(sums, call.inputs + k, offset, count);
}

// Any number of inputs, block after block.
template <class Codec, class Op>
HWY_NOINLINE void many_inputs(const Call& call) {
    TUTTI_ASSERT(call.input_count >= 1 && call.divisor > 0);
    using Stored = typename Codec::Stored;
    using Value = typename Codec::Value;
    constexpr std::size_t block = block_bytes / sizeof(Value);
    static_assert(block % step_of<Codec>() == 0);
    alignas(64) Value sums[block];
    for (std::size_t at = 0; at < call.element_count; at += block) {
        const std::size_t count = std::min(block, call.element_count - at);
        const std::size_t offset = at * sizeof(Stored);
        accumulate_all<Codec, Op>(sums, call, offset, count);
        finish<Codec>(static_cast<std::byte*>(call.dst) + offset, sums, count, call.divisor);
    }
}

template <class Codec, class Op>
void combine_all(const Call& call) {
    TUTTI_ASSERT(call.input_count >= 1 && call.inputs != nullptr);
    TUTTI_ASSERT(call.element_count == 0 || call.dst != nullptr);
#if HWY_TARGET != HWY_SCALAR  // the fallback is for CPUs that are slow anyway: not worth its compile time
    switch (call.input_count) {
        case 2: return one_pass<Codec, Op, 2>(call);
        case 3: return one_pass<Codec, Op, 3>(call);
        case 4: return one_pass<Codec, Op, 4>(call);
        case 8: return one_pass<Codec, Op, 8>(call);
        default: break;
    }
#endif
    many_inputs<Codec, Op>(call);
}

// Treats an element as several independent numbers: a complex number as two reals for sums, an integer as bytes for
// "and".
template <class Codec, class Op, std::size_t PerElement>
void combine_parts(const Call& call) {
    TUTTI_ASSERT(call.element_count <= SIZE_MAX / PerElement);
    Call parts = call;
    parts.element_count *= PerElement;
    combine_all<Codec, Op>(parts);
}

// dst = src * factor, in the type of accumulation.
template <class Codec, std::size_t PerElement = 1>
void scale_all(void* to, const void* from, double by, std::size_t element_count) {
    using Stored = typename Codec::Stored;
    using Value = typename Codec::Value;
    constexpr std::size_t step = step_of<Codec>();
    const typename Codec::D d;
    const auto factor = hn::Set(d, static_cast<Value>(by));
    auto* dst = static_cast<std::byte*>(to);
    const auto* src = static_cast<const std::byte*>(from);
    const auto take = [&](std::byte* target, const std::byte* source) HWY_ATTR {
        typename Codec::V a, b;
        Codec::load_in_order(source, a, b);
        Plain<Value>::store(target, hn::Mul(a, factor), hn::Mul(b, factor));
    };
    const std::size_t count = element_count * PerElement;
    std::size_t i = 0;
    for (; i + step <= count; i += step) take(dst + i * sizeof(Value), src + i * sizeof(Stored));
    if (i < count) {
        const std::byte* last = src + i * sizeof(Stored);
        const Staged<Codec, 1> staged(&last, 0, (count - i) * sizeof(Stored));
        alignas(64) std::byte result[step * sizeof(Value)];
        take(result, staged.inputs[0]);
        std::memcpy(dst + i * sizeof(Value), result, (count - i) * sizeof(Value));
    }
}

// dst = src, rounded.
template <class Codec>
void round_all(void* to, const void* from, std::size_t count) {
    using Stored = typename Codec::Stored;
    using Value = typename Codec::Value;
    constexpr std::size_t step = step_of<Codec>();
    auto* dst = static_cast<std::byte*>(to);
    const auto* src = static_cast<const std::byte*>(from);
    const auto take = [&](std::byte* target, const std::byte* source) HWY_ATTR {
        typename Codec::V a, b;
        Plain<Value>::load(source, a, b);
        Codec::store_in_order(target, a, b);
    };
    std::size_t i = 0;
    for (; i + step <= count; i += step) take(dst + i * sizeof(Stored), src + i * sizeof(Value));
    if (i < count) {
        const std::byte* last = src + i * sizeof(Value);
        const Staged<Plain<Value>, 1> staged(&last, 0, (count - i) * sizeof(Value));
        alignas(64) std::byte result[step * sizeof(Stored)];
        take(result, staged.inputs[0]);
        std::memcpy(dst + i * sizeof(Stored), result, (count - i) * sizeof(Stored));
    }
}

}  // namespace HWY_NAMESPACE
}  // namespace tutti::kernels
HWY_AFTER_NAMESPACE();

#endif
