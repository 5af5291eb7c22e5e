// Calls: the meaning of a collective's arguments, and the operations that are made of them. Nothing is sent.
#include "api/call.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <thread>

namespace tutti::api {
namespace {

class CallOfTwo : public testing::Test {
 protected:
    static void SetUpTestSuite() {
        const HashStore store;
        const auto join = [&store](int rank) {
            return ProcessGroup({.store = store, .rank = rank, .world_size = 2, .transport = TransportKind::shm});
        };
        std::thread second([&] { groups[1] = join(1); });
        groups[0] = join(0);
        second.join();
    }
    static void TearDownTestSuite() {
        for (ProcessGroup& group : groups) group.destroy();
        for (ProcessGroup& group : groups) group = {};
    }
    /// Of rank 1.
    static const ProcessGroup& group() { return groups[1]; }

    static inline std::array<ProcessGroup, 2> groups;
    std::vector<float> small_ = std::vector<float>(4), large_ = std::vector<float>(8);
};

template <auto fill_in, class... Arguments>
std::unique_ptr<Call> made(const Arguments&... arguments) {
    auto call = std::make_unique<Call>();
    fill_in(*call, arguments...);
    return call;
}

TensorView part(std::vector<float>& values, std::size_t from, std::size_t count) {
    return std::span(values).subspan(from, count);
}

TEST_F(CallOfTwo, forms_of_one_collective_are_the_same_call) {
    const TensorView all = large_, own = small_;
    const TensorList list{part(large_, 0, 4), part(large_, 4, 4)};
    const auto whole = made<describe::all_gather_into_tensor>(all, own, CollectiveOptions{.group = group()});
    const auto listed = made<describe::all_gather>(list, own, CollectiveOptions{.group = group()});
    const auto sized =
        made<describe::all_gather_v>(all, own, AllGatherVOptions{.output_split_sizes = {4, 4}, .group = group()});
    for (const Call* call : {whole.get(), listed.get(), sized.get()}) {
        EXPECT_TRUE(call->direct) << call->name;
        EXPECT_EQ(call->fingerprint, whole->fingerprint) << call->name;
        EXPECT_EQ(call->count, 4U);
        EXPECT_EQ(call->block_bytes, 16U);
        EXPECT_TRUE(call->counts.empty());
        EXPECT_EQ(static_cast<const void*>(call->input), small_.data());
        EXPECT_EQ(static_cast<void*>(call->output), large_.data());
    }
}

TEST_F(CallOfTwo, blocks_of_different_lengths_have_counts_and_no_length) {
    const TensorView all = large_, own = part(small_, 0, 3);
    const auto sized =
        made<describe::all_gather_v>(all, own, AllGatherVOptions{.output_split_sizes = {5, 3}, .group = group()});
    const TensorList list{part(large_, 0, 5), part(large_, 5, 3)};
    const auto listed = made<describe::all_gather>(list, own, CollectiveOptions{.group = group()});
    for (const Call* call : {sized.get(), listed.get()}) {
        EXPECT_FALSE(call->direct);
        EXPECT_EQ(call->block_bytes, engine::CollectiveCall::different);
        EXPECT_EQ(std::vector(call->counts.begin(), call->counts.end()), (std::vector<std::uint64_t>{5, 3}));
        EXPECT_EQ(call->fingerprint, sized->fingerprint);
    }
    const PreparedOperation operation = prepare(*listed);
    EXPECT_EQ(std::vector(operation->call.counts.begin(), operation->call.counts.end()),
              (std::vector<std::uint64_t>{5, 3}));
    EXPECT_NE(operation->call.counts.data(), listed->counts.data());
    EXPECT_EQ(static_cast<void*>(operation->call.output), large_.data());
}

TEST_F(CallOfTwo, it_runs_on_its_buffers_only_where_these_are_in_one_piece_and_apart) {
    const AllReduceOptions sum{.group = group()};
    const TensorView strided(large_.data(), {4}, float32, {2});
    EXPECT_TRUE(made<describe::all_reduce>(TensorView(large_), sum)->direct);
    EXPECT_FALSE(made<describe::all_reduce>(strided, sum)->direct);
    const AllReduceOptions scaled{.op = ReduceOp::premul_sum(2), .group = group()};
    EXPECT_FALSE(made<describe::all_reduce>(TensorView(large_), scaled)->direct);

    const auto into = [&](std::size_t at) {
        return made<describe::reduce_scatter_tensor>(part(large_, at, 4), ConstTensorView(large_), sum)->direct;
    };
    EXPECT_TRUE(into(4)) << "where its own block is";
    EXPECT_FALSE(into(0));
    EXPECT_FALSE(into(3));
    const auto gathered = [&](std::size_t at) {
        return made<describe::all_gather_into_tensor>(TensorView(large_), ConstTensorView(part(large_, at, 4)),
                                                      CollectiveOptions{.group = group()})
            ->direct;
    };
    EXPECT_TRUE(gathered(4));
    EXPECT_FALSE(gathered(0));

    const ConstTensorList apart{part(large_, 0, 2), part(large_, 4, 2)};
    EXPECT_FALSE(made<describe::reduce_scatter>(part(small_, 0, 2), apart, sum)->direct);
    EXPECT_FALSE(made<describe::all_to_all_single>(TensorView(large_), ConstTensorView(large_),
                                                   AllToAllSingleOptions{.group = group()})
                     ->direct);
}

TEST_F(CallOfTwo, blocks_of_all_to_all_v_are_the_callers_numbers_until_they_are_an_operation_s) {
    const AllToAllVOptions options{.send_counts = {1, 3},
                                   .send_offsets = {3, 0},
                                   .receive_counts = {0, 3},
                                   .receive_offsets = {7, 2},
                                   .group = group()};
    const TensorView into = large_, from = small_;
    const auto call = made<describe::all_to_all_v>(into, from, options);
    EXPECT_TRUE(call->direct);
    EXPECT_EQ(static_cast<const void*>(call->send_counts.data()), options.send_counts.data());
    EXPECT_EQ(static_cast<const void*>(call->receive_offsets.data()), options.receive_offsets.data());
    EXPECT_EQ(call->received_from(1), 3 * sizeof(float));
    const PreparedOperation operation = prepare(*call), again = operation->again();
    for (const PreparedOperation& each : {operation, again}) {
        EXPECT_NE(each->call.send_counts.data(), call->send_counts.data());
        EXPECT_NE(each->call.receive_offsets.data(), call->receive_offsets.data());
        EXPECT_EQ(each->call.output_parts(0, 2), call->output_parts(0, 2));
        EXPECT_EQ(each->call.output_parts(0, 2).front().at, 0U) << "an empty block is nowhere";
    }
    EXPECT_NE(again->call.send_counts.data(), operation->call.send_counts.data());
}

TEST_F(CallOfTwo, an_operation_of_a_direct_call_copies_nothing) {
    const TensorView whole = large_, own = small_, half = part(large_, 0, 4);
    const auto sum = made<describe::all_reduce>(whole, AllReduceOptions{.group = group()});
    const auto spread = made<describe::broadcast>(own, BroadcastOptions{.src = 0, .group = group()});
    const auto swapped = made<describe::all_to_all_single>(own, half, AllToAllSingleOptions{.group = group()});
    for (const Call* call : {sum.get(), spread.get(), swapped.get()}) {
        const PreparedOperation operation = prepare(*call);
        EXPECT_FALSE(operation->begin);
        EXPECT_FALSE(operation->finish);
        EXPECT_EQ(operation->call.input, call->input);
        EXPECT_EQ(operation->call.output, call->output);
        EXPECT_EQ(operation->call.block_bytes, call->block_bytes);
        EXPECT_EQ(operation->call.fingerprint, call->fingerprint);
    }
    EXPECT_EQ(prepare(*sum)->operands().input, nullptr) << "a schedule in place has no input of its own";
}

TEST_F(CallOfTwo, scaled_values_go_through_memory_of_the_operation_in_the_type_of_accumulation) {
    std::vector<std::uint16_t> halves(6);
    const TensorView tensor = view(halves.data(), {6}, float16);
    const AllReduceOptions options{.op = ReduceOp::premul_sum(0.5), .group = group()};
    const auto call = made<describe::all_reduce>(tensor, options);
    const PreparedOperation operation = prepare(*call);
    EXPECT_EQ(operation->call.dtype, float32);
    EXPECT_EQ(operation->call.op, ReduceOp::Kind::sum);
    EXPECT_EQ(operation->call.block_bytes, 6 * sizeof(float));
    EXPECT_NE(operation->call.input, operation->call.output);
    EXPECT_FALSE(operation->call.in_place);
    EXPECT_NE(static_cast<void*>(operation->call.output), halves.data());
    EXPECT_EQ(operation->call.fingerprint, call->fingerprint);
}

}  // namespace
}  // namespace tutti::api
