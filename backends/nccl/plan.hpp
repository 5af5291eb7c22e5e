// How the library's calls make an operation: the type and operator of a reduction, and the form of uneven blocks.
//
// Pure functions.
#pragma once

#include "nccl/interface.hpp"
#include "nccl/library.hpp"

#include <tutti/dtype.hpp>
#include <tutti/reduce_op.hpp>

#include <cstdint>
#include <optional>
#include <span>

namespace tutti::nccl {

/// A reduction that the library has.
struct NativeReduction {
    Type type = float32;
    Op op = Op::sum;
    bool premultiplied = false;  ///< with an operator that is made for the factor
    unsigned parts = 1;          ///< of one element: a complex value is two numbers
};

/// Empty: the host reduces. bool is uint8 (or: max, and: min), a complex sum is the sum of the two parts. (u)int16, bit
/// operations and exclusive or of bool have none. One rank's average is its sum: NCCL has none of float8 for it.
std::optional<NativeReduction> native_reduction(const ReduceOp& op, DType dtype, int ranks, const Abilities& abilities);
/// Whether the reduction depends on the abilities of the other ranks' devices (Agreement::reduces_float8).
inline bool is_float8(DType dtype) {
    return dtype == DType::float8_e4m3fn || dtype == DType::float8_e5m2;
}

/// The most calls of a group; more go into several groups, which all ranks cut at the same places.
inline constexpr int calls_of_a_group = 2048;

/// Whether uneven blocks are filled up to the longest one: if that moves at most a quarter more bytes; otherwise each
/// block moves by itself.
bool fill_up(std::span<const std::uint64_t> counts);
bool all_equal(std::span<const std::uint64_t> counts);

/// The factor of premul_sum as one element, where the library reads it.
struct Scalar {
    alignas(8) unsigned char bytes[8] = {};
};
Scalar scalar_of(double factor, Type type);

}  // namespace tutti::nccl
