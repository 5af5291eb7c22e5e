// All targets that this CPU can run give the same bits, and convert the small formats as the public types do.
#include "reduce/targets.hpp"
#include "reduce/kernels.hpp"

#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace tutti::kernels {
namespace {

using Kind = ReduceOp::Kind;

CombineKernel find_kernel(Kind kind, DType dtype) {
    for (const auto find : {find_float_kernel, find_low_precision_kernel, find_integer_kernel}) {
        if (const CombineKernel kernel = find(kind, dtype)) return kernel;
    }
    return nullptr;
}

template <class T>
bool is_nan_as(const std::uint8_t* bytes) {
    T value;
    std::memcpy(&value, bytes, sizeof(T));
    return std::isnan(static_cast<double>(static_cast<float>(value)));
}
bool is_nan(DType dtype, const std::uint8_t* bytes) {
    switch (dtype) {
        case DType::float16: return is_nan_as<Float16>(bytes);
        case DType::bfloat16: return is_nan_as<BFloat16>(bytes);
        case DType::float32: return is_nan_as<float>(bytes);
        case DType::float64: return is_nan_as<double>(bytes);
        case DType::complex64: return is_nan_as<float>(bytes) || is_nan_as<float>(bytes + 4);
        case DType::complex128: return is_nan_as<double>(bytes) || is_nan_as<double>(bytes + 8);
        case DType::float8_e4m3fn: return is_nan_as<Float8E4M3FN>(bytes);
        case DType::float8_e5m2: return is_nan_as<Float8E5M2>(bytes);
        default: return false;
    }
}

// Runs `body` once for each target, then restores the best one, with and without the instructions that not all CPUs of
// a target have or are quicker with. Kernels must be looked up inside.
template <class F>
void for_each_target(F body) {
    std::vector<std::string> seen;
    if (halves_by_avx2_are_quicker()) {
        body(std::string(target_name()) + " with float16 by AVX2");
        takes_halves_by_avx2() = false;
    }
    if (has_bfloat_instruction()) {
        takes_bfloat_instruction() = false;
        body(std::string(target_name()) + " without AVX512_BF16");
        takes_bfloat_instruction() = true;
    }
    for (std::int64_t left = HWY_TARGETS & hwy::SupportedTargets(); left != 0; left &= left - 1) {
        hwy::GetChosenTarget().Update(left & -left);
        seen.emplace_back(target_name());
        body(seen.back());
    }
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    takes_halves_by_avx2() = halves_by_avx2_are_quicker();
    ASSERT_EQ(target_name(), seen.front());
#ifndef HWY_COMPILE_ONLY_STATIC  // builds with sanitizers have one target
    EXPECT_GE(seen.size(), HWY_ARCH_X86 ? 2U : 1U);
#endif
}

TEST(Targets, give_the_same_bits) {
    constexpr std::size_t count = 1111;
    std::mt19937_64 random(7);
    std::vector<std::vector<std::uint8_t>> memory(9, std::vector<std::uint8_t>(count * 16));
    for (auto& bytes : memory) {
        for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
    }
    std::vector<const void*> inputs;
    for (const auto& bytes : memory) inputs.push_back(bytes.data());
    std::map<std::string, std::vector<std::uint8_t>> first;
    for_each_target([&](const std::string& target) {
        for (int op = 0; op < reduce_op_count; ++op) {
            for (int type = 0; type < dtype_count; ++type) {
                const auto kind = static_cast<Kind>(op);
                const auto dtype = static_cast<DType>(type);
                const CombineKernel kernel = find_kernel(kind, dtype);
                EXPECT_EQ(kernel != nullptr, kind != Kind::premul_sum && is_supported(kind, dtype));
                if (kernel == nullptr) continue;
                for (const std::size_t n : {2, 3, 4, 5, 8, 9}) {
                    std::vector<std::uint8_t> out(count * size_of(dtype));
                    kernel({out.data(), inputs.data(), n, count, kind == Kind::avg ? n : 1, Stores::cached});
                    const std::string what =
                        std::string(to_string(kind)) + ' ' + std::string(to_string(dtype)) + " n=" + std::to_string(n);
                    const auto [known, is_new] = first.emplace(what, out);
                    if (is_new) continue;
                    for (std::size_t i = 0; i < count; ++i) {
                        const std::size_t at = i * size_of(dtype);
                        if (std::memcmp(&known->second[at], &out[at], size_of(dtype)) == 0) continue;
                        // Of two NaN, which one a sum hands on is the CPU's choice.
                        ASSERT_TRUE(is_nan(dtype, &known->second[at]) && is_nan(dtype, &out[at]))
                            << what << " differs on " << target << " at " << i;
                    }
                }
            }
        }
    });
}

// Floats around everything that matters: each upper half with lower halves that round down, up and tie.
std::vector<float> floats() {
    std::vector<float> values;
    for (std::uint32_t upper = 0; upper < 0x10000; ++upper) {
        for (const std::uint32_t lower :
             {0x0000U, 0x0001U, 0x0fffU, 0x1000U, 0x1001U, 0x2000U, 0x7fffU, 0x8000U, 0x8001U, 0xf000U, 0xffffU}) {
            values.push_back(std::bit_cast<float>(upper << 16 | lower));
        }
    }
    return values;
}

template <class T>
void converts_like_the_public_type(DType dtype, const std::vector<float>& values, const std::string& target) {
    std::vector<T> narrow(values.size());
    find_round_kernel(dtype)(narrow.data(), values.data(), values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
        ASSERT_EQ(narrow[i].bits, T(values[i]).bits)
            << target << ' ' << to_string(dtype) << ' ' << std::hexfloat << values[i];
    }
    std::vector<T> patterns(std::size_t{1} << 8 * sizeof(T));
    for (std::size_t i = 0; i < patterns.size(); ++i) patterns[i].bits = static_cast<decltype(T::bits)>(i);
    std::vector<float> wide(patterns.size());
    find_low_precision_scale_kernel(dtype)(wide.data(), patterns.data(), 1.0, patterns.size());
    for (std::size_t i = 0; i < patterns.size(); ++i) {
        const auto wanted = static_cast<float>(patterns[i]);
        if (std::isnan(wanted)) {
            ASSERT_TRUE(std::isnan(wide[i])) << target << ' ' << to_string(dtype) << ' ' << i;
        } else {
            ASSERT_EQ(std::bit_cast<std::uint32_t>(wide[i]), std::bit_cast<std::uint32_t>(wanted))
                << target << ' ' << to_string(dtype) << ' ' << i;
        }
    }
}

TEST(Targets, convert_small_floats_like_the_public_types) {
    const std::vector<float> values = floats();
    for_each_target([&](const std::string& target) {
        converts_like_the_public_type<Float16>(float16, values, target);
        converts_like_the_public_type<BFloat16>(bfloat16, values, target);
        converts_like_the_public_type<Float8E4M3FN>(float8_e4m3fn, values, target);
        converts_like_the_public_type<Float8E5M2>(float8_e5m2, values, target);
    });
}

TEST(Targets, scale_and_round_any_count_at_any_address) {
    for_each_target([&](const std::string& target) {
        for (std::size_t count = 0; count < 70; ++count) {
            std::vector<std::uint8_t> source(count * 4 + 8), target_bytes(count * 2 + 8, 0xa5);
            for (std::size_t i = 0; i < count; ++i) {
                const auto value = static_cast<float>(i);
                std::memcpy(&source[3 + 4 * i], &value, 4);
            }
            find_round_kernel(DType::bfloat16)(&target_bytes[1], &source[3], count);
            std::vector<std::uint8_t> back(count * 4 + 8, 0xa5);
            find_low_precision_scale_kernel(DType::bfloat16)(&back[1], &target_bytes[1], 2.0, count);
            for (std::size_t i = 0; i < count; ++i) {
                float value = 0;
                std::memcpy(&value, &back[1 + 4 * i], 4);
                ASSERT_EQ(value, 2 * static_cast<float>(i)) << target << ' ' << count;
            }
            ASSERT_EQ(target_bytes[1 + 2 * count], 0xa5) << target << ' ' << count;
            ASSERT_EQ(back[1 + 4 * count], 0xa5) << target << ' ' << count;
        }
    });
}

}  // namespace
}  // namespace tutti::kernels
