// Kernels of float32, float64 and the complex types, for each CPU target.
#include "reduce/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce/float_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "reduce/loops-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels {
namespace HWY_NAMESPACE {

using Kind = ReduceOp::Kind;

template <class Real>
CombineKernel of_real(Kind kind) {
    switch (kind) {
        case Kind::sum:
        case Kind::avg: return combine_all<Plain<Real>, Sum>;
        case Kind::product: return combine_all<Plain<Real>, Product>;
        case Kind::min: return combine_all<Plain<Real>, Min>;
        case Kind::max: return combine_all<Plain<Real>, Max>;
        default: return nullptr;
    }
}

template <class Real>
CombineKernel of_complex(Kind kind) {
    return kind == Kind::sum || kind == Kind::avg ? combine_parts<Plain<Real>, Sum, 2> : nullptr;
}

CombineKernel find_float(Kind kind, DType dtype) {
    switch (dtype) {
        case DType::float32: return of_real<float>(kind);
        case DType::float64: return of_real<double>(kind);
        case DType::complex64: return of_complex<float>(kind);
        case DType::complex128: return of_complex<double>(kind);
        default: return nullptr;
    }
}

ScaleKernel find_float_scale(DType dtype) {
    switch (dtype) {
        case DType::float32: return scale_all<Plain<float>>;
        case DType::float64: return scale_all<Plain<double>>;
        case DType::complex64: return scale_all<Plain<float>, 2>;
        case DType::complex128: return scale_all<Plain<double>, 2>;
        default: return nullptr;
    }
}

const char* float_target() {
    return hwy::TargetName(HWY_TARGET);
}

}  // namespace HWY_NAMESPACE
}  // namespace tutti::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::kernels {

HWY_EXPORT(find_float);
HWY_EXPORT(find_float_scale);
HWY_EXPORT(float_target);

CombineKernel find_float_kernel(ReduceOp::Kind kind, DType dtype) noexcept {
    return HWY_DYNAMIC_DISPATCH(find_float)(kind, dtype);
}
ScaleKernel find_float_scale_kernel(DType dtype) noexcept {
    return HWY_DYNAMIC_DISPATCH(find_float_scale)(dtype);
}
const char* target_name() noexcept {
    return HWY_DYNAMIC_DISPATCH(float_target)();
}

}  // namespace tutti::kernels
#endif
