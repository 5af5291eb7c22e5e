// Compiles kernels-inl.hpp for each CPU target and picks one at run time.
// Three targets are enough: each costs a minute of compile time.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce/kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "reduce/kernels.hpp"

#include "reduce/kernels-inl.hpp"

#if HWY_ONCE
namespace tutti::reduce {

HWY_EXPORT(find);
HWY_EXPORT(name);

Kernel find_kernel(ReduceOp::Kind kind, DType dtype) noexcept {
    return HWY_DYNAMIC_DISPATCH(find)(kind, dtype);
}
const char* target_name() noexcept {
    return HWY_DYNAMIC_DISPATCH(name)();
}

}  // namespace tutti::reduce
#endif
