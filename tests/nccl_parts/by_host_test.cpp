// HostFallback on the fake device: values, order, pieces, failures.
#include "nccl/host_request.hpp"
#include "nccl_parts/parts.hpp"
#include "support/message_of.hpp"

#include <barrier>
#include <complex>
#include <cstdint>
#include <numeric>

namespace tutti::test {
namespace {

class HostFallback : public ::testing::TestWithParam<Where> {};

INSTANTIATE_TEST_SUITE_P(Memory, HostFallback, ::testing::Values(Where::device, Where::host),
                         [](const auto& where) { return where.param == Where::device ? "device" : "host"; });

TEST_P(HostFallback, combines_bits_integers_and_complex_values_of_all_ranks) {
    on_ranks(3,
             [](const Rank& me) {
                 std::vector<std::int32_t> bits(1000, 1 << me.rank());
                 all_reduce(me.on(bits), {.op = ReduceOp::bor, .group = me.group});
                 std::vector<std::int16_t> shorts(7, static_cast<std::int16_t>(-me.rank()));
                 all_reduce(me.on(shorts), {.op = ReduceOp::min, .group = me.group});
                 std::vector<std::complex<double>> sums(5, {1.0, static_cast<double>(me.rank())});
                 all_reduce(me.on(sums), {.group = me.group});
                 std::vector<std::uint16_t> averages(9, static_cast<std::uint16_t>(3 * me.rank()));
                 all_reduce(me.on(averages), {.op = ReduceOp::avg, .group = me.group});
                 me.wait_for({});
                 EXPECT_EQ(bits, std::vector<std::int32_t>(1000, 7));
                 EXPECT_EQ(shorts, std::vector<std::int16_t>(7, -2));
                 EXPECT_EQ(sums, std::vector<std::complex<double>>(5, {3.0, 3.0}));
                 EXPECT_EQ(averages, std::vector<std::uint16_t>(9, 3));
             },
             {.where = GetParam()});
}

// No library has them, of whatever type.
TEST_P(HostFallback, combines_prefixes) {
    on_ranks(3,
             [](const Rank& me) {
                 const auto rank = static_cast<float>(me.rank());
                 std::vector<float> up_to_me(1000, rank + 1), before_me(1000, rank + 1), doubled(5, rank + 1);
                 scan(me.on(up_to_me), {.group = me.group});
                 exscan(me.on(before_me), {.op = ReduceOp::max, .group = me.group});
                 exscan(me.on(doubled), {.op = ReduceOp::premul_sum(2), .group = me.group});
                 me.wait_for({});
                 EXPECT_EQ(up_to_me, std::vector<float>(1000, (rank + 1) * (rank + 2) / 2));
                 EXPECT_EQ(before_me, std::vector<float>(1000, me.rank() == 0 ? 1 : rank));
                 EXPECT_EQ(doubled, std::vector<float>(5, me.rank() == 0 ? 1 : rank * (rank + 1)));
             },
             {.where = GetParam()});
}

TEST_P(HostFallback, runs_every_collective_with_a_root) {
    on_ranks(3,
             [](const Rank& me) {
                 for (int root = 0; root < me.size(); ++root) {
                     std::vector<int> given(4, me.rank() == root ? 40 + root : -1);
                     broadcast(me.on(given), {.group = me.group, .group_src = root});
                     std::vector<std::uint8_t> mask(6, static_cast<std::uint8_t>(1U << me.rank()));
                     reduce(me.on(mask), {.op = ReduceOp::bxor, .group = me.group, .group_dst = root});
                     std::vector<std::vector<int>> gathered(3, std::vector<int>(2, -1)), dealt;
                     std::vector<int> mine(2, me.rank()), got(2, -1);
                     TensorList outputs;
                     ConstTensorList inputs;
                     for (int i = 0; i < 3; ++i) dealt.push_back({root * 10 + i, i});
                     for (int i = 0; i < 3 && me.rank() == root; ++i) {
                         outputs.push_back(me.on(gathered[static_cast<std::size_t>(i)]));
                         inputs.push_back(me.on(dealt[static_cast<std::size_t>(i)]));
                     }
                     gather(me.on(mine), outputs, {.group = me.group, .group_dst = root});
                     scatter(me.on(got), inputs, {.group = me.group, .group_src = root});
                     barrier({.group = me.group});
                     me.wait_for({});
                     EXPECT_EQ(given, std::vector<int>(4, 40 + root));
                     EXPECT_EQ(mask[5], me.rank() == root ? 7 : 1 << me.rank());
                     EXPECT_EQ(got, (std::vector<int>{root * 10 + me.rank(), me.rank()}));
                     for (int i = 0; i < 3; ++i)
                         EXPECT_EQ(gathered[static_cast<std::size_t>(i)],
                                   std::vector<int>(2, me.rank() == root ? i : -1));
                 }
             },
             {.where = GetParam()});
}

TEST_P(HostFallback, moves_even_and_uneven_blocks_that_adjoin_or_do_not) {
    on_ranks(3,
             [](const Rank& me) {
                 const auto rank = static_cast<std::size_t>(me.rank());
                 const std::vector<std::int64_t> sizes{3, 0, 2};
                 std::vector<int> all(5, -1), mine(static_cast<std::size_t>(sizes[rank]), me.rank());
                 all_gather_v(me.on(all), me.on(mine), {.output_split_sizes = sizes, .group = me.group});
                 std::vector<std::uint32_t> bits{1, 2, 3, 4, 5}, part(static_cast<std::size_t>(sizes[rank]));
                 reduce_scatter_v(me.on(part), me.on(bits),
                                  {.input_split_sizes = sizes, .op = ReduceOp::band, .group = me.group});
                 std::vector<int> even(6, -1), two(2, me.rank());
                 all_gather_into_tensor(me.on(even), me.on(two), {.group = me.group});
                 // Lists of tensors that lie apart.
                 std::vector<std::vector<int>> apart(3, std::vector<int>(2, -1)), given(3), taken(3);
                 TensorList outputs, takes;
                 ConstTensorList inputs;
                 for (std::size_t i = 0; i < 3; ++i) {
                     given[i].assign(i + 1, me.rank());
                     taken[i].assign(rank + 1, -1);
                     outputs.push_back(me.on(apart[i]));
                     inputs.push_back(me.on(given[i]));
                     takes.push_back(me.on(taken[i]));
                 }
                 all_gather(outputs, me.on(two), {.group = me.group});
                 all_to_all(takes, inputs, {.group = me.group});
                 std::vector<int> sum(rank + 1);
                 reduce_scatter(me.on(sum), inputs, {.op = ReduceOp::max, .group = me.group});
                 me.wait_for({});
                 EXPECT_EQ(all, (std::vector<int>{0, 0, 0, 2, 2}));
                 EXPECT_EQ(part, rank == 0
                                     ? (std::vector<std::uint32_t>{1, 2, 3})
                                     : (rank == 1 ? std::vector<std::uint32_t>{} : std::vector<std::uint32_t>{4, 5}));
                 EXPECT_EQ(even, (std::vector<int>{0, 0, 1, 1, 2, 2}));
                 EXPECT_EQ(sum, std::vector<int>(rank + 1, 2));
                 for (int i = 0; i < 3; ++i) {
                     EXPECT_EQ(apart[static_cast<std::size_t>(i)], std::vector<int>(2, i));
                     EXPECT_EQ(taken[static_cast<std::size_t>(i)], std::vector<int>(rank + 1, i));
                 }
             },
             {.where = GetParam()});
}

TEST_P(HostFallback, exchanges_blocks_with_gaps_and_leaves_the_gaps_alone) {
    on_ranks(3,
             [](const Rank& me) {
                 // Rank r sends r + 1 elements to each; what comes from rank s goes to 10 * s.
                 std::vector<int> input(9), output(30, -1);
                 std::iota(input.begin(), input.end(), 100 * me.rank());
                 const std::int64_t count = me.rank() + 1;
                 all_to_all_v(me.on(output), me.on(input),
                              {.send_counts = {count, count, count},
                               .send_offsets = {6, 3, 0},
                               .receive_counts = {1, 2, 3},
                               .receive_offsets = {0, 10, 20},
                               .group = me.group});
                 me.wait_for({});
                 std::vector<int> expected(30, -1);
                 for (int s = 0; s < 3; ++s) {
                     for (int i = 0; i <= s; ++i)
                         expected[static_cast<std::size_t>(10 * s + i)] = 100 * s + 3 * (2 - me.rank()) + i;
                 }
                 EXPECT_EQ(output, expected);
             },
             {.where = GetParam()});
}

TEST_P(HostFallback, moves_blocks_to_a_root_and_back_that_only_it_knows) {
    on_ranks(3,
             [](const Rank& me) {
                 // Rank r gives r elements, which go to 10 * r.
                 const bool is_root = me.rank() == 1;
                 std::vector<int> input(static_cast<std::size_t>(me.rank()), me.rank()), output(30, -1);
                 const TensorView all = is_root ? me.on(output) : TensorView();
                 gather_v(me.on(input), all,
                          {.receive_counts = {0, 1, 2}, .receive_offsets = {0, 10, 20}, .dst = 1, .group = me.group});
                 me.wait_for({});
                 std::vector<int> expected(30, -1), back(input.size(), -1);
                 expected[10] = 1;
                 expected[20] = expected[21] = 2;
                 if (is_root) {
                     EXPECT_EQ(output, expected);
                 }
                 scatter_v(me.on(back), all,
                           {.send_counts = {0, 1, 2}, .send_offsets = {0, 10, 20}, .src = 1, .group = me.group});
                 me.wait_for({});
                 EXPECT_EQ(back, input);
             },
             {.where = GetParam()});
}

TEST_P(HostFallback, scales_each_ranks_values_by_its_own_factor) {
    on_ranks(2,
             [](const Rank& me) {
                 std::vector<float> x(10, 1.0F);
                 all_reduce(me.on(x), {.op = ReduceOp::premul_sum(me.rank() + 0.5), .group = me.group});
                 me.wait_for({});
                 EXPECT_EQ(x, std::vector<float>(10, 2.0F));
             },
             {.where = GetParam()});
}

TEST_P(HostFallback, combines_values_in_the_order_of_ranks) {
    on_ranks(4,
             [](const Rank& me) {
                 const std::vector<float> values{1e8F, 1.0F, -1e8F, 0.25F};
                 std::vector<float> x(3000, values[static_cast<std::size_t>(me.rank())]);
                 all_reduce(me.on(x), {.group = me.group});
                 me.wait_for({});
                 const float expected = ((1e8F + 1.0F) - 1e8F) + 0.25F;
                 EXPECT_EQ(x, std::vector<float>(3000, expected)) << "from rank 0 upwards";
             },
             {.where = GetParam(), .determinism = Determinism::layout_invariant});
}

TEST_P(HostFallback, keeps_the_order_of_many_operations_at_once) {
    on_ranks(2,
             [](const Rank& me) {
                 constexpr std::size_t many = 100;
                 std::vector<std::vector<std::int16_t>> x;
                 std::vector<Work> works;
                 for (std::size_t i = 0; i < many; ++i)
                     x.emplace_back(1 + i % 7, static_cast<std::int16_t>(i) * static_cast<std::int16_t>(me.rank() + 1));
                 for (std::size_t i = 0; i < many; ++i)
                     works.push_back(async::all_reduce(me.on(x[i]), {.group = me.group}));
                 wait_all(works);
                 me.wait_for({});
                 for (std::size_t i = 0; i < many; ++i)
                     EXPECT_EQ(x[i], std::vector<std::int16_t>(1 + i % 7, static_cast<std::int16_t>(3 * i)));
             },
             {.where = GetParam()});
}

TEST_P(HostFallback, serves_a_rank_that_is_alone) {
    on_ranks(1,
             [](const Rank& me) {
                 std::vector<int> x(10, 6), y(10, -1), z(10, -1);
                 all_reduce(me.on(x), {.op = ReduceOp::bor, .group = me.group});
                 all_gather_into_tensor(me.on(y), me.on(x), {.group = me.group});
                 Work received = irecv(me.on(z), {.group = me.group});
                 isend(me.on(x), 0, {.group = me.group}).wait();
                 received.wait();
                 me.wait_for({});
                 EXPECT_EQ(x, std::vector<int>(10, 6));
                 EXPECT_EQ(y, x);
                 EXPECT_EQ(z, x);
             },
             {.where = GetParam()});
}

// ---- On a device

TEST(ByHostOnADevice, reads_what_the_callers_stream_has_written_and_is_enqueued_when_its_results_are_on_the_way) {
    on_ranks(2, [](const Rank& me) {
        const Stream stream = me.stream(), later = me.stream();
        Flag go;
        std::vector<int> x(100, -1);
        FakeDriver::get()->push(stream.handle, [&] {
            go.wait(20s);
            x.assign(100, 1 << me.rank());
        });
        Work work = async::all_reduce(me.on(x), {.op = ReduceOp::bor, .group = me.group, .stream = stream});
        std::this_thread::sleep_for(50ms);
        EXPECT_FALSE(work.is_completed()) << "its stream holds something else";
        EXPECT_EQ(x, std::vector<int>(100, -1));
        go.set();
        {
            const CurrentStream current(Device::Type::cuda, later);
            work.wait();
        }
        me.wait_for(later);
        EXPECT_EQ(x, std::vector<int>(100, 3));
    });
}

TEST(ByHostOnADevice, ends_in_one_order_though_streams_come_to_them_in_different_ones) {
    std::barrier both(2);
    on_ranks(2, [&](const Rank& me) {
        const Stream first = me.stream(), second = me.stream();
        Flag go;
        // On rank 0 the first operation's stream is late, on rank 1 the second's.
        FakeDriver::get()->push((me.rank() == 0 ? first : second).handle, [&] { go.wait(20s); });
        std::vector<int> x(10, 1), y(10, 1);
        Work one = async::all_reduce(me.on(x), {.op = ReduceOp::bxor, .group = me.group, .stream = first});
        Work two = async::all_reduce(me.on(y), {.op = ReduceOp::bor, .group = me.group, .stream = second});
        std::this_thread::sleep_for(50ms);
        EXPECT_FALSE(one.is_completed());
        EXPECT_FALSE(two.is_completed());
        both.arrive_and_wait();
        go.set();
        two.wait();
        one.wait();
        me.wait_for({});
        EXPECT_EQ(x, std::vector<int>(10, 0));
        EXPECT_EQ(y, std::vector<int>(10, 1));
    });
}

TEST(ByHostOnADevice, keeps_the_order_of_operations_with_and_without_buffers) {
    std::barrier both(2);
    on_ranks(2, [&](const Rank& me) {
        const Stream stream = me.stream();
        Flag go;
        if (me.rank() == 0) FakeDriver::get()->push(stream.handle, [&] { go.wait(20s); });
        std::vector<int> x(10, 1 << me.rank());
        Work sum = async::all_reduce(me.on(x), {.op = ReduceOp::bor, .group = me.group, .stream = stream});
        Work met = async::barrier({.group = me.group});
        std::this_thread::sleep_for(50ms);
        EXPECT_FALSE(met.is_completed()) << "the other one comes first";
        both.arrive_and_wait();
        go.set();
        met.wait();
        sum.wait();
        me.wait_for({});
        EXPECT_EQ(x, std::vector<int>(10, 3));
    });
}

TEST(ByHostOnADevice, carries_long_ones_out_in_pieces_and_gives_the_memory_back) {
    constexpr std::size_t megabyte = std::size_t{1} << 20;
    const std::size_t copies = FakeDriver::get()->copies();
    on_ranks(3, [](const Rank& me) {
        const auto rank = static_cast<std::size_t>(me.rank());
        std::vector<std::uint16_t> x(9 * megabyte + 5);
        for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<std::uint16_t>(i * (rank + 1));
        Work work = async::all_reduce(me.on(x), {.group = me.group});
        std::vector<std::int64_t> sizes{static_cast<std::int64_t>(2 * megabyte + 1), 3,
                                        static_cast<std::int64_t>(megabyte)};
        std::vector<std::int32_t> given(3 * megabyte + 4), taken(static_cast<std::size_t>(sizes[rank]));
        for (std::size_t i = 0; i < given.size(); ++i) given[i] = static_cast<std::int32_t>(i ^ (rank << 20));
        reduce_scatter_v(me.on(taken), me.on(given),
                         {.input_split_sizes = sizes, .op = ReduceOp::bxor, .group = me.group});
        std::vector<std::int32_t> all(given.size());
        all_gather_v(me.on(all), me.on(taken), {.output_split_sizes = sizes, .group = me.group});
        work.wait();
        me.wait_for({});
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < x.size(); ++i) wrong += x[i] != static_cast<std::uint16_t>(6 * i) ? 1U : 0U;
        for (std::size_t i = 0; i < all.size(); ++i)
            wrong += all[i] != static_cast<std::int32_t>(i ^ i ^ i ^ (std::size_t{3} << 20)) ? 1U : 0U;
        EXPECT_EQ(wrong, 0U);
        barrier({.group = me.group});
        EXPECT_LE(FakeDriver::get()->live().host_bytes, 3 * 5 * (8 * megabyte)) << "a window of pieces, not the whole";
    });
    EXPECT_GT(FakeDriver::get()->copies() - copies, 3U * 2 * (5 + 4 + 4));
}

TEST(ByHostOnADevice, a_failed_copy_ends_the_operation_on_all_ranks_and_the_group) {
    std::barrier all(3);
    on_ranks(3, [&](const Rank& me) {
        std::vector<int> x(10, 1);
        all_reduce(me.on(x), {.op = ReduceOp::bor, .group = me.group});
        all.arrive_and_wait();
        if (me.rank() == 1) FakeDriver::get()->fail_copies(me.device.index);
        const auto fails = [&] { all_reduce(me.on(x), {.op = ReduceOp::bor, .group = me.group}); };
        const std::string text = message_of<DistBackendError>(fails);
        if (me.rank() == 1) {
            EXPECT_TRUE(has(text, "rank 1")) << text;
            EXPECT_TRUE(has(text, "all_reduce #")) << text;
            EXPECT_TRUE(has(text, "CUDA_ERROR_LAUNCH_FAILED (719)")) << text;
        } else {
            EXPECT_TRUE(has(text, "719")) << "the others hear why: " << text;
        }
        EXPECT_TRUE(has(message_of<DistBackendError>(fails), "719"));
    });
    FakeDriver::get()->fail_copies(-1);
}

TEST(ByHostOnADevice, a_stream_that_does_not_come_ends_the_operation_at_its_time_limit) {
    Flag end;
    on_ranks(2, [&](const Rank& me) {
        const Stream stream = me.stream();
        if (me.rank() == 0) FakeDriver::get()->push(stream.handle, [&] { end.wait(20s); });
        std::vector<int> x(10, 1);
        const auto begun = std::chrono::steady_clock::now();
        const std::string text = message_of<DistBackendError>([&] {
            all_reduce(me.on(x), {.op = ReduceOp::bor, .group = me.group, .timeout = 300ms, .stream = stream});
        });
        EXPECT_LT(std::chrono::steady_clock::now() - begun, 10s);
        if (me.rank() == 0) {
            EXPECT_TRUE(has(text, "all_reduce")) << text;
            end.set();
        }
        me.wait_for(stream);
        EXPECT_EQ(x, std::vector<int>(10, 1)) << "nothing has come back";
    });
}

TEST(ByHostOnADevice, abort_ends_what_waits_and_touches_no_buffer_afterwards) {
    Flag aborted;
    on_ranks(2, [&](const Rank& me) {
        std::vector<int> x(1000, me.rank()), y(10, me.rank());
        Work one, two;
        if (me.rank() == 0) {
            one = async::all_reduce(me.on(x), {.op = ReduceOp::bor, .group = me.group});
            two = async::broadcast(me.on(y), {.group = me.group, .group_src = 1});
            std::this_thread::sleep_for(50ms);
            ProcessGroup(me.group).abort("enough");
            aborted.set();
            EXPECT_TRUE(has(message_of<Aborted>([&] { one.wait(); }), "enough"));
            EXPECT_TRUE(has(message_of<Aborted>([&] { two.wait(); }), "enough"));
            EXPECT_EQ(x, std::vector<int>(1000, 0));
        } else {
            aborted.wait(20s);
        }
        EXPECT_FALSE(message_of<DistError>([&] { all_reduce(me.on(x), {.group = me.group}); }).empty());
    });
}

TEST(Cut, gives_all_ranks_the_same_pieces_that_cover_everything_once) {
    for (const std::uint64_t count : {0UL, 1UL, 63UL, 1000UL, 1025UL}) {
        for (const BackendCall call : {BackendCall::all_reduce, BackendCall::broadcast, BackendCall::reduce,
                                       BackendCall::gather, BackendCall::scatter}) {
            BackendRequest r;
            r.call = call;
            r.dtype = DType::int32;
            r.root = 1;
            r.count = count;
            std::vector<std::int32_t> in(3 * count + 1), out(3 * count + 1);
            r.input = in.data();
            r.output = out.data();
            const auto first = nccl::cut(r, 0, 3, 1024), second = nccl::cut(r, 1, 3, 1024);
            ASSERT_EQ(first.size(), second.size());
            std::uint64_t elements = 0;
            for (std::size_t i = 0; i < first.size(); ++i) {
                EXPECT_EQ(first[i].request.count, second[i].request.count);
                EXPECT_LE(second[i].bytes, 1024U + 5 * 64);
                elements += first[i].request.count;
            }
            EXPECT_EQ(elements, count);
        }
    }
}

TEST(Cut, lets_ranks_that_disagree_about_the_length_disagree_in_a_piece_that_both_have) {
    for (std::uint64_t count = 1; count < 600; ++count) {
        const auto pieces_of = [](std::uint64_t n) {
            BackendRequest r;
            r.call = BackendCall::all_reduce;
            r.dtype = DType::int32;
            r.count = n;
            return nccl::cut(r, 0, 2, 256);
        };
        const auto one = pieces_of(count), other = pieces_of(count + 1);
        bool differ = false;
        for (std::size_t i = 0; i < std::min(one.size(), other.size()); ++i)
            differ = differ || one[i].request.count != other[i].request.count;
        EXPECT_TRUE(differ) << count;
    }
}

}  // namespace
}  // namespace tutti::test
