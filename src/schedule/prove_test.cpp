// Tests of the prover: deliberate faults of different kinds in a right schedule; it finds each.
#include "schedule/prove.hpp"
#include "schedule/builder.hpp"

#include <gtest/gtest.h>

namespace tutti::schedule {
namespace {

constexpr Chunk input{Buffer::input, 0, 2};
constexpr Chunk output{Buffer::output, 0, 2};

// all_reduce of two elements on two ranks by one exchange.
std::vector<Schedule> exchange() {
    std::vector<Schedule> schedules;
    for (const Rank rank : {0, 1}) {
        Builder b("exchange");
        const Chunk arrived = b.scratch(2);
        b.receive(1 - rank, arrived);
        b.send(1 - rank, input);
        b.combine(output, rank == 0 ? std::vector{input, arrived} : std::vector{arrived, input}, true);
        schedules.push_back(std::move(b).finish());
    }
    return schedules;
}

// The same through a staging area, one element a round. Rank 0 publishes so many rounds before it reads any.
std::vector<Schedule> staged(std::uint32_t rounds = 2, std::uint32_t ahead = 0) {
    std::vector<Schedule> schedules;
    for (const Rank rank : {0, 1}) {
        Builder b("staged");
        const std::uint32_t early = rank == 0 ? ahead : 0;
        for (std::uint32_t t = 0; t < early; ++t) b.publish(t, std::vector{Chunk{Buffer::input, t, 1}});
        for (std::uint32_t t = 0; t < rounds; ++t) {
            const Chunk in{Buffer::input, t, 1}, out{Buffer::output, t, 1};
            if (t >= early) b.publish(t, std::vector{in});
            const Operand own{.chunk = in}, other{.peer = 1 - rank, .chunk = {.count = 1}};
            b.read_combine(t, out, rank == 0 ? std::vector{own, other} : std::vector{other, own}, true);
            b.release(t + 1);
        }
        b.use_rounds(rounds);
        schedules.push_back(std::move(b).finish());
    }
    return schedules;
}

Contract sum(std::uint64_t count = 2, std::uint32_t slots = 8) {
    return {
        .collective = Collective::all_reduce, .count = count, .rank_order = true, .host_of = {0, 0}, .slots = slots};
}

bool finds_a_fault(const std::vector<Schedule>& schedules, const Contract& contract = sum()) {
    return !prove(schedules, contract).empty();
}

// The same exchange of calls of float32, whose messages are bfloat16. Both ranks combine what has been rounded, their
// own value too, unless rank 1 takes its own as it is.
std::vector<Schedule> rounded_exchange(bool own_as_it_is = false) {
    std::vector<Schedule> schedules;
    for (const Rank rank : {0, 1}) {
        Builder b("rounded");
        const Chunk mine = b.scratch(2, DType::bfloat16), theirs = b.scratch(2, DType::bfloat16);
        const Chunk own = b.scratch(2), arrived = b.scratch(2);
        b.convert(mine, input);
        b.send(1 - rank, mine);
        b.receive(1 - rank, theirs);
        b.convert(own, mine);
        b.convert(arrived, theirs);
        const Chunk left = own_as_it_is && rank == 1 ? input : own;
        b.combine(output, rank == 0 ? std::vector{left, arrived} : std::vector{arrived, left}, true);
        schedules.push_back(std::move(b).finish());
    }
    return schedules;
}

Contract rounded_sum() {
    Contract contract = sum();
    contract.dtype = DType::float32;
    contract.rounds_to = {DType::bfloat16};
    return contract;
}

std::string first_fault(const std::vector<Schedule>& schedules, const Contract& contract) {
    const auto faults = prove(schedules, contract);
    return faults.empty() ? "no fault" : faults.front();
}

TEST(Prover, knows_what_a_conversion_loses) {
    EXPECT_EQ(prove(rounded_exchange(), rounded_sum()), std::vector<std::string>{});
    EXPECT_EQ(first_fault(rounded_exchange(true), rounded_sum()),
              "rank 1 step 6 (end): element 0 is not rounded as it is on rank 0, and so may differ");
    Contract exact = rounded_sum();
    exact.rounds_to = {};
    EXPECT_EQ(first_fault(rounded_exchange(), exact),
              "rank 0 step 6 (end): element 0 was rounded to bfloat16, which no line \"rounds_to bfloat16\" allows");
    Contract once = rounded_sum();
    once.single_rounding = true;
    EXPECT_TRUE(finds_a_fault(rounded_exchange(), once));
    Contract unnamed = rounded_sum();
    unnamed.dtype.reset();
    EXPECT_TRUE(first_fault(rounded_exchange(), unnamed)
                    .ends_with("step 0 (convert): makes bfloat16 of the call's type: expected floating-point types, "
                               "one of them float32"))
        << first_fault(rounded_exchange(), unnamed);
    Contract integers = rounded_sum();
    integers.dtype = DType::int32;
    EXPECT_TRUE(finds_a_fault(rounded_exchange(), integers));
}

// Calls of bfloat16 that sum in float32: the results are rounded once, to the type that they have anyway.
TEST(Prover, counts_one_rounding_where_sums_are_exact) {
    std::vector<Schedule> schedules;
    for (const Rank rank : {0, 1}) {
        Builder b("wide");
        const Chunk sum = b.scratch(2, DType::float32), arrived = b.scratch(2);
        b.convert(sum, input);
        b.send(1 - rank, input);
        b.receive(1 - rank, arrived);
        const Chunk wide = b.scratch(2, DType::float32);
        b.convert(wide, arrived);
        b.combine(sum, rank == 0 ? std::vector{sum, wide} : std::vector{wide, sum}, true);
        b.convert(output, sum);
        schedules.push_back(std::move(b).finish());
    }
    Contract contract = sum();
    contract.dtype = DType::bfloat16;
    contract.single_rounding = true;
    EXPECT_EQ(prove(schedules, contract), std::vector<std::string>{});
}

// Each rank sends codes of its elements, and combines two codes with `combine`, or with a call.
std::vector<Schedule> coded_exchange(bool by_call, bool own_as_it_is = false) {
    std::vector<Schedule> schedules;
    for (const Rank rank : {0, 1}) {
        Builder b("coded");
        const Chunk mine = b.scratch(2, DType::uint8), theirs = b.scratch(2, DType::uint8);
        b.call("encode", mine, input);
        b.send(1 - rank, mine);
        b.receive(1 - rank, theirs);
        const Chunk own = own_as_it_is && rank == 1 ? input : mine;
        const auto sources = rank == 0 ? std::vector{own, theirs} : std::vector{theirs, own};
        if (by_call)
            b.call_combine("sum", output, sources, true);
        else
            b.combine(b.scratch(2, DType::uint8), sources, true);
        schedules.push_back(std::move(b).finish());
    }
    return schedules;
}

TEST(Prover, takes_functions_for_what_their_steps_say) {
    Contract contract = rounded_sum();
    contract.rounds_to = {};
    contract.calls = {"encode", "sum"};
    EXPECT_EQ(prove(coded_exchange(true), contract), std::vector<std::string>{});
    EXPECT_EQ(first_fault(coded_exchange(true, true), contract),
              "rank 1 step 4 (end): element 0 is not rounded as it is on rank 0, and so may differ");
    EXPECT_TRUE(first_fault(coded_exchange(false), contract)
                    .ends_with("(combine): takes what \"encode\" has made for numbers: expected a call"))
        << first_fault(coded_exchange(false), contract);
    contract.calls = {"encode"};
    EXPECT_EQ(first_fault(coded_exchange(true), contract),
              "rank 0 step 4 (end): element 0 was changed by sum, which no line \"calls sum\" allows");
    contract.calls = {"encode", "sum"};
    contract.single_rounding = true;
    EXPECT_TRUE(finds_a_fault(coded_exchange(true), contract));
}

// Each rank's copy of a broadcast value goes through a function, or only that of the rank that got it.
TEST(Prover, wants_equal_results_of_functions_on_all_ranks) {
    for (const bool everywhere : {true, false}) {
        std::vector<Schedule> schedules;
        for (const Rank rank : {0, 1}) {
            Builder b("coded");
            const Chunk codes = b.scratch(2, DType::uint8);
            if (rank == 0) {
                b.call("encode", codes, output);
                b.send(1, codes);
            } else {
                b.receive(0, codes);
            }
            if (rank == 1 || everywhere) b.call("decode", output, codes);
            schedules.push_back(std::move(b).finish());
        }
        Contract contract{
            .collective = Collective::broadcast, .count = 2, .calls = {"encode", "decode"}, .host_of = {0, 1}};
        EXPECT_EQ(first_fault(schedules, contract),
                  everywhere ? "no fault"
                             : "rank 1 step 2 (end): element 0 is not rounded as it is on rank 0, and so may differ");
        contract.calls = {"encode"};
        EXPECT_NE(first_fault(schedules, contract).find("was changed by decode, which no line"), std::string::npos);
    }
}

TEST(Prover, keeps_a_functions_target_apart_from_its_sources) {
    Builder b("over");
    b.call("f", {Buffer::output, 0, 2}, {Buffer::output, 1, 2});
    std::vector<Schedule> schedules{std::move(b).finish()};
    const Contract contract{.collective = Collective::broadcast, .count = 3, .calls = {"f"}, .host_of = {0}};
    EXPECT_EQ(
        first_fault(schedules, contract),
        "rank 0 step 0 (call): writes elements that its function reads: expected a target apart from all sources");
}

TEST(Prover, orders_calls_by_what_they_touch) {
    std::vector<Schedule> schedules = coded_exchange(true);
    schedules[0].steps[3].after_count = 0;
    Contract contract = rounded_sum();
    contract.calls = {"encode", "sum"};
    EXPECT_TRUE(finds_a_fault(schedules, contract));
}

TEST(Prover, lets_copies_be_copies) {
    std::vector<Schedule> schedules;
    for (const Rank rank : {0, 1}) {
        Builder b("rounded_broadcast");
        const Chunk half = b.scratch(2, DType::bfloat16);
        if (rank == 0) b.convert(half, output);
        if (rank == 0) b.send(1, half);
        if (rank == 1) b.receive(0, half);
        b.convert(output, half);
        schedules.push_back(std::move(b).finish());
    }
    Contract contract = rounded_sum();
    contract.collective = Collective::broadcast;
    EXPECT_EQ(first_fault(schedules, contract),
              "rank 0 step 3 (end): element 0 was rounded to bfloat16, but is to be a copy");
}

TEST(Prover, accepts_what_is_right) {
    EXPECT_EQ(prove(exchange(), sum()), std::vector<std::string>{});
    EXPECT_EQ(prove(staged(), sum()), std::vector<std::string>{});
    EXPECT_EQ(prove(staged(9), sum(9, 4)), std::vector<std::string>{});
}

TEST(Prover, finds_a_missing_message) {
    auto s = exchange();
    s[0].steps.erase(s[0].steps.begin() + 1);
    s[0].after.clear();
    s[0].steps.back().after_count = 0;
    EXPECT_TRUE(finds_a_fault(s));
}

TEST(Prover, finds_a_doubled_contribution) {
    auto s = exchange();
    s[0].operands[s[0].steps[2].first_operand + 1].chunk = input;
    EXPECT_TRUE(finds_a_fault(s));
}

TEST(Prover, finds_a_missing_dependency) {
    auto s = exchange();
    s[1].steps[2].after_count = 0;
    EXPECT_TRUE(finds_a_fault(s));
}

TEST(Prover, finds_a_message_of_another_count) {
    auto s = exchange();
    s[0].operands[s[0].steps[1].first_operand].chunk.count = 1;
    EXPECT_TRUE(finds_a_fault(s));
}

TEST(Prover, finds_a_deadlock) {
    std::vector<Schedule> s;
    for (const Rank rank : {0, 1}) {  // both send before they receive: works only with buffering
        Builder b("deadlock");
        const Chunk arrived = b.scratch(2);
        b.send(1 - rank, input);
        b.receive(1 - rank, arrived);
        b.combine(output, rank == 0 ? std::vector{input, arrived} : std::vector{arrived, input}, true);
        s.push_back(std::move(b).finish());
        Schedule& made = s.back();
        made.steps[1].first_after = static_cast<std::uint32_t>(made.after.size());
        made.steps[1].after_count = 1;
        made.after.push_back(0);
    }
    EXPECT_TRUE(finds_a_fault(s));
}

TEST(Prover, finds_a_wrong_offset) {
    auto s = staged();
    s[0].steps[0].target = {};
    s[0].operands[0].chunk.offset = 1;
    EXPECT_TRUE(finds_a_fault(s));
}

TEST(Prover, finds_a_stale_read) {
    auto s = staged();
    for (Step& step : s[0].steps) {
        if (step.kind == StepKind::read_combine) step.round = 0;  // the second tile reads the first round again
    }
    EXPECT_TRUE(finds_a_fault(s));
}

TEST(Prover, finds_a_release_that_comes_too_early) {
    auto s = staged();
    std::swap(s[0].steps[1], s[0].steps[2]);
    EXPECT_TRUE(finds_a_fault(s));
}

// Rank 0 of a prefix reads nothing: nothing tells it that the other rank has published what lies where it writes next.
TEST(Prover, takes_a_combination_of_own_values_alone_for_no_read) {
    constexpr std::uint32_t rounds = 4;
    const auto prefix = [](bool last_publishes) {
        std::vector<Schedule> schedules;
        for (const Rank rank : {0, 1}) {
            Builder b("prefix");
            for (std::uint32_t t = 0; t < rounds; ++t) {
                const Chunk in{Buffer::input, t, 1}, out{Buffer::output, t, 1};
                if (rank == 0 || last_publishes) b.publish(t, std::vector{in});
                std::vector<Operand> operands{{.chunk = in}};
                if (rank == 1) operands.insert(operands.begin(), {.peer = 0, .chunk = {.count = 1}});
                b.read_combine(t, out, operands, false);
                b.release(t + 1);
            }
            b.use_rounds(rounds);
            schedules.push_back(std::move(b).finish());
        }
        return schedules;
    };
    Contract contract = sum(rounds);
    contract.collective = Collective::scan;
    EXPECT_FALSE(finds_a_fault(prefix(false), contract)) << "nothing else is written there";
    EXPECT_TRUE(finds_a_fault(prefix(true), contract));
}

// Two ranks take turns with the memory of slots: it may still hold values that this rank has to read. Of two
// publications that are two rounds apart, the second lies where the other's first lay.
TEST(Prover, finds_a_rank_that_publishes_before_it_has_read_what_lies_there) {
    EXPECT_FALSE(finds_a_fault(staged(5, 2), sum(5, 4)));
    EXPECT_TRUE(finds_a_fault(staged(5, 3), sum(5, 4)));
    EXPECT_TRUE(finds_a_fault(staged(5, 5), sum(5, 4)));
    EXPECT_FALSE(finds_a_fault(staged(9, 2), sum(9, 8)));
    EXPECT_TRUE(finds_a_fault(staged(9, 3), sum(9, 8)));
}

TEST(Prover, finds_a_wrong_order_of_ranks) {
    auto s = exchange();
    std::swap(s[1].operands[s[1].steps[2].first_operand], s[1].operands[s[1].steps[2].first_operand + 1]);
    EXPECT_TRUE(finds_a_fault(s));
}

TEST(Prover, finds_an_average_that_nobody_finishes) {
    auto s = exchange();
    s[0].steps[2].finish = false;
    EXPECT_TRUE(finds_a_fault(s));
}

TEST(Prover, finds_a_barrier_that_lets_someone_through) {
    std::vector<Schedule> s;
    for (const Rank rank : {0, 1, 2}) {  // one round is not enough for three ranks
        Builder b("barrier");
        b.send_signal((rank + 1) % 3);
        b.receive_signal((rank + 2) % 3);
        s.push_back(std::move(b).finish());
    }
    EXPECT_TRUE(finds_a_fault(s, {.collective = Collective::barrier, .host_of = {0, 0, 0}}));
}

// all_reduce in place: each rank combines one element where it lies on both, and writes the result to both.
std::vector<Schedule> in_place(bool opens = true) {
    std::vector<Schedule> schedules;
    for (const Rank rank : {0, 1}) {
        Builder b("in_place");
        b.input_is_output();
        b.meet(opens ? std::vector{output} : std::vector<Chunk>{}, true);
        const Chunk mine{Buffer::output, static_cast<std::uint64_t>(rank), 1};
        const Operand own{.chunk = mine}, other{.peer = 1 - rank, .chunk = {Buffer::input, mine.offset, 1}};
        b.combine_in_place(-1, mine, rank == 0 ? std::vector{own, other} : std::vector{other, own}, true, true);
        schedules.push_back(std::move(b).finish());
    }
    return schedules;
}
Contract sum_in_place() {
    Contract contract = sum();
    contract.in_place = true;
    return contract;
}

TEST(Prover, accepts_what_is_right_in_place) {
    EXPECT_EQ(prove(in_place(), sum_in_place()), std::vector<std::string>{});
}

TEST(Prover, finds_every_step_in_place_that_is_left_out) {
    for (std::size_t left_out = 0; left_out < in_place()[0].steps.size(); ++left_out) {
        auto s = in_place();
        Schedule& first = s[0];
        const Step step = first.steps[left_out];
        for (Step& later : first.steps) later.after_count = 0;  // all of its steps share memory, and keep their order
        EXPECT_EQ(prove(s, sum_in_place()), std::vector<std::string>{});
        first.steps.erase(first.steps.begin() + static_cast<std::ptrdiff_t>(left_out));
        EXPECT_TRUE(finds_a_fault(s, sum_in_place())) << to_string(step.kind) << ", step " << left_out;
    }
}

TEST(Prover, finds_a_rank_that_touches_what_another_one_has_not_opened) {
    EXPECT_TRUE(finds_a_fault(in_place(false), sum_in_place()));
}

TEST(Prover, finds_two_ranks_that_touch_the_same_elements_without_order) {
    auto s = in_place();
    for (Operand& operand : s[0].operands) {  // rank 0 combines both elements, also the one that rank 1 writes
        if (operand.peer >= 0 || operand.chunk.count == 1) operand.chunk = {operand.chunk.buffer, 0, 2};
    }
    s[0].steps[1].target = output;
    const auto faults = prove(s, sum_in_place());
    EXPECT_TRUE(std::ranges::any_of(
        faults, [](const std::string& fault) { return fault.find("without order") != std::string::npos; }));
}

TEST(Prover, finds_a_result_that_does_not_go_everywhere) {
    auto s = in_place();
    s[0].steps[1].everywhere = false;
    EXPECT_TRUE(finds_a_fault(s, sum_in_place()));
}

TEST(Prover, each_collective_wants_more_than_nothing) {
    for (int number = 1; number <= collective_count; ++number) {
        const auto collective = static_cast<Collective>(number);
        const Contract contract{.collective = collective,
                                .root = 1,
                                .count = 2,
                                .counts = {1, 2, 1},
                                .matrix = {{1, 2, 1}, {2, 1, 1}, {1, 1, 2}},
                                .host_of = {0, 0, 0}};
        EXPECT_FALSE(prove(std::vector<Schedule>(3), contract).empty()) << to_string(collective);
    }
}

}  // namespace
}  // namespace tutti::schedule
