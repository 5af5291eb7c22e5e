// The products of ncclRedOpCreatePreMulSum. Free functions; any thread.
#pragma once

#include <tutti/dtype.hpp>

#include <cstddef>

namespace tutti::nccl_library {

/// to[i] = from[i] * factor, modulo the type's range as NCCL's integers. They may be the same memory.
void scale_integers(DType dtype, void* to, const void* from, const void* factor, std::size_t count);

/// One element of a floating-point type.
double floating_value(DType dtype, const void* element);

}  // namespace tutti::nccl_library
