#include "reduce/reduce.hpp"

#include <tutti/backend.hpp>
#include <tutti/error.hpp>

#include <fmt/format.h>

namespace tutti {

void combine(ReduceOp op, DType dtype, void* output, std::span<const void* const> inputs, std::uint64_t count) {
    if (inputs.empty()) throw InvalidArgument("combine: inputs is empty: expected at least one");
    if (op.user() != nullptr) return kernels::combine({op.kind(), op.user()}, dtype, output, inputs, count);
    if (op.kind() == ReduceOp::Kind::premul_sum || !is_supported(op.kind(), dtype)) {
        throw InvalidArgument(
            fmt::format("combine: op {} is not defined for {}", to_string(op.kind()), to_string(dtype)));
    }
    kernels::combine(op.kind(), dtype, output, inputs, count, inputs.size());
}

}  // namespace tutti
