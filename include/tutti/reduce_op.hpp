// The reduction operators: those that tutti has, and operators of the caller on elements of any trivially copyable
// type.
#pragma once

#include <tutti/dtype.hpp>
#include <tutti/export.hpp>
#include <tutti/operator_function.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace tutti {

struct OperatorOptions {
    /// f(a, b) equals f(b, a). If false, elements are combined strictly in the order of ranks, 0 op 1 op …, as
    /// Determinism::layout_invariant does for all operators.
    bool commutative = true;
    /// Stands in messages. Ranks must agree on it: a rank that names its operator otherwise gets CollectiveMismatch.
    std::string name{};
};

/// How values of several ranks become one. Follows torch.distributed.ReduceOp.
///
/// sum, product, min, max, band, bor, bxor, avg, premul_sum(factor). NaN propagates through min and max.
/// avg: floating and complex values give the sum divided by the group's size; integers the sum divided,
/// rounded toward zero. premul_sum multiplies each rank's input by that rank's factor before the sum.
/// product, min, max: not for complex types. band, bor, bxor: integers and bool only. bool: sum and max
/// are "or", product and min are "and"; avg and premul_sum are rejected.
/// float16, bfloat16 and float8 are accumulated in float32 and rounded once, whatever the number of ranks.
///
/// Operators of the caller (of(), min_loc(), max_loc(); kind user): all_reduce, reduce, reduce_scatter (all forms),
/// scan and exscan take them, also asynchronous, planned, coalesced and captured by graphs, on host memory in native
/// groups and over gloo and mpi. All ranks give operators of the same element size, commutativity and name; that their
/// functions do the same is not checked. A copy of a ReduceOp refers to the same function, which lives as long as the
/// last copy, and as the operations and plans that use it. Two are equal if one is a copy of the other.
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
        user = 9,  ///< an operator of the caller
    };
    static const ReduceOp sum, avg, product, min, max, band, bor, bxor;
    /// Each rank multiplies its own input by `factor` first.
    static constexpr ReduceOp premul_sum(double factor) { return {Kind::premul_sum, factor}; }

    /// An operator of the caller: an associative function of two elements, T(T, T), or one that combines whole blocks,
    /// void(const T* in, T* inout, std::size_t count): inout[i] = in[i] op inout[i]. The left operand, in[i], comes
    /// from the lower ranks, as with MPI_Op_create. T, trivially copyable, is the type of f's first parameter; of<T>(f)
    /// names it for a generic lambda.
    ///
    ///     struct Quaternion { double w, x, y, z; };
    ///     std::vector<Quaternion> turns(100);
    ///     const auto product = tutti::ReduceOp::of([](Quaternion a, Quaternion b) { return multiply(a, b); },
    ///                                              {.commutative = false});
    ///     tutti::all_reduce(tutti::items(turns), {.op = product});
    ///
    /// Tensors are of dtype_of<T> where T has one; otherwise their elements are the bytes of T's, as
    /// tutti::items(range) gives them: uint8, with a multiple of sizeof(T) bytes. f runs on the thread that makes
    /// progress, under the group's lock: it must not call tutti, and should not take long. Several threads may run it
    /// at the same time for several groups. If it throws, or calls a tutti function that waits for the group, the
    /// operation fails with Aborted on all ranks, with the exception's message, and the group cannot be used any more.
    /// The arrays that a block function gets are aligned for T and do not overlap. Throws InvalidArgument for a type of
    /// more than 64 KiB.
    template <class F>
    requires detail::HasElement<F>
    static ReduceOp of(F f, const OperatorOptions& options = {}) {
        return of<detail::ElementOfOperator<F>, F>(std::move(f), options);
    }
    template <class T, class F>
    requires detail::Combines<T, F>
    static ReduceOp of(F f, const OperatorOptions& options = {}) {
        static_assert(std::is_trivially_copyable_v<T> && std::is_copy_assignable_v<T>,
                      "tutti: elements of a reduction travel as bytes: expected a trivially copyable type");
        return ReduceOp(detail::parts_of<T>(std::move(f)), options);
    }
    /// The same for a function and its context, of elements of `element_bytes` bytes, in tensors of `dtype`: uint8, or
    /// a type of just that size. The arrays are aligned as the largest power of two up to 16 that divides the size.
    static ReduceOp of(OperatorFunction f, void* context, std::size_t element_bytes, DType dtype,
                       const OperatorOptions& options = {});

    /// Of elements ValueIndex<T, Index>: the least (greatest) value, and the lowest index with it; a NaN comes before
    /// all numbers. As MPI_MINLOC and MPI_MAXLOC.
    template <class T, class Index = std::int64_t>
    static ReduceOp min_loc();
    template <class T, class Index = std::int64_t>
    static ReduceOp max_loc();

    constexpr ReduceOp(Kind kind = Kind::sum, double factor = 1.0) : kind_(kind), factor_(factor) {}
    /// An operator of the caller, from its parts: for bindings.
    ReduceOp(const detail::OperatorParts& parts, const OperatorOptions& options);
    constexpr Kind kind() const noexcept { return kind_; }
    constexpr double factor() const noexcept { return factor_; }
    /// "sum"; of an operator of the caller its name, which may be empty.
    std::string name() const;
    /// Whether the order of ranks may change: true but for operators of the caller that are not commutative.
    bool commutative() const noexcept;
    /// Of an operator of the caller: bytes of an element; 0 for others, which are for many types.
    std::size_t element_bytes() const noexcept;
    friend constexpr bool operator==(const ReduceOp&, const ReduceOp&) = default;

    /// Of an operator of the caller: what all copies share; null for others.
    constexpr const detail::UserOperator* user() const noexcept { return user_.get(); }

 private:
    Kind kind_;
    double factor_;
    detail::OperatorHandle user_;
};
inline constexpr int reduce_op_count = 9;  ///< without those of the caller

inline constexpr ReduceOp ReduceOp::sum{Kind::sum};
inline constexpr ReduceOp ReduceOp::avg{Kind::avg};
inline constexpr ReduceOp ReduceOp::product{Kind::product};
inline constexpr ReduceOp ReduceOp::min{Kind::min};
inline constexpr ReduceOp ReduceOp::max{Kind::max};
inline constexpr ReduceOp ReduceOp::band{Kind::band};
inline constexpr ReduceOp ReduceOp::bor{Kind::bor};
inline constexpr ReduceOp ReduceOp::bxor{Kind::bxor};

/// A value, and where it comes from: an element of min_loc() and max_loc().
template <class T, class Index = std::int64_t>
struct ValueIndex {
    T value;
    Index index;
    friend bool operator==(const ValueIndex&, const ValueIndex&) = default;
};

namespace detail {
/// Whether `a` comes before `b`: by value, NaN first, and then by index. `Before`: std::less or std::greater.
template <class Before, class Pair>
constexpr bool is_first(const Pair& a, const Pair& b) {
    using T = std::remove_cvref_t<decltype(a.value)>;
    if constexpr (std::is_floating_point_v<T>) {
        const bool a_is_nan = a.value != a.value, b_is_nan = b.value != b.value;
        if (a_is_nan != b_is_nan) return a_is_nan;
    }
    if (Before()(a.value, b.value)) return true;
    return !Before()(b.value, a.value) && a.index < b.index;
}
}  // namespace detail

template <class T, class Index>
ReduceOp ReduceOp::min_loc() {
    using Pair = ValueIndex<T, Index>;
    static const ReduceOp op =
        of([](Pair a, Pair b) { return detail::is_first<std::less<>>(b, a) ? b : a; }, {.name = "min_loc"});
    return op;
}
template <class T, class Index>
ReduceOp ReduceOp::max_loc() {
    using Pair = ValueIndex<T, Index>;
    static const ReduceOp op =
        of([](Pair a, Pair b) { return detail::is_first<std::greater<>>(b, a) ? b : a; }, {.name = "max_loc"});
    return op;
}

/// The old name of ReduceOp in torch.distributed, deprecated there too, with its four values.
struct [[deprecated("use ReduceOp")]] reduce_op {
    static constexpr ReduceOp SUM{ReduceOp::Kind::sum}, PRODUCT{ReduceOp::Kind::product}, MIN{ReduceOp::Kind::min},
        MAX{ReduceOp::Kind::max};
};

/// "sum", "avg", "product", "min", "max", "band", "bor", "bxor", "premul_sum", "user".
TUTTI_API std::string_view to_string(ReduceOp::Kind kind) noexcept;
/// The inverse of to_string(), but for "user"; throws InvalidArgument that lists the names. premul_sum gets factor 1.
TUTTI_API ReduceOp reduce_op_from_string(std::string_view name);
/// Whether the operator is defined for `dtype`; false for `user`, whose element type is each operator's own.
TUTTI_API bool is_supported(ReduceOp::Kind kind, DType dtype) noexcept;

}  // namespace tutti
