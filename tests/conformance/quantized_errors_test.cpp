// Quantised collectives that cannot be: arguments that are refused, and ranks that mean different things.
#include "conformance/world.hpp"

#include <any>
#include <limits>

namespace tutti::test::quantising {
namespace {

using namespace std::chrono_literals;
using Floats = std::vector<float>;

class QuantizedErrors : public ::testing::TestWithParam<How> {};
INSTANTIATE_TEST_SUITE_P(Ranks, QuantizedErrors, ::testing::ValuesIn(every_way()),
                         [](const auto& instance) { return to_string(instance.param); });

struct Disagreement {
    const char* name;
    std::function<void(const ProcessGroup&)> call;  // rank 1 differs
    std::vector<std::string> both;                  // what the message shows, on every rank
};

std::vector<Disagreement> disagreements() {
    const auto differs = [](const char* name, QuantizedOptions others, QuantizedOptions one,
                            std::vector<std::string> words, std::size_t elements = 5000,
                            std::size_t other_elements = 5000) {
        return Disagreement{name,
                            [=](const ProcessGroup& g) {
                                QuantizedOptions o = g.rank() == 1 ? one : others;
                                o.group = g;
                                Floats x(g.rank() == 1 ? other_elements : elements);
                                quantized_all_reduce(x, o);
                            },
                            std::move(words)};
    };
    std::vector<Disagreement> all{
        differs("type", {}, {.type = QuantizedType::int4}, {"as int8", "as int4"}),
        differs("both float8", {.type = QuantizedType::float8_e4m3fn}, {.type = QuantizedType::float8_e5m2},
                {"as float8_e4m3fn", "as float8_e5m2"}),
        differs("block", {}, {.block = 512}, {"blocks of 256", "blocks of 512"}),
        differs("block of a row", {.block = QuantizedOptions::per_tensor}, {.block = QuantizedOptions::per_row},
                {"a scale for the tensor", "a scale for each row"}),
        differs("legs", {}, {.quantize_results = false}, {"results quantised", "results not quantised"}),
        differs("whose scales", {}, {.scales = QuantizedScales::shared}, {"scales per rank", "shared scales"}),
        differs("a scale", {.scale = 0.5F}, {.scale = 0.25F}, {"a given scale", "digest"}),
        differs("operator", {}, {.op = ReduceOp::avg}, {"sum", "avg"}),
        differs("elements", {}, {}, {"float32 × 5000", "float32 × 5001"}, 5000, 5001),
    };
    all.push_back({"row",
                   [](const ProcessGroup& g) {
                       Floats x(600);
                       quantized_all_reduce(
                           TensorView(x.data(), g.rank() == 1 ? Extents{6, 100} : Extents{3, 200}, float32),
                           {.block = QuantizedOptions::per_row, .group = g});
                   },
                   {"a scale for each row", "digest"}});
    all.push_back({"types of results",
                   [](const ProcessGroup& g) {
                       Floats x(600), y(600);
                       std::vector<Float16> z(600);
                       quantized_all_reduce(g.rank() == 1 ? TensorView(z) : TensorView(y), x, {.group = g});
                   },
                   {"into float32", "into float16"}});
    all.push_back({"pieces",
                   [](const ProcessGroup& g) {
                       Floats x(6), y(static_cast<std::size_t>(g.rank() == 1 ? 3 : 2));
                       quantized_reduce_scatter(y, x,
                                                {.counts = g.rank() == 1 ? std::vector<std::int64_t>{2, 3, 1}
                                                                         : std::vector<std::int64_t>{2, 2, 2},
                                                 .group = g});
                   },
                   {"quantized_reduce_scatter of float32"}});
    for (const std::size_t elements : {8U, 100'000U}) {
        all.push_back({"all_reduce",
                       [elements](const ProcessGroup& g) {
                           Floats x(elements);
                           if (g.rank() == 1)
                               all_reduce(x, {.group = g});
                           else
                               quantized_all_reduce(x, {.group = g});
                       },
                       {"called all_reduce of float32", "quantized_all_reduce of float32"}});
        all.push_back({"halves",
                       [elements](const ProcessGroup& g) {
                           Floats x(elements * 3), y(elements);
                           if (g.rank() == 1)
                               quantized_all_gather(x, y, {.group = g});
                           else
                               quantized_reduce_scatter(y, x, {.scales = QuantizedScales::shared, .group = g});
                       },
                       {"quantized_all_gather", "quantized_reduce_scatter"}});
    }
    return all;
}

TEST_P(QuantizedErrors, ranks_that_mean_different_things_hear_of_it_with_both_sides) {
    for (const Disagreement& d : disagreements()) {
        run_ranks(3, GetParam(),
                  [&](const ProcessGroup& g) {
                      try {
                          barrier({.group = g});
                          d.call(g);
                          barrier({.group = g});  // a rank whose part was done may only learn it now
                          ADD_FAILURE() << d.name << ": rank " << g.rank() << " noticed nothing";
                      } catch (const CollectiveMismatch& error) {
                          for (const std::string& side : d.both) {
                              EXPECT_TRUE(has(error.what(), side))
                                  << d.name << ": rank " << g.rank() << ": " << error.what();
                          }
                      } catch (const std::exception& error) {
                          ADD_FAILURE() << d.name << ": rank " << g.rank() << ": " << error.what();
                      }
                      std::this_thread::sleep_for(120ms);  // the others have yet to hear of it
                  },
                  {.timeout = 10s, .leave = false});
    }
}

TEST_P(QuantizedErrors, counts_whose_sum_wraps_are_refused) {
    run_ranks(4, GetParam(), [](const ProcessGroup& g) {
        Floats own(6), all(18);
        std::vector<std::int64_t> counts{INT64_MAX, INT64_MAX, 14, 6};  // 18, modulo 2^64
        std::swap(counts[3], counts[static_cast<std::size_t>(g.rank())]);
        const std::string text =
            message_of<InvalidArgument>([&] { quantized_all_gather(all, own, {.counts = counts, .group = g}); });
        EXPECT_TRUE(has(text, "expected 0 to 18, the elements of output")) << text;
    });
}

TEST_P(QuantizedErrors, what_cannot_be_is_refused_before_anything_moves) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        Floats x(12), y(6);
        const auto refused = [&](QuantizedOptions o, std::vector<std::string> words) {
            o.group = g;
            const std::string text = message_of<InvalidArgument>([&] { quantized_all_reduce(x, o); });
            for (const std::string& word : words) EXPECT_TRUE(has(text, word)) << text;
            EXPECT_TRUE(has(text, "quantized_all_reduce: ")) << text;
        };
        refused({.block = 33}, {"block 33", "multiple of 32 from 32 to 1024"});
        refused({.block = 0}, {"block 0"});
        refused({.block = 2048}, {"block 2048"});
        refused({.block = -3}, {"block -3", "one scale for a row or for the tensor"});
        refused({.scale = 0.0F}, {"scale 0", "at least 2^-126"});
        refused({.scale = -1.0F}, {"scale -1"});
        refused({.scale = std::numeric_limits<float>::infinity()}, {"scale inf"});
        refused({.scales = QuantizedScales::shared, .scale = 1.0F}, {"scale 1 and shared scales"});
        refused({.op = ReduceOp::max}, {"op max", "sum or avg"});
        refused({.type = static_cast<QuantizedType>(9)}, {"type 9", "int4"});
        refused({.rounding = static_cast<QuantizedRounding>(5)}, {"rounding 5"});
        refused({.counts = {6, 6}}, {"counts [6, 6]", "expected none"});
        refused({.timeout = -1ms}, {"timeout -1 ms"});
        const auto message = [&](auto&& call) { return message_of<InvalidArgument>(call); };
        std::vector<double> wide(12);
        std::vector<std::int8_t> codes(12);
        EXPECT_TRUE(has(message([&] { quantized_all_reduce(wide, {.group = g}); }), "input is float64[12]"));
        EXPECT_TRUE(has(message([&] { quantized_all_reduce(wide, x, {.group = g}); }), "output is float64[12]"));
        EXPECT_TRUE(has(message([&] { quantized_all_reduce(x, codes, {.group = g}); }), "int8[12]"));
        EXPECT_TRUE(has(
            message([&] { quantized_all_reduce(x, codes, {.type = QuantizedType::int4, .scale = 1.0F, .group = g}); }),
            "type int8 and a scale"));
        EXPECT_TRUE(has(message([&] { quantized_all_reduce(codes, {.scale = 1.0F, .group = g}); }), "output is int8"));
        EXPECT_TRUE(has(message([&] { quantized_all_reduce(y, x, {.group = g}); }), "6 elements: expected 12"));
        EXPECT_TRUE(
            has(message([&] { quantized_reduce_scatter(x, y, {.group = g}); }), "input has 6 elements: expected 24"));
        EXPECT_TRUE(
            has(message([&] { quantized_all_gather(y, x, {.group = g}); }), "output has 6 elements: expected 24"));
        EXPECT_TRUE(
            has(message([&] { quantized_all_gather(x, y, {.counts = {6}, .group = g}); }), "1 entries: expected 2"));
        EXPECT_TRUE(has(message([&] {
                            quantized_all_gather(x, y, {.counts = {6, -6}, .group = g});
                        }),
                        "counts[1] is -6"));
        EXPECT_TRUE(has(message([&] { quantized_all_gather(x, y, {.counts = {5, 7}, .group = g}); }), "expected"));
        EXPECT_TRUE(has(message([&] { quantized_all_gather(x, y, {.scales = QuantizedScales::shared, .group = g}); }),
                        "nothing is added up"));
        const TensorView rows(x.data(), {3, 4}, float32);
        EXPECT_TRUE(
            has(message([&] { quantized_reduce_scatter(y, rows, {.block = QuantizedOptions::per_row, .group = g}); }),
                "piece of 6 elements: expected whole rows of 4"));
        const TensorView device(x.data(), {12}, float32, {}, {Device::Type::cuda, 0});
        EXPECT_TRUE(has(message([&] { quantized_all_reduce(device, {.group = g}); }), "cuda"));
        QuantizedReducer reducer({.group = g}), other = std::move(reducer);
        EXPECT_TRUE(has(message([&] { reducer.all_reduce(x); }), "moved from"));
        EXPECT_TRUE(has(message([&] { other.all_reduce(wide); }), "float64"));
        other.all_reduce(x);  // nothing has moved
        quantized_all_reduce(x, {.group = ProcessGroup::non_member()});
        EXPECT_FALSE(async::quantized_all_reduce(x, {.group = ProcessGroup::non_member()}));
    });
}

TEST_P(QuantizedErrors, a_rank_that_leaves_is_named_and_time_is_limited) {
    run_ranks(3, GetParam(),
              [](const ProcessGroup& g) {
                  if (g.rank() == 2) {
                      std::this_thread::sleep_for(900ms);
                      return;
                  }
                  Floats x(300'000);
                  try {
                      quantized_all_reduce(x, {.group = g, .timeout = 500ms});
                      ADD_FAILURE() << "it went well";
                  } catch (const Timeout& error) {
                      EXPECT_TRUE(has(error.what(), "quantized_all_reduce")) << error.what();
                      EXPECT_TRUE(has(error.what(), "rank 2")) << error.what();
                  }
              },
              {.timeout = 5s, .leave = false});
}

}  // namespace
}  // namespace tutti::test::quantising
