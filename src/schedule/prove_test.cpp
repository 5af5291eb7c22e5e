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

Promise sum(std::uint64_t count = 2, std::uint32_t slots = 8) {
    return {
        .collective = Collective::all_reduce, .count = count, .rank_order = true, .host_of = {0, 0}, .slots = slots};
}

bool finds_a_fault(const std::vector<Schedule>& schedules, const Promise& promise = sum()) {
    return !prove(schedules, promise).empty();
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

// Two ranks take turns with the memory of slots: it may still hold what this rank has to read. Of two publications
// that are two rounds apart, the second lies where the other's first lay.
TEST(Prover, finds_a_rank_that_publishes_before_it_has_read_what_lies_there) {
    EXPECT_FALSE(finds_a_fault(staged(5, 2), sum(5, 4)));
    EXPECT_TRUE(finds_a_fault(staged(5, 3), sum(5, 4)));
    EXPECT_TRUE(finds_a_fault(staged(5, 5), sum(5, 4)));
    EXPECT_FALSE(finds_a_fault(staged(9, 2), sum(9, 8)));
    EXPECT_TRUE(finds_a_fault(staged(9, 3), sum(9, 8)));
}

TEST(Prover, finds_a_reader_that_has_not_read_what_a_round_was_published_with) {
    const auto at = [](std::uint64_t offset) { return Chunk{Buffer::output, offset, 1}; };
    const auto broadcast = [&](bool reads_first) {
        std::vector<Schedule> schedules;
        Builder root("test"), other("test");
        for (const std::uint64_t t : {0U, 1U}) root.publish(static_cast<std::uint32_t>(t), std::vector{at(t)});
        if (reads_first) other.read(0, 0, 0, at(0));
        other.read(0, 1, 0, at(1));
        for (Builder* b : {&root, &other}) {
            b->use_rounds(2);
            schedules.push_back(std::move(*b).finish());
        }
        return schedules;
    };
    Promise promise = sum();
    promise.collective = Collective::broadcast;
    EXPECT_EQ(prove(broadcast(true), promise), std::vector<std::string>{});
    const auto faults = prove(broadcast(false), promise);
    EXPECT_TRUE(std::ranges::any_of(
        faults, [](const std::string& fault) { return fault.find("with round 0") != std::string::npos; }));
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

// all_reduce in place: each rank combines one element, and writes the result where the other offered room for it.
// `meddles`: rank 0 writes there meanwhile.
std::vector<Schedule> delivering(bool meddles = false) {
    std::vector<Schedule> schedules;
    for (const Rank rank : {0, 1}) {
        Builder b("delivering");
        const Chunk mine{Buffer::output, static_cast<std::uint64_t>(rank), 1};
        const Chunk theirs{Buffer::output, static_cast<std::uint64_t>(1 - rank), 1};
        const Chunk spare = b.scratch(1);
        b.copy(spare, mine);
        b.publish(0, std::vector{theirs}, Offer::result);
        if (meddles && rank == 0) b.copy(theirs, spare);
        const Operand own{.chunk = mine}, other{.peer = 1 - rank, .chunk = {.count = 1}};
        b.read_combine_deliver(0, mine, rank == 0 ? std::vector{own, other} : std::vector{other, own}, true);
        b.publish_undelivered(1, std::vector{mine});
        b.read_undelivered(1 - rank, 1, 0, theirs);
        b.use_rounds(2);
        schedules.push_back(std::move(b).finish());
    }
    return schedules;
}
Promise sum_in_place(std::vector<unsigned> symmetric) {
    Promise promise = sum();
    promise.in_place = true;
    promise.symmetric = std::move(symmetric);
    return promise;
}
constexpr unsigned of_output = 1U << static_cast<unsigned>(Buffer::output);

TEST(Prover, accepts_symmetric_memory_of_all_and_of_some) {
    for (const unsigned first : {0U, of_output}) {
        for (const unsigned second : {0U, of_output})
            EXPECT_EQ(prove(delivering(), sum_in_place({first, second})), std::vector<std::string>{});
    }
}

TEST(Prover, finds_a_result_that_is_not_delivered) {
    auto s = delivering();
    s[0].steps[2].deliver = false;
    EXPECT_TRUE(prove(s, sum_in_place({})).empty()) << "who offers nothing in place reads what is published";
    EXPECT_TRUE(finds_a_fault(s, sum_in_place({of_output, of_output})));
}

TEST(Prover, finds_a_buffer_that_is_written_while_others_read_it) {
    auto s = delivering();
    for (Schedule& schedule : s) {
        schedule.steps[1].offer = Offer::none;
        schedule.steps[4].delivered = false;
    }
    EXPECT_TRUE(prove(s, sum_in_place({})).empty()) << "copies may be read for longer";
    EXPECT_TRUE(finds_a_fault(s, sum_in_place({of_output, of_output})));
}

TEST(Prover, finds_an_offer_that_is_touched_before_its_delivery) {
    const auto s = delivering(true);
    EXPECT_TRUE(prove(s, sum_in_place({})).empty()) << "what was copied may be written";
    EXPECT_TRUE(finds_a_fault(s, sum_in_place({of_output, of_output})));
}

TEST(Prover, finds_a_rank_that_leaves_while_its_buffers_are_read) {
    auto s = delivering();
    s[1].steps.pop_back();
    EXPECT_TRUE(finds_a_fault(s, sum_in_place({of_output, of_output})));
}

TEST(Prover, finds_room_that_is_read_before_anything_is_in_it) {
    auto s = delivering();
    s[0].steps[1].offer = Offer::room;
    EXPECT_TRUE(finds_a_fault(s, sum_in_place({of_output, of_output})));
    EXPECT_TRUE(finds_a_fault(s, sum_in_place({})));
}

}  // namespace
}  // namespace tutti::schedule
