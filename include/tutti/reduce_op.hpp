// The reduction operators.
#pragma once

#include <tutti/dtype.hpp>
#include <tutti/export.hpp>

#include <cstdint>
#include <string_view>

namespace tutti {

/// How values of several ranks become one. Follows torch.distributed.ReduceOp.
///
/// sum, product, min, max, band, bor, bxor, avg, premul_sum(factor). NaN propagates through min and max.
/// avg: floating and complex values give the sum divided by the group's size; integers the sum divided,
/// rounded toward zero. premul_sum multiplies each rank's input by that rank's factor before the sum.
/// product, min, max: not for complex types. band, bor, bxor: integers and bool only. bool: sum and max
/// are "or", product and min are "and"; avg and premul_sum are rejected.
/// float16, bfloat16 and float8 are accumulated in float32 and rounded once, whatever the number of ranks.
class TUTTI_API ReduceOp {
 public:
    enum class Kind : std::uint8_t {
        sum = 0,
        avg = 1,
        product = 2,
        min = 3,
        max = 4,
        band = 5,
        bor = 6,
        bxor = 7,
        premul_sum = 8,
    };
    static const ReduceOp sum, avg, product, min, max, band, bor, bxor;
    /// Each rank multiplies its own input by `factor` first.
    static constexpr ReduceOp premul_sum(double factor) { return {Kind::premul_sum, factor}; }

    constexpr ReduceOp(Kind kind = Kind::sum, double factor = 1.0) : kind_(kind), factor_(factor) {}
    constexpr Kind kind() const noexcept { return kind_; }
    constexpr double factor() const noexcept { return factor_; }
    friend constexpr bool operator==(const ReduceOp&, const ReduceOp&) = default;

 private:
    Kind kind_;
    double factor_;
};
inline constexpr int reduce_op_count = 9;

inline constexpr ReduceOp ReduceOp::sum{Kind::sum};
inline constexpr ReduceOp ReduceOp::avg{Kind::avg};
inline constexpr ReduceOp ReduceOp::product{Kind::product};
inline constexpr ReduceOp ReduceOp::min{Kind::min};
inline constexpr ReduceOp ReduceOp::max{Kind::max};
inline constexpr ReduceOp ReduceOp::band{Kind::band};
inline constexpr ReduceOp ReduceOp::bor{Kind::bor};
inline constexpr ReduceOp ReduceOp::bxor{Kind::bxor};

/// The old name of ReduceOp in torch.distributed, deprecated there too, with its four values.
struct [[deprecated("use ReduceOp")]] reduce_op {
    static constexpr ReduceOp SUM{ReduceOp::Kind::sum}, PRODUCT{ReduceOp::Kind::product}, MIN{ReduceOp::Kind::min},
        MAX{ReduceOp::Kind::max};
};

/// "sum", "avg", "product", "min", "max", "band", "bor", "bxor", "premul_sum".
TUTTI_API std::string_view to_string(ReduceOp::Kind kind) noexcept;
/// The inverse of to_string(); throws InvalidArgument that lists the names. premul_sum gets factor 1.
TUTTI_API ReduceOp reduce_op_from_string(std::string_view name);
/// Whether the operator is defined for `dtype`.
TUTTI_API bool is_supported(ReduceOp::Kind kind, DType dtype) noexcept;

}  // namespace tutti
