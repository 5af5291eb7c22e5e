// How an operation is made of the library's calls: which type and operator a reduction takes, and what uneven blocks
// become.
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

/// Empty: by the host. bool is uint8 (or: max, and: min), complex sums are those of its two parts. (u)int16, bit
/// operations and exclusive or of bool have none.
std::optional<NativeReduction> native_reduction(const ReduceOp& op, DType dtype, const Abilities& abilities);
/// Whether that depends on what the other ranks' devices can do (Agreement::reduces_float8).
inline bool is_float8(DType dtype) {
    return dtype == DType::float8_e4m3fn || dtype == DType::float8_e5m2;
}

/// Calls of a group; more go into several, which all ranks cut at the same places.
inline constexpr int calls_of_a_group = 2048;

/// Uneven blocks: filled up to the longest one where that moves at most a quarter more than there is; otherwise each by
/// itself.
bool fill_up(std::span<const std::uint64_t> counts);
bool all_equal(std::span<const std::uint64_t> counts);

/// The factor of premul_sum as one element, where the library reads it.
struct Scalar {
    alignas(8) unsigned char bytes[8] = {};
};
Scalar scalar_of(double factor, Type type);

}  // namespace tutti::nccl
