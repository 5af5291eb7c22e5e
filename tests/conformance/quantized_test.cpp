// Quantised collectives: the document's example, plain models of what they do, the bound, equal bits on all ranks, what
// travels. Who may not ask for what: quantized_errors_test.cpp.
#include "conformance/world.hpp"
#include "quantize/quantize.hpp"
#include "reduce/reduce.hpp"
#include "support/covers.hpp"
#include "support/tcp_bytes.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

namespace tutti::test::quantising {
namespace {

using quantize::Format;
using Floats = std::vector<float>;

class Quantized : public ::testing::TestWithParam<How> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Quantized, ::testing::ValuesIn(every_way()),
                         [](const auto& instance) { return to_string(instance.param); });

Format format_of(QuantizedType type) {
    return static_cast<Format>(static_cast<int>(type));
}

// What a rank contributes: numbers of several sizes.
Floats values_of(int rank, std::size_t elements, unsigned seed = 0) {
    std::mt19937 random(static_cast<unsigned>(rank) * 1000 + seed + 1);
    Floats values(elements);
    for (std::size_t i = 0; i < elements; ++i) {
        const float unit = static_cast<float>(static_cast<int>(random() % 20001) - 10000) / 10000;
        values[i] = unit * std::ldexp(1.0F, static_cast<int>(i / 300 % 5) * 2 - 3);
    }
    return values;
}
std::vector<std::byte> stored(DType dtype, const Floats& values) {
    std::vector<std::byte> bytes(values.size() * size_of(dtype));
    kernels::round_to(dtype, bytes.data(), DType::float32, values.data(), values.size());
    return bytes;
}
Floats as_floats(DType dtype, const std::vector<std::byte>& bytes) {
    Floats values(bytes.size() / size_of(dtype));
    kernels::premultiply(dtype, values.data(), bytes.data(), 1.0, values.size());
    return values;
}
TensorView view_of(std::vector<std::byte>& bytes, DType dtype, Extents shape = {}) {
    if (shape.empty()) shape = Extents::of(static_cast<std::int64_t>(bytes.size() / size_of(dtype)));
    return {bytes.data(), shape, dtype};
}

// Blocks from the beginning, as codes and back.
Floats through_codes(Format format, const Floats& values, std::size_t block, const Floats* magnitudes = nullptr) {
    const quantize::Blocks run{values.size(), block, block};
    Floats scales(run.blocks() + 1), back(values.size());
    std::vector<std::byte> codes(run.code_bytes(format) + 1);
    auto kind = quantize::Scales::found;
    if (magnitudes != nullptr) {
        kind = quantize::Scales::before;
        for (std::size_t i = 0; i < run.blocks(); ++i) scales[i] = quantize::scale_of(format, (*magnitudes)[i]);
    }
    quantize::encode(format, DType::float32, values.data(), run, kind, scales.data(), codes.data());
    quantize::decode(format, codes.data(), scales.data(), run, DType::float32, back.data());
    return back;
}
Floats magnitudes_of(const Floats& values, std::size_t block) {
    const quantize::Blocks run{values.size(), block, block};
    Floats found(run.blocks());
    quantize::find_magnitudes(DType::float32, values.data(), run, found.data());
    return found;
}

// A plain model of an all_reduce whose slices consist of whole blocks: where they end makes no difference.
Floats modelled(int ranks, std::size_t elements, DType input, const QuantizedOptions& o, std::size_t block) {
    const Format format = format_of(o.type);
    std::vector<Floats> inputs;
    Floats most;
    for (int r = 0; r < ranks; ++r) {
        inputs.push_back(as_floats(input, stored(input, values_of(r, elements))));
        const Floats own = magnitudes_of(inputs.back(), block);
        if (most.empty()) most.resize(own.size());
        for (std::size_t i = 0; i < own.size(); ++i) most[i] = std::max(most[i], own[i]);
    }
    const bool shared = o.scales == QuantizedScales::shared;
    Floats sums(elements);
    if (shared && quantize::is_whole(format)) {  // whole numbers are added up
        std::vector<std::int64_t> whole(elements);
        for (const Floats& values : inputs) {
            const Floats back = through_codes(format, values, block, &most);
            for (std::size_t i = 0; i < elements; ++i) {
                const float scale = quantize::scale_of(format, most[i / block]);
                if (scale > 0) whole[i] += std::lround(static_cast<double>(back[i]) / static_cast<double>(scale));
            }
        }
        for (std::size_t i = 0; i < elements; ++i)
            sums[i] = static_cast<float>(whole[i]) * quantize::scale_of(format, most[i / block]);
    } else {
        for (std::size_t r = 0; r < inputs.size(); ++r) {
            const Floats back = through_codes(format, inputs[r], block, shared ? &most : nullptr);
            for (std::size_t i = 0; i < elements; ++i) sums[i] = r == 0 ? back[i] : sums[i] + back[i];
        }
    }
    if (o.op == ReduceOp::avg) {
        for (float& sum : sums) sum /= static_cast<float>(ranks);
    }
    return o.quantize_results ? through_codes(format, sums, block) : sums;
}

// The same bits on all ranks.
void expect_equal_on_all(const ProcessGroup& g, const std::vector<std::byte>& mine, const std::string& what) {
    std::vector<std::byte> all(mine.size() * static_cast<std::size_t>(g.size()));
    all_gather_into_tensor(all, mine, {.group = g});
    for (std::size_t r = 0; r < static_cast<std::size_t>(g.size()); ++r)
        ASSERT_EQ(std::memcmp(all.data() + r * mine.size(), mine.data(), mine.size()), 0) << what << ", rank " << r;
}

// ---- E-904

TEST_P(Quantized, the_documents_example_does_not_saturate) {
    covers("E-904", "S22-001", "S22-002", "S22-003", "S22-004", "S22-005");
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        const std::vector<std::int8_t> x =
            g.rank() == 0 ? std::vector<std::int8_t>{100, 100, -3, 4} : std::vector<std::int8_t>{100, 27, 3, 5};
        std::vector<Float16> out(4);
        const auto as_float = [&] { return Floats{float(out[0]), float(out[1]), float(out[2]), float(out[3])}; };
        quantized_all_reduce(out, x, {.scale = 0.5F, .quantize_results = false, .group = g});
        EXPECT_EQ(as_float(), (Floats{100, 63.5F, 0, 4.5F}));
        // The steps one by one: codes to their owners, sums that no int8 holds, numbers again, to all.
        std::vector<Float16> own(2), all(4);
        const auto before = group_counters(g).bytes;
        quantized_reduce_scatter(own, x, {.scale = 0.5F, .group = g});
        EXPECT_EQ(group_counters(g).bytes - before, 4U + sizeof(float)) << "four codes, and a scale";
        EXPECT_EQ(float(own[0]), g.rank() == 0 ? 100 : 0);
        EXPECT_EQ(float(own[1]), g.rank() == 0 ? 63.5F : 4.5F);
        all_gather_into_tensor(all, own, {.group = g});
        EXPECT_EQ(float(all[3]), 4.5F);
        // The second leg quantised too: to multiples of 100 / 127.
        quantized_all_reduce(out, x, {.scale = 0.5F, .group = g});
        const Floats rounded = as_float();
        EXPECT_EQ(rounded[0], 100);
        EXPECT_NEAR(rounded[1], 63.5F, 100.0F / 127 / 2 + 0.04F);
        EXPECT_EQ(rounded[2], 0);
        EXPECT_NEAR(rounded[3], 4.5F, 100.0F / 127 / 2 + 0.01F);
        // 127 · 4 codes that are as large as can be: the average is right, too.
        const std::vector<std::int8_t> most(508, 127);
        Floats average(508);
        quantized_all_reduce(average, most,
                             {.scale = 2.0F, .quantize_results = false, .op = ReduceOp::avg, .group = g});
        EXPECT_EQ(average, Floats(508, 254));
    });
}

// ---- Against the model

TEST_P(Quantized, results_are_those_of_the_model_for_all_types_ranks_and_counts) {
    for (const int n : watched ? std::vector{2, 3} : std::vector{1, 2, 3, 4}) {
        run_ranks(n, GetParam(), [](const ProcessGroup& g) {
            struct Case {
                QuantizedOptions options;
                DType input = float32, output = float32;
            };
            std::vector<Case> cases;
            for (const auto type :
                 {QuantizedType::int8, QuantizedType::int4, QuantizedType::float8_e4m3fn, QuantizedType::float8_e5m2}) {
                cases.push_back({{.type = type}});
                cases.push_back({{.type = type, .block = 32, .quantize_results = false}, float16, bfloat16});
                cases.push_back({{.type = type, .block = 1024, .scales = QuantizedScales::shared}, bfloat16, float16});
                cases.push_back({{.type = type,
                                  .block = 96,
                                  .scales = QuantizedScales::shared,
                                  .quantize_results = false,
                                  .op = ReduceOp::avg},
                                 float16,
                                 float32});
            }
            for (const std::size_t elements : {0U, 1U, 31U, 1001U, watched ? 5003U : 150'001U}) {
                for (Case& c : cases) {
                    c.options.group = g;
                    const std::string what =
                        std::to_string(elements) + " as type " + std::to_string(static_cast<int>(c.options.type)) +
                        " in blocks of " + std::to_string(c.options.block) + ", " + std::to_string(g.size()) + " ranks";
                    std::vector<std::byte> in = stored(c.input, values_of(g.rank(), elements));
                    std::vector<std::byte> out(elements * size_of(c.output));
                    quantized_all_reduce(view_of(out, c.output), view_of(in, c.input), c.options);
                    const Floats model =
                        modelled(g.size(), elements, c.input, c.options, static_cast<std::size_t>(c.options.block));
                    ASSERT_EQ(out, stored(c.output, model)) << what;
                    expect_equal_on_all(g, out, what);
                }
            }
        });
    }
}

TEST_P(Quantized, rows_and_tensors_with_one_scale_stay_in_the_bound_and_equal_on_all_ranks) {
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        const std::int64_t rows = watched ? 3 : 7;
        for (const std::int64_t row : {std::int64_t{1}, std::int64_t{35}, std::int64_t{1000}, std::int64_t{70'001}}) {
            if (watched && row > 1000) continue;
            const auto elements = static_cast<std::size_t>(rows * row);
            for (const auto type : {QuantizedType::int8, QuantizedType::int4, QuantizedType::float8_e4m3fn}) {
                for (const std::int64_t block : {QuantizedOptions::per_row, QuantizedOptions::per_tensor}) {
                    for (const auto scales : {QuantizedScales::per_rank, QuantizedScales::shared}) {
                        std::vector<std::byte> x = stored(float32, values_of(g.rank(), elements));
                        quantized_all_reduce(view_of(x, float32, {rows, row}),
                                             {.type = type, .block = block, .scales = scales, .group = g});
                        const std::size_t length =
                            block == QuantizedOptions::per_row ? static_cast<std::size_t>(row) : elements;
                        std::vector<double> sum(elements), bound(elements);
                        Floats shared;
                        for (int r = 0; r < g.size(); ++r) {
                            const Floats most = magnitudes_of(values_of(r, elements), length);
                            shared.resize(most.size());
                            for (std::size_t i = 0; i < most.size(); ++i) shared[i] = std::max(shared[i], most[i]);
                        }
                        for (int r = 0; r < g.size(); ++r) {
                            const Floats values = values_of(r, elements), most = magnitudes_of(values, length);
                            for (std::size_t i = 0; i < elements; ++i) {
                                sum[i] += static_cast<double>(values[i]);
                                const float m =
                                    scales == QuantizedScales::shared ? shared[i / length] : most[i / length];
                                bound[i] += quantize::error_bound(format_of(type), m);
                            }
                        }
                        const Floats result = as_floats(float32, x);
                        constexpr double factor = 2.08;  // both legs
                        for (std::size_t i = 0; i < elements; ++i) {
                            ASSERT_LE(std::abs(static_cast<double>(result[i]) - sum[i]), factor * bound[i] + 1e-6)
                                << i << " of " << rows << " × " << row << " as type " << static_cast<int>(type);
                        }
                        expect_equal_on_all(g, x, "rows of " + std::to_string(row));
                    }
                }
            }
        }
    });
}

// The sentence of the header: at most 1.003 Σ s (int4: 1.04), without the second leg 0.501.
TEST_P(Quantized, sums_are_as_near_as_the_header_says) {
    run_ranks(4, GetParam(), [](const ProcessGroup& g) {
        constexpr std::size_t block = 64;
        const std::size_t elements = watched ? 64 * 30 : 64 * 3000;
        for (const auto& [type, both, largest] :
             {std::tuple(QuantizedType::int8, 1.003, 127.0), std::tuple(QuantizedType::int4, 1.04, 7.0)}) {
            for (const bool results : {true, false}) {
                Floats x = values_of(g.rank(), elements, 4);
                quantized_all_reduce(x, {.type = type, .block = block, .quantize_results = results, .group = g});
                std::vector<double> sum(elements), scales(elements / block);
                for (int r = 0; r < g.size(); ++r) {
                    const Floats values = values_of(r, elements, 4), most = magnitudes_of(values, block);
                    for (std::size_t i = 0; i < elements; ++i) sum[i] += static_cast<double>(values[i]);
                    for (std::size_t b = 0; b < scales.size(); ++b) scales[b] += static_cast<double>(most[b]) / largest;
                }
                double worst = 0;
                for (std::size_t i = 0; i < elements; ++i) {
                    const double error = std::abs(static_cast<double>(x[i]) - sum[i]);
                    worst = std::max(worst, error / scales[i / block]);
                }
                EXPECT_LE(worst, results ? both : 0.501);
                EXPECT_GT(worst, results ? 0.4 : 0.3) << "the bound says little";
            }
        }
    });
}

// ---- The halves

TEST_P(Quantized, pieces_may_differ_in_size) {
    for (const int n : {1, 3}) {
        run_ranks(n, GetParam(), [](const ProcessGroup& g) {
            const auto me = static_cast<std::size_t>(g.rank()), ranks = static_cast<std::size_t>(g.size());
            std::vector<std::int64_t> counts, offsets;
            std::int64_t all = 0;
            for (std::size_t r = 0; r < ranks; ++r) {
                counts.push_back(r == 1 ? 0 : static_cast<std::int64_t>(r) * (watched ? 500 : 70'000) + 77);
                offsets.push_back(all);
                all += counts.back();
            }
            for (const auto type : {QuantizedType::int8, QuantizedType::int4, QuantizedType::float8_e5m2}) {
                QuantizedOptions o{.type = type, .block = 64, .counts = counts, .group = g};
                // Sums of this rank's piece; blocks begin with the piece.
                const Floats input = values_of(g.rank(), static_cast<std::size_t>(all));
                Floats own(static_cast<std::size_t>(counts[me]));
                quantized_reduce_scatter(own, input, o);
                Floats expected(own.size());
                for (int r = 0; r < g.size(); ++r) {
                    const Floats values = values_of(r, static_cast<std::size_t>(all));
                    const auto first = values.begin() + offsets[me];
                    const Floats back = through_codes(format_of(type), Floats(first, first + counts[me]), 64);
                    for (std::size_t i = 0; i < own.size(); ++i) expected[i] = r == 0 ? back[i] : expected[i] + back[i];
                }
                ASSERT_EQ(own, expected);
                // And everybody's pieces.
                Floats whole(static_cast<std::size_t>(all)), gathered;
                quantized_all_gather(whole, values_of(g.rank(), own.size(), 5), o);
                for (int r = 0; r < g.size(); ++r) {
                    const Floats piece = through_codes(
                        format_of(type), values_of(r, static_cast<std::size_t>(counts[static_cast<std::size_t>(r)]), 5),
                        64);
                    gathered.insert(gathered.end(), piece.begin(), piece.end());
                }
                ASSERT_EQ(whole, gathered);
                // One scale for each whole piece.
                o.block = QuantizedOptions::per_tensor;
                quantized_all_gather(whole, values_of(g.rank(), own.size(), 5), o);
                gathered.clear();
                for (int r = 0; r < g.size(); ++r) {
                    const auto elements = static_cast<std::size_t>(counts[static_cast<std::size_t>(r)]);
                    if (elements == 0) continue;
                    const Floats piece = through_codes(format_of(type), values_of(r, elements, 5), elements);
                    gathered.insert(gathered.end(), piece.begin(), piece.end());
                }
                ASSERT_EQ(whole, gathered);
            }
        });
    }
}

TEST_P(Quantized, equal_pieces_need_no_counts) {
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        Floats own(500), whole(1500);
        quantized_reduce_scatter(own, Floats(1500, 127), {.group = g});
        EXPECT_EQ(own, Floats(500, 381));
        quantized_all_gather(whole, Floats(500, static_cast<float>(g.rank())), {.group = g});
        for (std::size_t i = 0; i < whole.size(); ++i) ASSERT_FLOAT_EQ(whole[i], static_cast<float>(i / 500));
        Floats averages(500);
        quantized_reduce_scatter(averages, Floats(1500, 127), {.op = ReduceOp::avg, .group = g});
        EXPECT_EQ(averages, Floats(500, 127));
    });
}

// ---- What is not finite

TEST_P(Quantized, a_block_in_which_a_rank_has_nan_is_nan_on_all_ranks) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        for (const auto type : {QuantizedType::int8, QuantizedType::int4, QuantizedType::float8_e4m3fn}) {
            for (const auto scales : {QuantizedScales::per_rank, QuantizedScales::shared}) {
                for (const bool results : {true, false}) {
                    for (const bool given : {false, true}) {
                        if (given && scales == QuantizedScales::shared) continue;
                        Floats x(2000, 1);
                        if (g.rank() == 1) x[300] = std::numeric_limits<float>::infinity();
                        if (g.rank() == 0) x[1700] = std::numeric_limits<float>::quiet_NaN();
                        QuantizedOptions o{
                            .type = type, .block = 128, .scales = scales, .quantize_results = results, .group = g};
                        if (given) o.scale = 1.0F;
                        quantized_all_reduce(x, o);
                        for (std::size_t i = 0; i < x.size(); ++i) {
                            const bool bad = i / 128 == 300 / 128 || i / 128 == 1700 / 128;
                            ASSERT_EQ(std::isnan(x[i]), bad) << i;
                            if (!bad) {
                                ASSERT_NEAR(x[i], 2, 1e-5) << i;
                            }
                        }
                    }
                }
            }
        }
    });
}

// ---- Chance and feedback

TEST_P(Quantized, rounding_by_chance_repeats_with_its_seed_and_is_right_on_average) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        const auto once = [&](std::uint64_t seed) {
            Floats x = values_of(g.rank(), 5000);
            quantized_all_reduce(
                x, {.type = QuantizedType::int4, .rounding = QuantizedRounding::stochastic, .seed = seed, .group = g});
            return x;
        };
        const Floats first = once(1);
        EXPECT_EQ(once(1), first);
        EXPECT_NE(once(2), first);
        // One of many halves of a step, over many calls: to nearest it would always go the same way.
        double mean = 0;
        constexpr int times = 400;
        for (int time = 0; time < times; ++time) {
            Floats x(64, 0.3F);
            x[0] = 7;
            quantized_all_reduce(x, {.type = QuantizedType::int4,
                                     .block = 64,
                                     .rounding = QuantizedRounding::stochastic,
                                     .seed = static_cast<std::uint64_t>(time),
                                     .group = g});
            for (std::size_t i = 1; i < 64; ++i) mean += static_cast<double>(x[i]) / 63 / times;
        }
        EXPECT_NEAR(mean, 0.6, 0.03);
    });
}

TEST_P(Quantized, error_feedback_makes_good_what_is_lost) {
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        constexpr std::size_t elements = 1000;
        constexpr int steps = 60;
        Floats exact(elements);
        for (int r = 0; r < g.size(); ++r) {
            const Floats values = values_of(r, elements, 9);
            for (std::size_t i = 0; i < elements; ++i) exact[i] += values[i] / static_cast<float>(g.size());
        }
        const auto worst_mean_error = [&](auto&& reduce) {
            std::vector<double> sums(elements);
            for (int step = 0; step < steps; ++step) {
                Floats x = values_of(g.rank(), elements, 9);
                reduce(x);
                for (std::size_t i = 0; i < elements; ++i) sums[i] += static_cast<double>(x[i]);
            }
            double worst = 0;
            for (std::size_t i = 0; i < elements; ++i)
                worst = std::max(worst, std::abs(sums[i] / steps - static_cast<double>(exact[i])));
            return worst;
        };
        const QuantizedOptions o{.type = QuantizedType::int4, .op = ReduceOp::avg, .group = g};
        const double without = worst_mean_error([&](Floats& x) { quantized_all_reduce(x, o); });
        QuantizedReducer reducer(o);
        const double with = worst_mean_error([&](Floats& x) { reducer.all_reduce(x, 3); });
        EXPECT_LT(with, without / 8);
        EXPECT_EQ(reducer.residual(3).element_count(), static_cast<std::int64_t>(elements));
        EXPECT_EQ(reducer.residual(4).element_count(), 0);
        // Another size begins anew; so does everything after reset().
        Floats shorter(10, 1);
        reducer.start_all_reduce(shorter, 3).wait();
        EXPECT_EQ(reducer.residual(3).element_count(), 10);
        reducer.reset();
        EXPECT_EQ(reducer.residual(3).element_count(), 0);
        // What is not finite is not remembered.
        Floats bad(10, 1);
        bad[2] = std::numeric_limits<float>::quiet_NaN();
        reducer.all_reduce(bad, 3);
        EXPECT_TRUE(std::isnan(bad[5]));
        Floats good(10, 7);
        reducer.all_reduce(good, 3);
        EXPECT_NEAR(good[5], 7, 1e-5);
    });
}

// ---- Beside others

TEST_P(Quantized, several_run_at_once_between_other_collectives) {
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        const std::size_t elements = watched ? 3000 : 200'000;
        std::vector<Floats> x(4, Floats(elements, 127)), y(4, Floats(1000, 1));
        std::vector<Work> works;
        for (std::size_t i = 0; i < x.size(); ++i) {
            works.push_back(async::quantized_all_reduce(
                x[i], {.scales = i % 2 == 0 ? QuantizedScales::shared : QuantizedScales::per_rank, .group = g}));
            works.push_back(async::all_reduce(y[i], {.group = g}));
        }
        wait_all(works);
        for (const Floats& result : x) EXPECT_EQ(result, Floats(elements, 381));
        for (const Floats& result : y) EXPECT_EQ(result, Floats(1000, 3));
        EXPECT_EQ(works[0].result()[0].data(), x[0].data());
    });
}

TEST_P(Quantized, tensors_may_be_strided_or_overlap) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        Floats memory(2000, -5);
        for (std::size_t i = 0; i < 2000; i += 2) memory[i] = 127;
        const TensorView every_second(memory.data(), {1000}, float32, {2});
        quantized_all_reduce(every_second, {.group = g});
        for (std::size_t i = 0; i < 2000; ++i) ASSERT_EQ(memory[i], i % 2 == 0 ? 254 : -5);
        Floats line(1500);
        for (std::size_t i = 0; i < 1000; ++i) line[i] = static_cast<float>(i % 2 * 127);
        quantized_all_reduce(TensorView(line.data() + 500, {1000}, float32),
                             ConstTensorView(line.data(), {1000}, float32), {.group = g});
        for (std::size_t i = 0; i < 1000; ++i) ASSERT_EQ(line[500 + i], static_cast<float>(i % 2 * 254));
    });
}

// ---- What travels

TEST(QuantizedOverTcp, the_kernel_counts_as_many_bytes) {
    if (!backend_under_test().empty() || watched) GTEST_SKIP() << "by design: of native processes";
    for (const int n : {2, 3}) {
        run_ranks(n, How::tcp_processes, [](const ProcessGroup& g) {
            constexpr std::size_t elements = 3 << 20;
            std::vector<Float16> x(elements, Float16(1));
            const auto sent_by = [&](auto&& call) {
                barrier({.group = g});
                const std::uint64_t before = tcp_bytes_sent();
                call();
                barrier({.group = g});  // comes behind all that was sent
                return static_cast<double>(tcp_bytes_sent() - before);
            };
            const double half = sent_by([&] { all_reduce(x, {.group = g}); });
            const auto part = [&](QuantizedOptions o) {
                o.group = g;
                return sent_by([&] { quantized_all_reduce(x, o); }) / half;
            };
            ASSERT_GT(half, 2.0 * elements * (g.size() - 1) / g.size());
            EXPECT_LE(part({}), 0.52);
            EXPECT_LE(part({.scales = QuantizedScales::shared}), 0.525);
            EXPECT_LE(part({.type = QuantizedType::int4}), 0.28);
            EXPECT_LE(part({.quantize_results = false}), 0.77);
        });
    }
}

TEST_P(Quantized, as_many_bytes_travel_as_the_header_says) {
    covers("A-49", "S22-001");
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        const std::size_t elements = watched ? 1 << 14 : 1 << 20;
        std::vector<Float16> x(elements, Float16(1));
        const auto bytes_of = [&](auto&& call) {
            const auto before = group_counters(g).bytes;
            call();
            return static_cast<double>(group_counters(g).bytes - before);
        };
        const double half = bytes_of([&] { all_reduce(x, {.group = g}); });
        EXPECT_EQ(half, 2.0 * static_cast<double>(elements));
        const auto part = [&](QuantizedOptions o) {
            o.group = g;
            return bytes_of([&] { quantized_all_reduce(x, o); }) / half;
        };
        EXPECT_LE(part({}), 0.52);
        EXPECT_LE(part({.type = QuantizedType::int4}), 0.28);
        EXPECT_LE(part({.type = QuantizedType::float8_e4m3fn}), 0.52);
        EXPECT_LE(part({.quantize_results = false}), 0.76);
        EXPECT_GT(part({}), 0.5);
        EXPECT_GT(part({.type = QuantizedType::int4}), 0.25);
    });
}

}  // namespace
}  // namespace tutti::test::quantising
