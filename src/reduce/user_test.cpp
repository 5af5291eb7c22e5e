// Operators of the caller: from left to right, in place or not, on memory of any alignment.
#include "reduce/user.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace tutti::kernels {
namespace {

/// x → factor x + shift, modulo 2⁶⁴; aligned more than its size needs.
struct alignas(32) Affine {
    std::uint64_t factor, shift;
};
Affine then(Affine a, Affine b) {
    return {a.factor * b.factor, a.shift * b.factor + b.shift};
}
Affine value(std::size_t input, std::size_t i) {
    return {2 * input + i + 3, 7 * i + input};
}

constexpr std::size_t around = 64;

// Calls f(at, expected): `at` are the inputs in memory of the test.
void for_inputs(std::size_t inputs, std::size_t count, std::size_t misaligned, auto f) {
    const std::vector<std::byte> one_memory(count * sizeof(Affine) + 2 * around);
    std::vector<std::vector<std::byte>> memory(inputs + 1, one_memory);
    std::vector<const void*> at(inputs);
    std::vector<Affine> expected(count);
    for (std::size_t k = 0; k < inputs; ++k) {
        std::byte* const begin = memory[k].data() + misaligned * (k % 3);
        for (std::size_t i = 0; i < count; ++i) {
            const Affine one = value(k, i);
            std::memcpy(begin + i * sizeof one, &one, sizeof one);
            expected[i] = k == 0 ? one : then(expected[i], one);
        }
        at[k] = begin;
    }
    f(at, memory.back().data() + misaligned, expected);
}

void expect_equal(const void* got, const std::vector<Affine>& expected, const std::string& what) {
    for (std::size_t i = 0; i < expected.size(); ++i) {
        Affine one;
        std::memcpy(&one, static_cast<const std::byte*>(got) + i * sizeof one, sizeof one);
        ASSERT_TRUE(one.factor == expected[i].factor && one.shift == expected[i].shift) << what << ", element " << i;
    }
}

TEST(CombineByUser, goes_from_left_to_right_wherever_the_result_lies) {
    const ReduceOp op = ReduceOp::of(&then, {.commutative = false});
    for (const std::size_t inputs : {1, 2, 3, 4, 5, 9}) {
        for (const std::size_t count : {0, 1, 255, 256, 257, 1000}) {
            for (const std::size_t misaligned : {0, 8, 5}) {
                for (std::size_t in_place = 0; in_place <= inputs; ++in_place) {
                    for_inputs(inputs, count, misaligned, [&](const auto& at, void* apart, const auto& expected) {
                        void* const to = in_place == inputs ? apart : const_cast<void*>(at[in_place]);
                        combine_by_user(*op.user(), to, at, count);
                        expect_equal(to, expected,
                                     std::to_string(inputs) + " inputs, " + std::to_string(count) + ", in place of " +
                                         std::to_string(in_place) + ", misaligned by " + std::to_string(misaligned));
                    });
                }
            }
        }
    }
}

TEST(CombineByUser, takes_elements_of_any_size) {
    using Large = std::array<std::uint32_t, 16 << 10>;  // 64 KiB
    const auto add = [](const Large* in, Large* inout, std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) {
            for (std::size_t k = 0; k < (*in).size(); ++k) inout[i][k] += in[i][k];
        }
    };
    const ReduceOp op = ReduceOp::of(add);
    std::vector<Large> a(3), b(3), c(3);
    for (std::size_t i = 0; i < 3; ++i) a[i].fill(1), b[i].fill(2), c[i].fill(static_cast<std::uint32_t>(i));
    const void* const inputs[] = {a.data(), b.data(), c.data()};
    combine_by_user(*op.user(), b.data(), inputs, 3);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(b[i].back(), 3 + i);
}

TEST(CombineByUser, says_which_operator_has_thrown_what) {
    const auto failure_of = [](auto f) -> std::string {
        const ReduceOp op = ReduceOp::of(f, {.name = "moody"});
        const double a = 1;
        double b = 2;
        const void* const inputs[] = {&a, &b};
        try {
            combine_by_user(*op.user(), &b, inputs, 1);
        } catch (const OperatorFailed& error) {
            return error.what();
        }
        return "nothing";
    };
    EXPECT_EQ(failure_of([](double, double) -> double { throw std::runtime_error("not today"); }),
              "operator \"moody\" of 8-byte elements has failed: not today");
    EXPECT_EQ(failure_of([](double, double) -> double { throw 7; }),
              "operator \"moody\" of 8-byte elements has failed: it has thrown an object that is no std::exception");
}

}  // namespace
}  // namespace tutti::kernels
