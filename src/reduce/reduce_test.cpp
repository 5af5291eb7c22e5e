// Every type and operator, many numbers of inputs, odd counts and misalignments, against a scalar reference.
#include "reduce/reduce.hpp"
#include "support/covers.hpp"

#include <gtest/gtest.h>
#include <tutti/error.hpp>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <random>

namespace tutti::kernels {
namespace {

using test::covers;
using Kind = ReduceOp::Kind;
using Bytes = std::vector<std::uint8_t>;

template <class T>
T get(const std::uint8_t* base, std::size_t i) {
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

// The expected bytes of one element; V: the type of the accumulator.
template <class T, class V>
T expected(Kind kind, const std::vector<const void*>& inputs, std::size_t i) {
    const auto value = [&](std::size_t k) {
        return static_cast<V>(get<T>(static_cast<const std::uint8_t*>(inputs[k]), i));
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

constexpr std::uint8_t guard = 0xa5;

// One shape: every input at another odd address, the result in memory of its own (both kinds of stores), then in place
// of each input in turn. No byte beside the result may change.
template <class T, class V>
void check_shape(Kind kind, DType dtype, std::size_t n, std::size_t count, std::mt19937_64& random) {
    const std::size_t bytes = count * sizeof(T);
    const auto shift = [](std::size_t k) { return 3 * k % 67; };
    std::vector<Bytes> memory(n + 1, Bytes(bytes + 160, guard));
    std::vector<const void*> inputs;
    for (std::size_t k = 0; k < n; ++k) {
        for (std::size_t i = 0; i < count; ++i) {
            T value;
            if constexpr (std::is_integral_v<T>)
                value = static_cast<T>(random());
            else
                value = T(static_cast<V>(static_cast<double>(random() % 2001) / 100.0 - 10));
            std::memcpy(memory[k].data() + shift(k) + i * sizeof(T), &value, sizeof(T));
        }
        inputs.push_back(memory[k].data() + shift(k));
    }
    std::vector<T> wanted;
    for (std::size_t i = 0; i < count; ++i) wanted.push_back(expected<T, V>(kind, inputs, i));
    const auto check = [&](const Bytes& around, std::size_t at, const char* what) {
        std::size_t wrong = 0;
        while (wrong < count && same(get<T>(around.data() + at, wrong), wanted[wrong])) ++wrong;
        ASSERT_EQ(wrong, count) << what << ' ' << to_string(kind) << ' ' << to_string(dtype) << " n=" << n;
        const auto is_guard = [](std::uint8_t byte) { return byte == guard; };
        const auto begin = around.begin() + static_cast<std::ptrdiff_t>(at);
        ASSERT_TRUE(std::all_of(around.begin(), begin, is_guard) &&
                    std::all_of(begin + static_cast<std::ptrdiff_t>(bytes), around.end(), is_guard))
            << what << ": wrote beside the result, " << to_string(kind) << ' ' << to_string(dtype) << " n=" << n
            << " count=" << count;
    };
    for (const std::size_t at : {std::size_t{1}, 2 * sizeof(T)}) {
        for (const Stores stores : {Stores::cached, Stores::streaming}) {
            std::ranges::fill(memory[n], guard);
            combine(kind, dtype, memory[n].data() + at, inputs, count, n, stores);
            check(memory[n], at, stores == Stores::cached ? "cached" : "streaming");
        }
    }
    for (std::size_t k = 0; k<n; k += count> 100 ? 3 : 1) {
        const Bytes before = memory[k];
        combine(kind, dtype, memory[k].data() + shift(k), inputs, count, n, Stores::streaming);
        check(memory[k], shift(k), "in place");
        memory[k] = before;
        inputs[k] = memory[k].data() + shift(k);
    }
}

template <class T, class V = T>
void check_type(DType dtype) {
    std::mt19937_64 random(static_cast<unsigned>(dtype) + 1);
    for (int op = 0; op < reduce_op_count; ++op) {
        const auto kind = static_cast<Kind>(op);
        if (kind == Kind::premul_sum || !is_supported(kind, dtype)) continue;
        for (const std::size_t n : {1, 2, 3, 4, 5, 6, 7, 8, 9, 17}) {
            for (const std::size_t count : {0, 1, 7, 63, 64, 65, 1025, 8209}) {
                if (count > 1025 && n != 2 && n != 7) continue;
                check_shape<T, V>(kind, dtype, n, count, random);
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
}

// 64 equal values of which every partial sum beyond the first few needs more bits than the type has.
template <class T>
void rounds_once(DType dtype, float value) {
    const T element(value);
    ASSERT_EQ(float(element), value);
    const std::vector<const void*> inputs(64, &element);
    T result;
    combine(Kind::sum, dtype, &result, inputs, 1);
    EXPECT_EQ(float(result), 64 * value) << to_string(dtype);
    T rounded_each_time = element;
    for (int i = 1; i < 64; ++i) rounded_each_time = T(float(rounded_each_time) + value);
    EXPECT_NE(float(rounded_each_time), 64 * value) << "the example shows nothing: " << to_string(dtype);
    combine(Kind::avg, dtype, &result, inputs, 1, 64);
    EXPECT_EQ(float(result), value) << to_string(dtype);
}

TEST(Combine, rounds_small_floats_once_whatever_the_number_of_inputs) {
    rounds_once<BFloat16>(bfloat16, 1.0234375F);
    rounds_once<Float16>(float16, 1.0029296875F);
    rounds_once<Float8E4M3FN>(float8_e4m3fn, 1.125F);
    rounds_once<Float8E5M2>(float8_e5m2, 1.25F);
}

TEST(Combine, does_not_overflow_on_the_way_to_an_average) {
    const Float16 large(60000.0F);
    const std::vector<const void*> inputs(4, &large);
    Float16 result;
    combine(Kind::avg, float16, &result, inputs, 1, 4);
    EXPECT_EQ(float(result), float(large));
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
    EXPECT_EQ(result(Kind::min), (std::vector{0, 0, 0, 1}));
    EXPECT_EQ(result(Kind::bor), (std::vector{0, 1, 1, 1}));
    EXPECT_EQ(result(Kind::bxor), (std::vector{0, 1, 1, 0}));
    const std::vector<const void*> one{b};
    std::uint8_t out[4];
    combine(Kind::sum, boolean, out, one, 4);
    EXPECT_EQ(std::vector<int>(out, out + 4), (std::vector{0, 1, 0, 1}));
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

// NaN as any of the inputs, at any place of a vector and of the tail.
template <class T>
void nan_wins(DType dtype) {
    for (const Kind kind : {Kind::min, Kind::max}) {
        for (const std::size_t n : {2, 3, 4, 6, 8}) {
            for (std::size_t who = 0; who < n; ++who) {
                std::vector<std::vector<T>> values(n, std::vector<T>(67, T(1.0F)));
                for (const std::size_t i : {0, 5, 63, 66}) values[who][i] = T(NAN);
                std::vector<const void*> inputs;
                for (const auto& v : values) inputs.push_back(v.data());
                std::vector<T> out(67);
                combine(kind, dtype, out.data(), inputs, out.size());
                for (std::size_t i = 0; i < out.size(); ++i) {
                    const auto result = static_cast<double>(static_cast<float>(out[i]));
                    EXPECT_EQ(std::isnan(result), i == 0 || i == 5 || i == 63 || i == 66)
                        << to_string(kind) << ' ' << to_string(dtype) << " n=" << n << " NaN from " << who << " at "
                        << i;
                }
            }
        }
    }
}

TEST(Combine, lets_nan_through_min_and_max) {
    covers("S10-004", "S10-005");
    nan_wins<float>(float32);
    nan_wins<double>(float64);
    nan_wins<Float16>(float16);
    nan_wins<BFloat16>(bfloat16);
    nan_wins<Float8E4M3FN>(float8_e4m3fn);
    nan_wins<Float8E5M2>(float8_e5m2);
}

TEST(Combine, wraps_integers_around) {
    const std::int8_t a = 127, b = 2;
    const std::vector<const void*> inputs{&a, &b};
    std::int8_t out = 0;
    combine(Kind::sum, int8, &out, inputs, 1);
    EXPECT_EQ(out, -127);
    combine(Kind::product, int8, &out, inputs, 1);
    EXPECT_EQ(out, -2);
}

template <class T>
void divides_toward_zero(DType dtype) {
    std::vector<T> values{std::numeric_limits<T>::min(), std::numeric_limits<T>::max(), 0, 1, static_cast<T>(-1)};
    for (int i = -9; i < 100; ++i) values.push_back(static_cast<T>(i));
    std::mt19937_64 random(1);
    for (int i = 0; i < 100; ++i) values.push_back(static_cast<T>(random()));
    const std::vector<const void*> inputs{values.data()};
    std::vector<T> out(values.size());
    for (const std::uint64_t divisor : {2ULL, 3ULL, 7ULL, 8ULL, 127ULL, 128ULL, 255ULL, 256ULL, 1000ULL, 1ULL << 40}) {
        combine(Kind::avg, dtype, out.data(), inputs, out.size(), divisor);
        for (std::size_t i = 0; i < out.size(); ++i) {
            using Wide = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
            const Wide wanted = static_cast<Wide>(values[i]) / static_cast<Wide>(divisor);
            ASSERT_EQ(static_cast<Wide>(out[i]), wanted) << to_string(dtype) << ' ' << +values[i] << '/' << divisor;
        }
    }
}

TEST(Combine, divides_integers_toward_zero) {
    covers("S10-009", "A-43");
    const std::int32_t a = -3, b = -4;
    const std::vector<const void*> inputs{&a, &b};
    std::int32_t out = 0;
    combine(Kind::avg, int32, &out, inputs, 1, 2);
    EXPECT_EQ(out, -3);
    divides_toward_zero<std::uint8_t>(uint8);
    divides_toward_zero<std::uint16_t>(uint16);
    divides_toward_zero<std::uint32_t>(uint32);
    divides_toward_zero<std::uint64_t>(uint64);
    divides_toward_zero<std::int8_t>(int8);
    divides_toward_zero<std::int16_t>(int16);
    divides_toward_zero<std::int32_t>(int32);
    divides_toward_zero<std::int64_t>(int64);
}

TEST(Combine, takes_an_average_with_divisor_1_for_a_partial_sum) {
    const float a = 1, b = 2;
    const std::vector<const void*> inputs{&a, &b};
    float out = 0;
    combine(Kind::avg, float32, &out, inputs, 1, 1);
    EXPECT_EQ(out, 3);
}

TEST(Combine, reports_what_has_no_kernel) {
    covers("S10-012", "A-44");
    const std::complex<double> a{1, 2};
    const std::vector<const void*> inputs{&a, &a};
    std::complex<double> out;
    for (int op = 0; op < reduce_op_count; ++op) {
        for (int type = 0; type < dtype_count; ++type) {
            const auto kind = static_cast<Kind>(op);
            const auto dtype = static_cast<DType>(type);
            if (kind == Kind::premul_sum) continue;
            if (is_supported(kind, dtype))
                EXPECT_NO_THROW(combine(kind, dtype, &out, inputs, 1));
            else
                EXPECT_THROW(combine(kind, dtype, &out, inputs, 1), InternalError);
        }
    }
}

TEST(Premultiply, scales_in_the_type_of_accumulation) {
    covers("S10-010", "S10-011", "A-45");
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
    const std::complex<double> number{3, -4};
    std::complex<double> product;
    premultiply(complex128, &product, &number, 0.5, 1);
    EXPECT_EQ(product, (std::complex<double>{1.5, -2}));
    EXPECT_THROW(premultiply(boolean, &out, &large, 2.0, 1), InternalError);
    EXPECT_EQ(accumulation_dtype(float8_e5m2), float32);
    EXPECT_EQ(accumulation_dtype(int8), int8);
}

// Against the value types, which convert one number at a time.
TEST(Convert, rounds_as_the_value_types_do) {
    std::vector<float> values;
    for (const float base : {0.0F, 1.0F, 1.00390625F, 1.01171875F, 3.1415927F, 65504.0F, 1e-5F, 1e30F})
        for (const float sign : {1.0F, -1.0F}) values.push_back(sign * base);
    const std::size_t count = values.size();
    std::vector<BFloat16> halves(count);
    convert(bfloat16, halves.data(), float32, values.data(), count);
    std::vector<float> back(count);
    convert(float32, back.data(), bfloat16, halves.data(), count);
    std::vector<double> wide(count);
    convert(float64, wide.data(), float32, values.data(), count);
    std::vector<float> narrow(count);
    convert(float32, narrow.data(), float64, wide.data(), count);
    for (std::size_t i = 0; i < count; ++i) {
        EXPECT_EQ(back[i], float(BFloat16(values[i]))) << values[i];
        EXPECT_EQ(wide[i], static_cast<double>(values[i]));
    }
    EXPECT_EQ(narrow, values);
    EXPECT_THROW(convert(float32, narrow.data(), float32, values.data(), count), InternalError);
    EXPECT_THROW(convert(bfloat16, halves.data(), float64, wide.data(), count), InternalError);
}

}  // namespace
}  // namespace tutti::kernels
