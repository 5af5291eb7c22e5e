// Quantised collectives, proved: who adds up what, how often values are rounded, that all ranks end with the same bits.
#include "algorithm/plan.hpp"
#include "algorithm/quantized.hpp"
#include "schedule/prove.hpp"
#include "schedule/text.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

namespace tutti::algorithm {
namespace {

using schedule::CodeForm;
using schedule::Contract;
using schedule::Schedule;
using Scales = Quantizing::Scales;

Layout ranks_of(int ranks, bool one_host) {
    Layout layout;
    layout.host_of.resize(static_cast<std::size_t>(ranks));
    if (!one_host) std::iota(layout.host_of.begin(), layout.host_of.end(), 0);
    layout.shared_memory = layout.pulls = one_host;
    layout.slot_bytes = 64;
    layout.slots = 8;
    return layout;
}

struct Case {
    Layout layout;
    Contract contract;
    std::vector<Schedule> schedules;
    std::string what;
};

Case case_of(const Layout& layout, Request request) {
    Case c{.layout = layout};
    const Quantizing& q = *request.quantizing;
    const bool both = request.collective == Collective::all_reduce;
    c.contract.collective = request.collective;
    c.contract.dtype = request.dtype = q.output_type;
    c.contract.count = request.count;
    c.contract.counts = request.counts;
    c.contract.in_place = request.in_place;
    c.contract.rank_order = true;
    c.contract.codes = CodeForm{q.format, std::min(q.block, q.tile)};
    c.contract.encodings = both && q.gathers_codes ? 2 : 1;
    c.contract.host_of = layout.host_of;
    for (request.rank = 0; request.rank < layout.size(); ++request.rank) c.schedules.push_back(plan(layout, request));
    c.what = std::string(to_string(request.collective)) + " of " + std::to_string(request.count) + " on " +
             std::to_string(layout.size()) + ", blocks of " + std::to_string(q.block) + ", scales " +
             std::to_string(static_cast<int>(q.scales));
    return c;
}

void expect_proved(const Case& c) {
    const auto faults = schedule::prove(c.schedules, c.contract);
    EXPECT_TRUE(faults.empty()) << c.what << ": " << faults.front();
    // And whatever is written can be read back.
    const std::string text = schedule::to_text({c.contract, c.schedules});
    EXPECT_EQ(schedule::to_text(schedule::parse(text, "the text")), text);
    EXPECT_TRUE(schedule::prove(schedule::parse(text, "the text").ranks, c.contract).empty()) << text;
}

std::vector<Quantizing> all_of() {
    std::vector<Quantizing> all;
    for (const Scales scales : {Scales::own, Scales::common, Scales::given}) {
        for (const bool results : {true, false}) {
            // Blocks of several, of one and of a part of an element's tile, and longer than a tile.
            for (const std::uint64_t block : {1, 2, 6, 7, 1000}) {
                all.push_back(
                    {.scales = scales, .block = block, .gathers_codes = results, .tile = block <= 6 ? 6U : 4U});
                all.push_back(all.back());
                all.back().format = quantize::Format::float8_e5m2;
                all.back().input_type = scales == Scales::given ? DType::int8 : DType::bfloat16;
                all.back().output_type = DType::float16;
            }
        }
    }
    return all;
}

TEST(TwoLegs, every_all_reduce_is_proved) {
    for (const int n : {1, 2, 3, 5}) {
        for (const Quantizing& q : all_of()) {
            for (const std::uint64_t count : {0, 1, 13, 64, 91}) {
                Request request{.collective = Collective::all_reduce, .count = count, .quantizing = q};
                expect_proved(case_of(ranks_of(n, n % 2 == 0), request));
                request.in_place = q.input_type == q.output_type;
                if (request.in_place) expect_proved(case_of(ranks_of(n, true), request));
            }
        }
    }
}

TEST(TwoLegs, every_half_is_proved_with_pieces_that_differ) {
    for (const std::size_t n : {1, 2, 4}) {
        for (const Quantizing& q : all_of()) {
            if (!q.gathers_codes) continue;
            Request request{.collective = Collective::reduce_scatter, .quantizing = q};
            for (std::size_t r = 0; r < n; ++r) request.counts.push_back(r == 1 ? 0 : 11 + 17 * r);
            expect_proved(case_of(ranks_of(static_cast<int>(n), true), request));
            request.collective = Collective::all_gather;
            if (q.scales != Scales::common) expect_proved(case_of(ranks_of(static_cast<int>(n), false), request));
        }
    }
}

TEST(TwoLegs, a_value_is_rounded_once_in_each_leg) {
    const Quantizing q{.block = 2, .tile = 4};
    Case c = case_of(ranks_of(3, true), {.collective = Collective::all_reduce, .count = 24, .quantizing = q});
    c.contract.encodings = 1;
    const auto faults = schedule::prove(c.schedules, c.contract);
    ASSERT_FALSE(faults.empty());
    EXPECT_TRUE(faults.front().ends_with("was made codes 2 times: expected 1 at most")) << faults.front();
    Quantizing one_leg = q;
    one_leg.gathers_codes = false;
    expect_proved(
        case_of(ranks_of(3, true), {.collective = Collective::all_reduce, .count = 24, .quantizing = one_leg}));
}

// However long a tensor is.
TEST(TwoLegs, scratch_memory_is_bounded) {
    const auto scratch_of = [](int ranks, std::uint64_t count) {
        const Quantizing q{.tile = 1 << 15};
        const Request request{.collective = Collective::all_reduce, .count = count, .quantizing = q};
        return schedule::scratch_count(plan(ranks_of(ranks, true), request));
    };
    for (const int ranks : {2, 4, 8, 32}) {
        EXPECT_EQ(scratch_of(ranks, 1 << 26), scratch_of(ranks, 1 << 28)) << ranks;
        const std::uint64_t peers = static_cast<std::uint64_t>(ranks) - 1;
        const std::uint64_t tiles = std::max<std::uint64_t>(2, std::min<std::uint64_t>(8, 32 / peers));
        EXPECT_LE(scratch_of(ranks, 1 << 26), (3 * peers * tiles + tiles + 2) << 15) << ranks;
    }
}

// A quantised call takes no other algorithm, and no other call takes this one.
TEST(TwoLegs, rules_and_limits_choose_it_for_quantised_calls_alone) {
    Layout layout = ranks_of(4, true);
    layout.tuning.rules.push_back({Collective::all_reduce, "two_legs", any_size, any_ranks});
    const Request plain{.collective = Collective::all_reduce, .count = 1000};
    Request quantised = plain;
    quantised.quantizing = Quantizing{};
    EXPECT_NE(choose(layout, plain).algorithm, "two_legs");
    EXPECT_EQ(choose(layout, quantised).algorithm, "two_legs");
    EXPECT_EQ(applicable(layout, quantised), std::vector<std::string>{"two_legs"});
    layout.tuning.rules.front().algorithm = "two_shot";
    EXPECT_EQ(choose(layout, quantised).algorithm, "two_legs");
}

}  // namespace
}  // namespace tutti::algorithm
