#include "core/suggestion.hpp"

#include <tutti/error.hpp>
#include <tutti/reduce_op.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

namespace tutti {
namespace {
constexpr std::array<std::string_view, reduce_op_count> op_names{"sum",  "avg", "product", "min",       "max",
                                                                 "band", "bor", "bxor",    "premul_sum"};
}

std::string_view to_string(ReduceOp::Kind kind) noexcept {
    if (kind == ReduceOp::Kind::user) return "user";
    const auto index = static_cast<std::size_t>(kind);
    return index < op_names.size() ? op_names[index] : "unknown";
}

ReduceOp reduce_op_from_string(std::string_view name) {
    for (std::size_t i = 0; i < op_names.size(); ++i) {
        if (op_names[i] == name) return ReduceOp(static_cast<ReduceOp::Kind>(i));
    }
    throw InvalidArgument(fmt::format("reduce op \"{}\": expected one of {}{}", name, fmt::join(op_names, ", "),
                                      did_you_mean(name, op_names)));
}

bool is_supported(ReduceOp::Kind kind, DType dtype) noexcept {
    switch (kind) {
        case ReduceOp::Kind::sum: return true;
        case ReduceOp::Kind::avg:
        case ReduceOp::Kind::premul_sum: return dtype != DType::boolean;
        case ReduceOp::Kind::product:
        case ReduceOp::Kind::min:
        case ReduceOp::Kind::max: return !is_complex(dtype);
        case ReduceOp::Kind::band:
        case ReduceOp::Kind::bor:
        case ReduceOp::Kind::bxor: return is_integral(dtype);
        case ReduceOp::Kind::user: return false;
    }
    return false;
}

}  // namespace tutti
