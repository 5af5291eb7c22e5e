// The oracle: what one element of a reduction must be, computed one rank after the other in plain C++, and values to
// try it on. Knows nothing of the library but its types. Pure functions; any thread.
#pragma once

#include <tutti/tutti.hpp>

#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <tuple>
#include <type_traits>
#include <vector>

namespace tutti::test {

/// One C++ type for each of the 17 dtypes.
using AllTypes = std::tuple<bool, std::uint8_t, std::uint16_t, std::uint32_t, std::uint64_t, std::int8_t, std::int16_t,
                            std::int32_t, std::int64_t, Float16, BFloat16, float, double, std::complex<float>,
                            std::complex<double>, Float8E4M3FN, Float8E5M2>;
static_assert(std::tuple_size_v<AllTypes> == dtype_count);

/// f(T{}) for each of the types.
template <class F>
void for_all_types(F f) {
    std::apply([&](auto... each) { (f(each), ...); }, AllTypes{});
}

template <class T>
inline constexpr bool is_complex_type =
    std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>;
template <class T>
inline constexpr bool is_small_float = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16> ||
                                       std::is_same_v<T, Float8E4M3FN> || std::is_same_v<T, Float8E5M2>;

/// Rulings and the complex limits, written out once more.
template <class T>
bool defined_for(ReduceOp::Kind op) {
    using K = ReduceOp::Kind;
    const bool bits = op == K::band || op == K::bor || op == K::bxor;
    if (std::is_same_v<T, bool>) return op != K::avg && op != K::premul_sum;
    if (std::is_integral_v<T>) return true;
    if (is_complex_type<T>) return op == K::sum || op == K::avg || op == K::premul_sum;
    return !bits;
}

/// Element i of a rank: small whole numbers, so that sums and products of a few ranks are exact in every type and any
/// order of combining gives the same bits. Signed types get negative ones too, bool both of its values.
template <class T>
T oracle_value(int rank, std::size_t i) {
    const auto step = static_cast<int>((static_cast<std::size_t>(rank) * 7 + i * 3 + i / 5) % 4);
    if constexpr (std::is_same_v<T, bool>) {
        return step % 2 == 1;
    } else if constexpr (std::is_unsigned_v<T>) {
        return static_cast<T>(step);
    } else if constexpr (std::is_integral_v<T>) {
        return static_cast<T>(step - 2);
    } else if constexpr (is_complex_type<T>) {
        using Part = typename T::value_type;
        return {static_cast<Part>(step - 1), static_cast<Part>(2 - step)};
    } else {
        return static_cast<T>(static_cast<float>(step - 1));
    }
}

/// The factor that a rank gives to premul_sum: whole, so that integers are not rounded.
inline double oracle_factor(int rank) {
    return rank + 1;
}

/// One element combined over all ranks.
template <class T>
T oracle_combined(ReduceOp::Kind op, const std::vector<T>& of_rank) {
    using K = ReduceOp::Kind;
    const auto fold = [&](auto first, auto step) {
        auto sum = first;
        for (std::size_t r = 1; r < of_rank.size(); ++r) sum = step(sum, r);
        return sum;
    };
    if constexpr (std::is_same_v<T, bool>) {
        const bool both = op == K::product || op == K::min || op == K::band;
        return fold(of_rank[0], [&](bool a, std::size_t r) {
            const bool b = of_rank[r];
            return both ? (a && b) : op == K::bxor ? a != b : (a || b);
        });
    } else if constexpr (std::is_integral_v<T>) {
        // Wide enough for these values; the truncation at the end is the wrap-around of the type.
        const auto wide = fold(static_cast<std::int64_t>(of_rank[0]), [&](std::int64_t a, std::size_t r) {
            const auto b = static_cast<std::int64_t>(of_rank[r]);
            switch (op) {
                case K::product: return a * b;
                case K::min: return a < b ? a : b;
                case K::max: return a > b ? a : b;
                case K::band: return a & b;
                case K::bor: return a | b;
                case K::bxor: return a ^ b;
                case K::premul_sum: return a + static_cast<std::int64_t>(oracle_factor(static_cast<int>(r))) * b;
                default: return a + b;
            }
        });
        return static_cast<T>(op == K::avg ? wide / static_cast<std::int64_t>(of_rank.size()) : wide);
    } else if constexpr (is_complex_type<T>) {
        using Part = typename T::value_type;
        T sum{};
        for (std::size_t r = 0; r < of_rank.size(); ++r) {
            sum +=
                op == K::premul_sum ? of_rank[r] * static_cast<Part>(oracle_factor(static_cast<int>(r))) : of_rank[r];
        }
        return op == K::avg
                   ? T(sum.real() / static_cast<Part>(of_rank.size()), sum.imag() / static_cast<Part>(of_rank.size()))
                   : sum;
    } else {
        using Wide = std::conditional_t<is_small_float<T>, float, T>;
        const auto number = [&](std::size_t r) { return static_cast<Wide>(of_rank[r]); };
        const Wide result = fold(number(0), [&](Wide a, std::size_t r) {
            const Wide b = number(r);
            switch (op) {
                case K::product: return a * b;
                case K::min: return std::isnan(a) || std::isnan(b) ? a + b : (a < b ? a : b);
                case K::max: return std::isnan(a) || std::isnan(b) ? a + b : (a > b ? a : b);
                case K::premul_sum: return a + b * static_cast<Wide>(oracle_factor(static_cast<int>(r)));
                default: return a + b;
            }
        });
        return static_cast<T>(op == K::avg ? result / static_cast<Wide>(of_rank.size()) : result);
    }
}

/// Equal, or both not a number.
template <class T>
bool same_value(const T& a, const T& b) {
    if constexpr (is_small_float<T>) {
        return float(a) == float(b) || (std::isnan(float(a)) && std::isnan(float(b)));
    } else if constexpr (std::is_floating_point_v<T>) {
        return a == b || (std::isnan(a) && std::isnan(b));
    } else {
        return a == b;
    }
}

}  // namespace tutti::test
