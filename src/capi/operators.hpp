// Operators of C programs: numbers from first_op on, in the place of the enum's. Threads: any.
#pragma once

#include <tutti/reduce_op.hpp>

namespace tutti::capi {

/// The number of the first operator that a program makes.
inline constexpr int first_op = 256;

/// Throws InvalidArgument, with the function's name, for a number that is not, or no longer, an operator's.
ReduceOp operator_of(const char* function, int op);

}  // namespace tutti::capi
