// Codes and back: the bound on random blocks, NaN and infinities, every type, length and target.
#include "quantize/quantize.hpp"
#include "quantize/kernels.hpp"
#include "reduce/reduce.hpp"
#include "reduce/targets.hpp"
#include "support/covers.hpp"

#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace tutti::quantize {
namespace {

constexpr Format formats[] = {Format::int8, Format::int4, Format::float8_e4m3fn, Format::float8_e5m2};
constexpr DType sources[] = {DType::float32, DType::float16, DType::bfloat16};
constexpr float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();

#if defined(HWY_COMPILE_ONLY_STATIC) || defined(TUTTI_EMULATED)  // sanitizers, which look at each access; QEMU
constexpr std::size_t random_blocks = 20'000;
#else
constexpr std::size_t random_blocks = 1'000'000;
#endif

// Numbers of every size that a float has, or of one size.
class Numbers {
 public:
    explicit Numbers(unsigned seed) : random_(seed) {}
    void fill(std::span<float> values) {
        const auto kind = random_() % 8;
        const float size = std::ldexp(1.0F, static_cast<int>(random_() % 240) - 140);
        for (float& value : values) {
            const auto bits = static_cast<std::uint32_t>(random_());
            const float unit = static_cast<float>(static_cast<std::int32_t>(bits)) * 0x1p-31F;
            value = unit * size;
            if (kind == 0) value = std::bit_cast<float>(bits & 0x807fffff);  // subnormal
            if (kind == 1) value = bits % 5 == 0 ? unit * size : 0;          // few that are not zero
            if (kind == 2) value = unit * unit * unit * size;                // mostly far below the largest
        }
    }
    std::uint64_t operator()() { return random_(); }

 private:
    std::mt19937_64 random_;
};

std::vector<std::uint8_t> stored(DType dtype, const std::vector<float>& values) {
    std::vector<std::uint8_t> bytes(values.size() * size_of(dtype));
    kernels::round_to(dtype, bytes.data(), DType::float32, values.data(), values.size());
    return bytes;
}
std::vector<float> as_float(DType dtype, const std::vector<std::uint8_t>& bytes) {
    std::vector<float> values(bytes.size() / size_of(dtype));
    kernels::premultiply(dtype, values.data(), bytes.data(), 1.0, values.size());
    return values;
}

struct Encoded {
    std::vector<float> scales;
    std::vector<std::byte> codes;
};
Encoded encoded(Format format, DType dtype, const void* from, const Blocks& run, const Noise* noise = nullptr,
                Scales kind = Scales::found, float given = 0) {
    Encoded e{std::vector<float>(run.blocks() + 1, given), std::vector<std::byte>(run.code_bytes(format) + 1)};
    encode(format, dtype, from, run, kind, e.scales.data(), e.codes.data(), noise);
    return e;
}
std::vector<float> decoded(Format format, const Encoded& e, const Blocks& run) {
    std::vector<float> values(run.count);
    decode(format, e.codes.data(), e.scales.data(), run, DType::float32, values.data());
    return values;
}

TEST(Quantize, the_bound_holds_for_a_million_random_blocks) {
    constexpr std::size_t block = 32, at_once = 64;
    for (const Format format : formats) {
        Numbers numbers(static_cast<unsigned>(format) + 1);
        std::vector<float> values(block * at_once);
        const Blocks run{values.size(), block, block};
        double worst = 0;
        for (std::size_t done = 0; done < random_blocks; done += at_once) {
            for (std::size_t b = 0; b < at_once; ++b) numbers.fill(std::span(values).subspan(b * block, block));
            const std::vector<float> back = decoded(format, encoded(format, DType::float32, values.data(), run), run);
            for (std::size_t b = 0; b < at_once; ++b) {
                float most = 0;
                double error = 0;
                for (std::size_t i = b * block; i < (b + 1) * block; ++i) {
                    most = std::max(most, std::abs(values[i]));
                    error = std::max(error, std::abs(static_cast<double>(values[i]) - static_cast<double>(back[i])));
                }
                const double bound = error_bound(format, most);
                ASSERT_LE(error, bound) << "format " << static_cast<int>(format) << ", largest magnitude " << most;
                if (bound > 0) worst = std::max(worst, error / bound);
            }
        }
        EXPECT_GT(worst, 0.9) << "the bound says little of format " << static_cast<int>(format);
    }
}

TEST(Quantize, the_largest_number_of_a_block_is_exact) {
    for (const Format format : formats) {
        std::vector<float> values{0.5F, -381, 3, 0};
        const Blocks run{4, 32, 32};
        EXPECT_NEAR(decoded(format, encoded(format, DType::float32, values.data(), run), run)[1], -381, 1e-4);
    }
}

TEST(Quantize, a_block_of_zeros_stays_zeros) {
    std::vector<float> values(100, 0);
    values[40] = -0.0F;
    for (const Format format : formats) {
        const Blocks run{100, 32, 32};
        const Encoded e = encoded(format, DType::float32, values.data(), run);
        for (std::size_t i = 0; i < run.blocks(); ++i) EXPECT_EQ(e.scales[i], 0);
        for (const float value : decoded(format, e, run)) EXPECT_EQ(value, 0);
    }
}

TEST(Quantize, a_block_with_nan_or_infinity_becomes_nan_and_no_other) {
    for (const float bad : {nan, -nan, infinity, -infinity}) {
        for (const DType dtype : sources) {
            for (const std::size_t place : {32U, 50U, 63U}) {
                std::vector<float> values(96, 1.5F);
                values[place] = bad;
                const auto bytes = stored(dtype, values);
                for (const Format format : formats) {
                    for (const Scales kind : {Scales::found, Scales::given}) {
                        const Blocks run{96, 32, 32};
                        const auto back =
                            decoded(format, encoded(format, dtype, bytes.data(), run, nullptr, kind, 0.5F), run);
                        for (std::size_t i = 0; i < 96; ++i)
                            ASSERT_EQ(std::isnan(back[i]), i / 32 == 1) << i << " of " << to_string(dtype);
                    }
                }
            }
        }
    }
}

TEST(Quantize, subnormal_numbers_are_multiples_of_the_smallest_scale) {
    const float tiny = std::numeric_limits<float>::denorm_min();
    const std::vector<float> values{tiny, 3 * smallest_scale, smallest_scale * 0.6F, smallest_scale * 0.4F, -tiny};
    const Blocks run{5, 32, 32};
    const Encoded e = encoded(Format::int8, DType::float32, values.data(), run);
    EXPECT_EQ(e.scales[0], smallest_scale);
    EXPECT_EQ(decoded(Format::int8, e, run), (std::vector<float>{0, 3 * smallest_scale, smallest_scale, 0, 0}));
}

TEST(Quantize, beyond_a_given_scale_numbers_become_the_largest_code) {
    const std::vector<float> values{1000, -1e30F, 63.5F, -0.3F, 0.2F};
    const Blocks run{5, 5, 5};
    const Encoded e = encoded(Format::int8, DType::float32, values.data(), run, nullptr, Scales::given, 0.5F);
    EXPECT_EQ(decoded(Format::int8, e, run), (std::vector<float>{63.5F, -63.5F, 63.5F, -0.5F, 0}));
    const Encoded half = encoded(Format::int4, DType::float32, values.data(), run, nullptr, Scales::given, 0.5F);
    EXPECT_EQ(decoded(Format::int4, half, run), (std::vector<float>{3.5F, -3.5F, 3.5F, -0.5F, 0}));
    const Encoded eight = encoded(Format::float8_e4m3fn, DType::float32, values.data(), run, nullptr, Scales::given, 1);
    EXPECT_EQ(decoded(Format::float8_e4m3fn, eight, run)[1], -448);
}

TEST(Quantize, ties_go_to_the_even_code) {
    const std::vector<float> values{0.5F, 1.5F, 2.5F, -0.5F, -1.5F, 127};
    const Blocks run{6, 32, 32};
    EXPECT_EQ(decoded(Format::int8, encoded(Format::int8, DType::float32, values.data(), run), run),
              (std::vector<float>{0, 2, 2, 0, -2, 127}));
}

TEST(Quantize, runs_of_any_length_are_cut_alike) {
    for (const Format format : formats) {
        for (const std::size_t count : {0U, 1U, 5U, 31U, 64U, 70U, 300U, 2500U}) {
            for (const std::size_t block : {1U, 7U, 32U, 256U, 1500U}) {
                for (const std::size_t lead : {std::size_t{1}, block / 2, block}) {
                    const Blocks run{count, block, std::max<std::size_t>(lead, 1)};
                    std::size_t blocks = 0, elements = 0, bytes = 0;
                    run.for_each_block(format, [&](std::size_t i, std::size_t at, std::size_t n, std::size_t code) {
                        EXPECT_EQ(i, blocks);
                        EXPECT_EQ(at, elements);
                        EXPECT_EQ(code, bytes);
                        EXPECT_GT(n, 0U);
                        EXPECT_TRUE(i == 0 ? n == std::min(count, run.lead) : n == std::min(block, count - at));
                        ++blocks, elements += n, bytes += code_bytes(format, n);
                    });
                    ASSERT_EQ(blocks, run.blocks()) << count << ", " << block << ", " << lead;
                    ASSERT_EQ(elements, count);
                    ASSERT_EQ(bytes, run.code_bytes(format));
                }
            }
        }
    }
}

// Element by element, in double.
TEST(Quantize, every_length_type_and_format_agrees_with_plain_arithmetic) {
    Numbers numbers(5);
    for (const std::size_t count : {1U, 3U, 16U, 33U, 100U, 257U, 1100U}) {
        for (const DType dtype : sources) {
            std::vector<float> values(count);
            for (float& value : values) value = static_cast<float>(static_cast<int>(numbers() % 2001) - 1000) / 64;
            const auto bytes = stored(dtype, values);
            values = as_float(dtype, bytes);
            for (const Format format : {Format::int8, Format::int4}) {
                const Blocks run{count, 64, count % 64 == 0 ? 64 : count % 64};
                const Encoded e = encoded(format, dtype, bytes.data(), run);
                const auto back = decoded(format, e, run);
                run.for_each_block(format, [&](std::size_t i, std::size_t at, std::size_t n, std::size_t) {
                    for (std::size_t k = at; k < at + n; ++k) {
                        const float code = e.scales[i] == 0 ? 0 : std::nearbyint(values[k] * (1 / e.scales[i]));
                        ASSERT_EQ(back[k], code * e.scales[i]) << k << " of " << count << ", " << to_string(dtype);
                    }
                });
            }
            const Blocks run{count, 64, 64};
            for (const auto& [format, type] : {std::pair(Format::float8_e4m3fn, DType::float8_e4m3fn),
                                               std::pair(Format::float8_e5m2, DType::float8_e5m2)}) {
                const Encoded e = encoded(format, dtype, bytes.data(), run);
                std::vector<float> scaled(count);
                run.for_each_block(format, [&](std::size_t i, std::size_t at, std::size_t n, std::size_t) {
                    for (std::size_t k = at; k < at + n; ++k)
                        scaled[k] = e.scales[i] == 0
                                        ? 0
                                        : std::clamp(values[k] * (1 / e.scales[i]), -largest(format), largest(format));
                });
                const auto expected = stored(type, scaled);
                for (std::size_t k = 0; k < count; ++k)
                    ASSERT_EQ(static_cast<std::uint8_t>(e.codes[k]) & 0x7f, expected[k] & 0x7f)
                        << k << ": " << scaled[k];
            }
        }
    }
}

TEST(Quantize, sums_and_differences_are_of_what_codes_stand_for) {
    Numbers numbers(6);
    for (const Format format : formats) {
        const Blocks run{777, 96, 50};
        std::vector<float> values(run.count);
        numbers.fill(values);
        for (float& value : values) value = std::fmod(value, 100.0F);
        const Encoded e = encoded(format, DType::float32, values.data(), run);
        const auto back = decoded(format, e, run);
        std::vector<float> sums(run.count);
        add(format, e.codes.data(), e.scales.data(), run, Into::fresh, sums.data());
        EXPECT_EQ(sums, back);
        add(format, e.codes.data(), e.scales.data(), run, Into::sum, sums.data());
        for (std::size_t i = 0; i < run.count; ++i) ASSERT_EQ(sums[i], back[i] + back[i]);
        add(format, e.codes.data(), e.scales.data(), run, Into::difference, sums.data());
        EXPECT_EQ(sums, back);
        for (const DType dtype : sources) {
            std::vector<std::uint8_t> rounded(run.count * size_of(dtype));
            decode(format, e.codes.data(), e.scales.data(), run, dtype, rounded.data());
            EXPECT_EQ(rounded, stored(dtype, back)) << to_string(dtype);
        }
        if (!is_whole(format)) continue;
        std::vector<std::int32_t> whole(run.count, 5), once;
        add_codes(format, e.codes.data(), run, Into::fresh, whole.data());
        once = whole;
        for (int times = 1; times < 300; ++times) add_codes(format, e.codes.data(), run, Into::sum, whole.data());
        for (std::size_t i = 0; i < run.count; ++i) ASSERT_EQ(whole[i], 300 * once[i]);
        run.for_each_block(format, [&](std::size_t b, std::size_t at, std::size_t n, std::size_t) {
            for (std::size_t k = at; k < at + n; ++k) ASSERT_EQ(static_cast<float>(once[k]) * e.scales[b], back[k]);
        });
    }
}

TEST(Quantize, chance_is_philox_and_the_same_however_it_is_asked_for) {
    std::vector<std::uint32_t> words(4);
    random_words({}, 4, words.data());  // the known answer of Random123
    EXPECT_EQ(words, (std::vector<std::uint32_t>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
    std::vector<std::uint32_t> all(100), part(100);
    random_words({7, 3, 1000}, 100, all.data());
    random_words({7, 3, 1000}, 33, part.data());
    random_words({7, 3, 1033}, 67, part.data() + 33);
    EXPECT_EQ(part, all);
    random_words({7, 4, 1000}, 100, part.data());
    EXPECT_NE(part, all);
}

TEST(Quantize, rounding_by_chance_is_right_on_average_and_to_a_neighbour) {
    for (const Format format : formats) {
        const std::vector<float> values{0.3F, -0.71F, 0.05F, 0.9F, -0.001F, 1};
        const Blocks run{values.size(), 32, 32};
        std::vector<double> sums(values.size());
        constexpr int times = 20'000;
        for (std::uint64_t time = 0; time < times; ++time) {
            const Noise noise{9, 0, time * 8};
            const auto back = decoded(format, encoded(format, DType::float32, values.data(), run, &noise), run);
            for (std::size_t i = 0; i < values.size(); ++i) {
                sums[i] += static_cast<double>(back[i]);
                ASSERT_LE(std::abs(back[i] - values[i]), 2 * error_bound(format, 1));
            }
        }
        for (std::size_t i = 0; i < values.size(); ++i) {
            // Five standard deviations of a mean of values that are apart by a step.
            const double step = 2 * error_bound(format, 1);
            EXPECT_NEAR(sums[i] / times, static_cast<double>(values[i]), 5 * step / 2 / std::sqrt(times) + 1e-6)
                << "element " << i << " of format " << static_cast<int>(format);
        }
    }
}

TEST(Quantize, all_targets_give_the_same_bits) {
    struct Results {
        Encoded codes;
        std::vector<float> back;
        bool operator==(const Results& other) const {
            const auto same = [](const auto& a, const auto& b) {
                return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof a[0]) == 0;
            };
            return same(codes.scales, other.codes.scales) && same(codes.codes, other.codes.codes) &&
                   same(back, other.back);
        }
    };
    Numbers numbers(8);
    const Blocks run{1111, 128, 77};
    const Noise noise{3, 1, 5};
    std::vector<float> values(run.count);
    for (std::size_t at = 0; at < run.count; at += 11)
        numbers.fill(std::span(values).subspan(at, std::min<std::size_t>(11, run.count - at)));
    const auto all = [&] {
        std::vector<Results> results;
        for (const Format format : formats) {
            for (const DType dtype : sources) {
                const auto bytes = stored(dtype, values);
                for (const Noise* by : {static_cast<const Noise*>(nullptr), &noise}) {
                    const EncodeKernel kernel = find_encode_kernel(format, dtype);
                    Results r{encoded(format, dtype, bytes.data(), run), {}};
                    // The table keeps the kernels that were best at first: these are looked up for each target.
                    std::vector<std::uint32_t> words(2048);
                    find_random_kernel()(noise, run.count, words.data());
                    run.for_each_block(format, [&](std::size_t i, std::size_t at, std::size_t n, std::size_t code) {
                        if (r.codes.scales[i] > 0)
                            kernel(bytes.data() + at * size_of(dtype), n, r.codes.scales[i], Reach::within,
                                   by != nullptr ? words.data() + at : nullptr, r.codes.codes.data() + code);
                    });
                    r.back.resize(run.count);
                    run.for_each_block(format, [&](std::size_t i, std::size_t at, std::size_t n, std::size_t code) {
                        find_decode_kernel(format, DType::float32)(r.codes.codes.data() + code, n, r.codes.scales[i],
                                                                   r.back.data() + at);
                        find_add_kernel(format, Into::sum)(r.codes.codes.data() + code, n, r.codes.scales[i],
                                                           r.back.data() + at);
                    });
                    results.push_back(std::move(r));
                }
                EXPECT_EQ(find_magnitude_kernel(dtype)(bytes.data(), run.count), [&] {
                    std::uint32_t most = 0;
                    for (const float v : as_float(dtype, bytes))
                        most = std::max(most, std::bit_cast<std::uint32_t>(v) & 0x7fffffffU);
                    return most;
                }());
            }
        }
        return results;
    };
    std::vector<Results> first;
    for (std::int64_t left = HWY_TARGETS & hwy::SupportedTargets(); left != 0; left &= left - 1) {
        hwy::GetChosenTarget().Update(left & -left);
        std::vector<Results> now = all();
        if (first.empty())
            first = std::move(now);
        else
            EXPECT_TRUE(now == first) << kernels::target_name();
    }
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace
}  // namespace tutti::quantize
