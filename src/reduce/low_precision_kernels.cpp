// Kernels of the 16- and 8-bit floating-point types, for each CPU target.
#include "reduce/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce/low_precision_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "reduce/loops-inl.hpp"

#if HWY_ARCH_X86
#include <cpuid.h>
#endif

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels {
namespace HWY_NAMESPACE {

using Kind = ReduceOp::Kind;

template <class Codec>
CombineKernel of_codec(Kind kind) {
    switch (kind) {
        case Kind::sum:
        case Kind::avg: return combine_all<Codec, Sum>;
        case Kind::product: return combine_all<Codec, Product>;
        case Kind::min: return combine_all<Codec, Min>;
        case Kind::max: return combine_all<Codec, Max>;
        default: return nullptr;
    }
}

CombineKernel find_low_precision(Kind kind, DType dtype) {
#if HWY_TARGET == HWY_AVX3
    if (dtype == DType::bfloat16 && takes_bfloat_instruction()) return of_codec<BFloatByInstruction>(kind);
#endif
    switch (dtype) {
        case DType::float16: return of_codec<Half>(kind);
        case DType::bfloat16: return of_codec<BFloat>(kind);
        case DType::float8_e4m3fn: return of_codec<E4M3>(kind);
        case DType::float8_e5m2: return of_codec<E5M2>(kind);
        default: return nullptr;
    }
}

ScaleKernel find_low_precision_scale(DType dtype) {
    switch (dtype) {
        case DType::float16: return scale_all<Half>;
        case DType::bfloat16: return scale_all<BFloat>;
        case DType::float8_e4m3fn: return scale_all<E4M3>;
        case DType::float8_e5m2: return scale_all<E5M2>;
        default: return nullptr;
    }
}

RoundKernel find_round(DType dtype) {
#if HWY_TARGET == HWY_AVX3
    if (dtype == DType::bfloat16 && takes_bfloat_instruction()) return round_all<BFloatByInstruction>;
#endif
    switch (dtype) {
        case DType::float16: return round_all<Half>;
        case DType::bfloat16: return round_all<BFloat>;
        case DType::float8_e4m3fn: return round_all<E4M3>;
        case DType::float8_e5m2: return round_all<E5M2>;
        default: return nullptr;
    }
}

}  // namespace HWY_NAMESPACE
}  // namespace tutti::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::kernels {

bool has_bfloat_instruction() noexcept {
#if HWY_ARCH_X86
    return __builtin_cpu_supports("avx512bf16") != 0;
#else
    return false;
#endif
}

bool& takes_bfloat_instruction() noexcept {
    static bool takes = has_bfloat_instruction();
    return takes;
}

#if HWY_ARCH_X86 && (HWY_TARGETS & HWY_AVX2) != 0 && (HWY_TARGETS & HWY_AVX3) != 0
bool halves_by_avx2_are_quicker() noexcept {
    unsigned version = 0, ignored = 0;
    if (!__builtin_cpu_is("amd") || !__builtin_cpu_supports("avx512f")) return false;
    if (__get_cpuid(1, &version, &ignored, &ignored, &ignored) == 0) return false;
    const unsigned family = (version >> 8 & 0xf) + (version >> 20 & 0xff);
    return family == 0x19;
}
namespace {
CombineKernel find_half_by_avx2(ReduceOp::Kind kind) {
    return N_AVX2::find_low_precision(kind, DType::float16);
}
}  // namespace
#else
bool halves_by_avx2_are_quicker() noexcept {
    return false;
}
namespace {
CombineKernel find_half_by_avx2(ReduceOp::Kind /*kind*/) {
    return nullptr;
}
}  // namespace
#endif

bool& takes_halves_by_avx2() noexcept {
    static bool takes = halves_by_avx2_are_quicker();
    return takes;
}

HWY_EXPORT(find_low_precision);
HWY_EXPORT(find_low_precision_scale);
HWY_EXPORT(find_round);

CombineKernel find_low_precision_kernel(ReduceOp::Kind kind, DType dtype) noexcept {
    if (dtype == DType::float16 && takes_halves_by_avx2()) return find_half_by_avx2(kind);
    return HWY_DYNAMIC_DISPATCH(find_low_precision)(kind, dtype);
}
ScaleKernel find_low_precision_scale_kernel(DType dtype) noexcept {
    return HWY_DYNAMIC_DISPATCH(find_low_precision_scale)(dtype);
}
RoundKernel find_round_kernel(DType dtype) noexcept {
    return HWY_DYNAMIC_DISPATCH(find_round)(dtype);
}

}  // namespace tutti::kernels
#endif
