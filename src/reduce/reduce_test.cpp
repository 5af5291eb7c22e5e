// Every type and operator, many numbers of inputs, odd counts and misalignments, against a scalar reference.
#include "reduce/reduce.hpp"
#include "support/covers.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <cstring>
#include <random>

namespace tutti::reduce {
namespace {

using test::covers;
using Kind = ReduceOp::Kind;
using Bytes = std::vector<std::uint8_t>;

template <class T>
T at(const std::uint8_t* base, std::size_t i) {
    T value;
    std::memcpy(&value, base + i * sizeof(T), sizeof(T));
    return value;
}

template <class V>
V combined(Kind kind, V a, V b) {
    switch (kind) {
        case Kind::sum:
        case Kind::avg: return static_cast<V>(a + b);
        case Kind::product:
            if constexpr (std::is_integral_v<V>)
                return static_cast<V>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
            else
                return a * b;
        case Kind::min: return std::isnan(static_cast<double>(a)) || a < b ? a : b;
        case Kind::max: return std::isnan(static_cast<double>(a)) || a > b ? a : b;
        default: break;
    }
    if constexpr (std::is_integral_v<V>) {
        if (kind == Kind::band) return static_cast<V>(a & b);
        if (kind == Kind::bor) return static_cast<V>(a | b);
        if (kind == Kind::bxor) return static_cast<V>(a ^ b);
    }
    return a;
}

// The expected bytes of one element; V: in what the type is accumulated.
template <class T, class V>
T expected(Kind kind, const std::vector<const void*>& inputs, std::size_t i) {
    const auto value = [&](std::size_t k) {
        return static_cast<V>(at<T>(static_cast<const std::uint8_t*>(inputs[k]), i));
    };
    V result = value(0);
    for (std::size_t k = 1; k < inputs.size(); ++k) {
        if constexpr (std::is_integral_v<V> && std::is_signed_v<V>) {
            if (kind == Kind::sum || kind == Kind::avg) {
                using U = std::make_unsigned_t<V>;
                result = static_cast<V>(static_cast<U>(static_cast<U>(result) + static_cast<U>(value(k))));
                continue;
            }
        }
        result = combined<V>(kind, result, value(k));
    }
    if (kind == Kind::avg) result = static_cast<V>(result / static_cast<V>(inputs.size()));
    return T(result);
}

template <class T>
bool same(T a, T b) {
    if constexpr (std::is_integral_v<T>)
        return a == b;
    else
        return a == b || (std::isnan(static_cast<double>(static_cast<float>(a))) &&
                          std::isnan(static_cast<double>(static_cast<float>(b))));
}

template <class T, class V = T>
void check_type(DType dtype) {
    std::mt19937_64 random(static_cast<unsigned>(dtype) + 1);
    for (int op = 0; op < reduce_op_count; ++op) {
        const auto kind = static_cast<Kind>(op);
        if (kind == Kind::premul_sum || !is_supported(kind, dtype)) continue;
        for (const std::size_t n : {1, 2, 3, 4, 5, 6, 7, 8, 9, 17}) {
            for (const std::size_t count : {0, 1, 7, 63, 64, 65, 1025}) {
                const std::size_t shift = (n + count) % 3;  // in bytes
                std::vector<Bytes> memory(n + 1, Bytes(count * sizeof(T) + 8));
                std::vector<const void*> inputs;
                for (std::size_t k = 0; k < n; ++k) {
                    for (std::size_t i = 0; i < count; ++i) {
                        T value;
                        if constexpr (std::is_integral_v<T>)
                            value = static_cast<T>(random());
                        else
                            value = T(static_cast<V>(static_cast<double>(random() % 2001) / 100.0 - 10));
                        std::memcpy(memory[k].data() + shift + i * sizeof(T), &value, sizeof(T));
                    }
                    inputs.push_back(memory[k].data() + shift);
                }
                std::vector<T> wanted;
                for (std::size_t i = 0; i < count; ++i) wanted.push_back(expected<T, V>(kind, inputs, i));
                // Into other memory, then over one of the inputs.
                std::uint8_t* outputs[] = {memory[n].data() + 1, memory[(n * 7 + count) % n].data() + shift};
                for (std::uint8_t* output : outputs) {
                    combine(kind, dtype, output, inputs, count, n);
                    for (std::size_t i = 0; i < count; ++i) {
                        ASSERT_TRUE(same(at<T>(output, i), wanted[i]))
                            << to_string(kind) << ' ' << to_string(dtype) << " n=" << n << " count=" << count
                            << " i=" << i;
                    }
                }
            }
        }
    }
}

TEST(Combine, is_right_for_integers) {
    covers("S10-002", "S10-003", "S10-004", "S10-005", "S10-006", "S10-007", "S10-008", "A-43", "A-44");
    check_type<std::uint8_t>(uint8);
    check_type<std::uint16_t>(uint16);
    check_type<std::uint32_t>(uint32);
    check_type<std::uint64_t>(uint64);
    check_type<std::int8_t>(int8);
    check_type<std::int16_t>(int16);
    check_type<std::int32_t>(int32);
    check_type<std::int64_t>(int64);
}

TEST(Combine, is_right_for_floating_point) {
    covers("S10-009");
    check_type<float>(float32);
    check_type<double>(float64);
}

TEST(Combine, accumulates_small_floats_in_float32_and_rounds_once) {
    check_type<Float16, float>(float16);
    check_type<BFloat16, float>(bfloat16);
    check_type<Float8E4M3FN, float>(float8_e4m3fn);
    check_type<Float8E5M2, float>(float8_e5m2);
    // 64 times 1.0078125 in bfloat16: rounding after each addition would drift.
    const BFloat16 value(1.0078125F);
    const std::vector<const void*> inputs(64, &value);
    BFloat16 result;
    combine(Kind::sum, bfloat16, &result, inputs, 1);
    EXPECT_EQ(float(result), float(BFloat16(64 * 1.0078125F)));
}

TEST(Combine, treats_any_other_byte_than_zero_as_true) {
    const std::uint8_t a[] = {0, 0, 2, 255}, b[] = {0, 7, 0, 1};
    const std::vector<const void*> inputs{a, b};
    const auto result = [&](Kind kind) {
        std::vector<int> bytes(4);
        std::uint8_t out[4];
        combine(kind, boolean, out, inputs, 4);
        std::copy(out, out + 4, bytes.begin());
        return bytes;
    };
    EXPECT_EQ(result(Kind::sum), (std::vector{0, 1, 1, 1}));
    EXPECT_EQ(result(Kind::max), (std::vector{0, 1, 1, 1}));
    EXPECT_EQ(result(Kind::product), (std::vector{0, 0, 0, 1}));
    EXPECT_EQ(result(Kind::band), (std::vector{0, 0, 0, 1}));
    EXPECT_EQ(result(Kind::bxor), (std::vector{0, 1, 1, 0}));
}

TEST(Combine, sums_complex_numbers) {
    const std::complex<float> a{1, 2}, b{3, -5};
    const std::vector<const void*> inputs{&a, &b};
    std::complex<float> out;
    combine(Kind::sum, complex64, &out, inputs, 1);
    EXPECT_EQ(out, (std::complex<float>{4, -3}));
    combine(Kind::avg, complex64, &out, inputs, 1, 2);
    EXPECT_EQ(out, (std::complex<float>{2, -1.5F}));
}

TEST(Combine, lets_nan_through_min_and_max) {
    for (const Kind kind : {Kind::min, Kind::max}) {
        for (const bool first : {true, false}) {
            const float a = first ? NAN : 1.0F, b = first ? 1.0F : NAN;
            const std::vector<const void*> inputs{&a, &b};
            float out = 0;
            combine(kind, float32, &out, inputs, 1);
            EXPECT_TRUE(std::isnan(out));
            const Float16 c(a), d(b);
            const std::vector<const void*> small{&c, &d};
            Float16 half;
            combine(kind, float16, &half, small, 1);
            EXPECT_TRUE(std::isnan(float(half)));
        }
    }
}

TEST(Combine, divides_negative_integers_toward_zero) {
    covers("A-43");
    const std::int32_t a = -3, b = -4;
    const std::vector<const void*> inputs{&a, &b};
    std::int32_t out = 0;
    combine(Kind::avg, int32, &out, inputs, 1, 2);
    EXPECT_EQ(out, -3);
}

TEST(Premultiply, scales_in_the_type_of_accumulation) {
    covers("S10-010", "A-45");
    const Float16 half(2.0F);
    float wide = 0;
    premultiply(float16, &wide, &half, 0.25, 1);
    EXPECT_EQ(wide, 0.5F);
    Float16 back;
    round_to(float16, &back, float32, &wide, 1);
    EXPECT_EQ(float(back), 0.5F);
    const std::int8_t large = 100;
    std::int8_t out = 0;
    premultiply(int8, &out, &large, 2.0, 1);
    EXPECT_EQ(out, 127);
    const std::int64_t limit = INT64_MAX;
    std::int64_t same_limit = 0;
    premultiply(int64, &same_limit, &limit, 1.0, 1);
    EXPECT_EQ(same_limit, INT64_MAX);
    EXPECT_NE(std::string(target_name()), "");
}

}  // namespace
}  // namespace tutti::reduce
