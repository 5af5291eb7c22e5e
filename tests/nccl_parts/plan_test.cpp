// What an operation becomes, and which ranks fit: pure functions.
#include "nccl/plan.hpp"

#include "nccl/meeting.hpp"
#include "nccl/task.hpp"

#include <tutti/error.hpp>

#include <gtest/gtest.h>

#include <cstring>

namespace tutti::nccl {
namespace {

const Abilities all_of_it = nccl_abilities(22809);

TEST(Calls, that_came_after_a_backend_are_refused) {
    BackendRequest request;
    request.call = static_cast<BackendCall>(collective_count + 1);
    EXPECT_THROW(Task(request, 0, 1, {}, {}), InternalError);
}

TEST(NativeReductions, of_numbers_keep_their_type_and_operator) {
    const auto sum = native_reduction(ReduceOp::sum, DType::bfloat16, 2, all_of_it);
    ASSERT_TRUE(sum);
    EXPECT_EQ(sum->type, bfloat16);
    EXPECT_EQ(sum->op, Op::sum);
    EXPECT_EQ(sum->parts, 1U);
    EXPECT_EQ(native_reduction(ReduceOp::avg, DType::int64, 2, all_of_it)->op, Op::avg);
    EXPECT_EQ(native_reduction(ReduceOp::product, DType::uint8, 2, all_of_it)->op, Op::prod);
}

// NCCL 2.28.9 refuses a lone rank's average of float8.
TEST(NativeReductions, of_one_rank_are_no_averages) {
    EXPECT_EQ(native_reduction(ReduceOp::avg, DType::float8_e4m3fn, 1, all_of_it)->op, Op::sum);
    EXPECT_EQ(native_reduction(ReduceOp::avg, DType::float8_e4m3fn, 2, all_of_it)->op, Op::avg);
}

TEST(NativeReductions, of_bool_are_or_and_and) {
    for (const ReduceOp& op : {ReduceOp::sum, ReduceOp::max, ReduceOp::bor}) {
        EXPECT_EQ(native_reduction(op, DType::boolean, 2, all_of_it)->op, Op::max);
        EXPECT_EQ(native_reduction(op, DType::boolean, 2, all_of_it)->type, uint8);
    }
    for (const ReduceOp& op : {ReduceOp::product, ReduceOp::min, ReduceOp::band})
        EXPECT_EQ(native_reduction(op, DType::boolean, 2, all_of_it)->op, Op::min);
    EXPECT_FALSE(native_reduction(ReduceOp::bxor, DType::boolean, 2, all_of_it));
}

TEST(NativeReductions, of_complex_values_are_those_of_their_parts_where_they_add) {
    const auto avg = native_reduction(ReduceOp::avg, DType::complex128, 2, all_of_it);
    ASSERT_TRUE(avg);
    EXPECT_EQ(avg->type, float64);
    EXPECT_EQ(avg->parts, 2U);
    EXPECT_TRUE(native_reduction(ReduceOp::premul_sum(0.5), DType::complex64, 2, all_of_it)->premultiplied);
    EXPECT_FALSE(native_reduction(ReduceOp::product, DType::complex64, 2, all_of_it));
}

TEST(NativeReductions, leave_to_the_host_what_the_library_lacks) {
    for (const DType type : {DType::int16, DType::uint16})
        EXPECT_FALSE(native_reduction(ReduceOp::sum, type, 2, all_of_it));
    for (const ReduceOp& op : {ReduceOp::band, ReduceOp::bor, ReduceOp::bxor})
        EXPECT_FALSE(native_reduction(op, DType::int32, 2, all_of_it));
    EXPECT_FALSE(native_reduction(ReduceOp::premul_sum(0.5), DType::int32, 2, all_of_it)) << "it would lose the half";
    EXPECT_FALSE(native_reduction(ReduceOp::sum, DType::float8_e5m2, 2, nccl_abilities(22304))) << "known since 2.24";
    EXPECT_TRUE(native_reduction(ReduceOp::sum, DType::float8_e5m2, 2, nccl_abilities(22403)));
    Abilities few;
    few.avg = few.product = few.premul_sum = false;
    for (const ReduceOp& op : {ReduceOp::avg, ReduceOp::product, ReduceOp::premul_sum(2)})
        EXPECT_FALSE(native_reduction(op, DType::float32, 2, few));
}

TEST(UnevenBlocks, are_filled_up_to_a_quarter_more) {
    const std::uint64_t just[] = {125, 75, 100, 100}, too_far[] = {126, 74, 100, 100}, one[] = {7, 0};
    EXPECT_TRUE(fill_up(just));
    EXPECT_FALSE(fill_up(too_far));
    EXPECT_FALSE(fill_up(one));
    const std::uint64_t even[] = {3, 3, 3};
    EXPECT_TRUE(all_equal(even));
    EXPECT_FALSE(all_equal(just));
}

TEST(Factors, are_elements_of_the_reductions_type) {
    std::uint16_t half = 0, brain = 0;
    std::memcpy(&half, scalar_of(0.5, float16).bytes, sizeof half);
    std::memcpy(&brain, scalar_of(0.5, bfloat16).bytes, sizeof brain);
    EXPECT_EQ(half, 0x3800);
    EXPECT_EQ(brain, 0x3f00);
    double number = 0;
    std::memcpy(&number, scalar_of(0.1, float64).bytes, sizeof number);
    EXPECT_EQ(number, 0.1);
}

TEST(Versions, are_written_as_their_makers_do) {
    EXPECT_EQ(nccl_version_text(21805), "2.18.5");
    EXPECT_EQ(nccl_version_text(23203), "2.32.3");
    EXPECT_EQ(nccl_version_text(2708), "2.7.8");
}

Facts fit(int device) {
    return {.version = 22809,
            .gathers = true,
            .capability = 90,
            .library = "NCCL 2.28.9 (/lib/libnccl.so.2)",
            .host = "one",
            .device = "bus " + std::to_string(device),
            .device_text = "cuda:" + std::to_string(device)};
}

bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

TEST(Meetings, let_ranks_that_fit_go_on_with_what_all_can) {
    std::vector<Facts> facts{fit(0), fit(1), fit(2)};
    EXPECT_EQ(disagreement("nccl", facts), "");
    EXPECT_TRUE(agreement(facts).gathers);
    EXPECT_TRUE(agreement(facts).reduces_float8);
    facts[1].gathers = false;
    facts[2].capability = 80;
    EXPECT_FALSE(agreement(facts).gathers);
    EXPECT_FALSE(agreement(facts).reduces_float8);
}

TEST(Meetings, name_ranks_of_different_versions_with_both) {
    std::vector<Facts> facts{fit(0), fit(1), fit(2)};
    facts[2].version = 22304;
    facts[2].library = "NCCL 2.23.4 (/other/libnccl.so.2)";
    const std::string text = disagreement("nccl", facts);
    for (const char* part : {"rank 0", "2.28.9", "rank 2", "2.23.4", "/other/libnccl.so.2"})
        EXPECT_TRUE(has(text, part)) << part << " in: " << text;
}

TEST(Meetings, name_ranks_on_one_device_unless_they_may_share_it_or_are_on_other_hosts) {
    std::vector<Facts> facts{fit(0), fit(1), fit(0)};
    const std::string text = disagreement("nccl", facts);
    for (const char* part : {"rank 0", "rank 2", "cuda:0", "NCCL_MULTI_RANK_GPU_ENABLE", "NCCL_HOSTID"})
        EXPECT_TRUE(has(text, part)) << part << " in: " << text;
    facts[2].host = "other";
    EXPECT_EQ(disagreement("nccl", facts), "");
    facts[2].host = facts[0].host;
    for (Facts& one : facts) one.may_share = true;
    EXPECT_EQ(disagreement("nccl", facts), "");
}

TEST(Meetings, tell_all_what_keeps_one_rank_away) {
    std::vector<Facts> facts{fit(0), fit(1)};
    facts[1].trouble = "it has no device";
    EXPECT_TRUE(has(disagreement("nccl", facts), "rank 1 cannot take part in the communicator: it has no device"));
}

}  // namespace
}  // namespace tutti::nccl
