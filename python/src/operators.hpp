// Operators of Python programs: ReduceOp.of, and MINLOC and MAXLOC of any pair of numbers.
//
// Threads: those that hold the interpreter's lock.
#pragma once

#include <tutti/reduce_op.hpp>

#include "python.hpp"

#include <string>

namespace tutti::python {

/// An operator from a function: an address, a ctypes function, an object with an `address` (numba.cfunc), or a function
/// of two arrays of `dtype`.
ReduceOp operator_of(nb::handle function, nb::handle dtype, bool commutative, const std::string& name);

/// MINLOC and MAXLOC: an operator without a function, which the arrays of a call give one.
inline const ReduceOp min_loc_of_any(ReduceOp::Kind::user, -1), max_loc_of_any(ReduceOp::Kind::user, -2);
inline bool is_loc_of_any(const ReduceOp& op) {
    return op == min_loc_of_any || op == max_loc_of_any;
}
/// Such an operator for an array, or a list of arrays, of a structure of a number and an index; others as they are.
ReduceOp for_array(const ReduceOp& op, nb::handle array, const char* operation);

}  // namespace tutti::python
