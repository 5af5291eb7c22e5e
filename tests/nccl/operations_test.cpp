// Every operation with every type on device memory, against the oracle: what the conformance suite does for host
// memory.
#include "conformance/oracle.hpp"
#include "device.hpp"
#include "support/covers.hpp"

#include <gtest/gtest.h>

#include <cstring>

namespace tutti::test {
namespace {

class Operations : public ::testing::TestWithParam<int> {
 protected:
    void SetUp() override {
        if (cuda().is_fake()) cuda().fake_set_delay(20);
    }
    void TearDown() override {
        if (cuda().is_fake()) cuda().fake_set_delay(0);
    }
};
INSTANTIATE_TEST_SUITE_P(Ranks, Operations, ::testing::Values(1, 2, 3),
                         [](const auto& instance) { return "of_" + std::to_string(instance.param); });

template <class T>
Tensor values_of(int rank, std::int64_t count, std::size_t first = 0) {
    Tensor result = empty(dtype_of<T>, Extents::of(count));
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
        result.data<T>()[i] = oracle_value<T>(rank, first + i);
    return result;
}

template <class T>
void expect_equal(const Tensor& got, const Tensor& wanted, const std::string& what) {
    ASSERT_EQ(got.element_count(), wanted.element_count()) << what;
    for (std::int64_t i = 0; i < got.element_count(); ++i) {
        ASSERT_TRUE(same_value<T>(got.data<T>()[i], wanted.data<T>()[i]))
            << what << " of " << to_string(dtype_of<T>) << ", element " << i;
    }
}

// The significant bits of a type's numbers, the hidden one with them.
template <class T>
constexpr int digits_of() {
    if constexpr (is_complex_type<T>) return std::numeric_limits<typename T::value_type>::digits;
    if constexpr (std::is_same_v<T, Float16>) return 11;
    if constexpr (std::is_same_v<T, BFloat16>) return 8;
    if constexpr (std::is_same_v<T, Float8E4M3FN>) return 4;
    if constexpr (std::is_same_v<T, Float8E5M2>) return 3;
    return std::numeric_limits<T>::digits;
}

template <class T>
std::complex<double> number_of(const T& value) {
    if constexpr (is_complex_type<T>) return value;
    if constexpr (is_small_float<T>) return static_cast<double>(static_cast<float>(value));
    if constexpr (!is_complex_type<T> && !is_small_float<T>) return static_cast<double>(value);
}

// NCCL multiplies each floating-point value by 1/n and adds the products, with a rounding after each step; the values
// of the oracle are at most 2.
template <class T>
void expect_combined(ReduceOp::Kind kind, const Tensor& got, const Tensor& wanted, const std::string& what) {
    if (std::is_integral_v<T> || kind != ReduceOp::Kind::avg || cuda().is_fake())
        return expect_equal<T>(got, wanted, what);
    for (std::int64_t i = 0; i < got.element_count(); ++i) {
        ASSERT_LE(std::abs(number_of(got.data<T>()[i]) - number_of(wanted.data<T>()[i])),
                  6 * std::ldexp(1.0, -digits_of<T>()))
            << what << " of " << to_string(dtype_of<T>) << ", element " << i;
    }
}

template <class T>
Tensor combined(ReduceOp::Kind op, int size, std::int64_t count, std::size_t first = 0) {
    Tensor result = empty(dtype_of<T>, Extents::of(count));
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
        std::vector<T> of_rank;
        for (int r = 0; r < size; ++r) of_rank.push_back(oracle_value<T>(r, first + i));
        result.data<T>()[i] = oracle_combined<T>(op, of_rank);
    }
    return result;
}

template <class T>
void reduce_with(const ProcessGroup& g, const Gpu& gpu, ReduceOp::Kind kind, std::int64_t count) {
    const int me = g.rank(), n = g.size();
    const ReduceOp op = kind == ReduceOp::Kind::premul_sum ? ReduceOp::premul_sum(oracle_factor(me)) : ReduceOp(kind);
    const std::string what =
        "rank " + std::to_string(me) + " of " + std::to_string(n) + ": " + std::string(to_string(kind)) + " by ";
    const OnGpu all(gpu, values_of<T>(me, count)), one(gpu, values_of<T>(me, count)),
        whole(gpu, values_of<T>(me, count * n)), part(gpu, values_of<T>(me + 1, count));
    all_reduce(all, {.op = op, .group = g});
    reduce(one, {.dst = n - 1, .op = op, .group = g});
    reduce_scatter_tensor(part, whole, {.op = op, .group = g});
    ASSERT_NO_FATAL_FAILURE(expect_combined<T>(kind, all.values(), combined<T>(kind, n, count), what + "all_reduce"));
    ASSERT_NO_FATAL_FAILURE(expect_combined<T>(
        kind, one.values(), me == n - 1 ? combined<T>(kind, n, count) : values_of<T>(me, count), what + "reduce"));
    ASSERT_NO_FATAL_FAILURE(expect_combined<T>(kind, part.values(),
                                               combined<T>(kind, n, count, static_cast<std::size_t>(count * me)),
                                               what + "reduce_scatter_tensor"));
    ASSERT_NO_FATAL_FAILURE(
        expect_equal<T>(whole.values(), values_of<T>(me, count * n), what + "input of reduce_scatter"));
}

TEST_P(Operations, combine_with_every_operator_that_is_defined) {
    on_gpus(GetParam(), [](const ProcessGroup& g, const Gpu& gpu) {
        for_all_types([&](auto type) {
            using T = decltype(type);
            for (int k = 0; k < reduce_op_count; ++k) {
                const auto kind = static_cast<ReduceOp::Kind>(k);
                if (defined_for<T>(kind)) {
                    for (const std::int64_t count : {1, 129}) reduce_with<T>(g, gpu, kind, count);
                } else {
                    const OnGpu x(gpu, values_of<T>(0, 3));
                    EXPECT_THROW(all_reduce(x, {.op = ReduceOp(kind), .group = g}), InvalidArgument);
                }
            }
        });
    });
}

template <class T>
void move(const ProcessGroup& g, const Gpu& gpu, std::int64_t count) {
    const int me = g.rank(), n = g.size(), root = n - 1;
    const std::string rank = "rank " + std::to_string(me) + " of " + std::to_string(n) + ": ";
    const auto all_values = [&] {
        Tensor all = empty(dtype_of<T>, Extents::of(count * n));
        for (int r = 0; r < n; ++r)
            std::memcpy(all.data<T>() + r * count, values_of<T>(r, count).raw_data(),
                        static_cast<std::size_t>(count) * sizeof(T));
        return all;
    };
    const OnGpu mine(gpu, values_of<T>(me, count));
    const OnGpu spread(gpu, values_of<T>(me, count)), gathered(gpu, values_of<T>(9, count * n)),
        scattered(gpu, values_of<T>(9, count)), exchanged(gpu, values_of<T>(9, count * n)),
        whole(gpu, values_of<T>(me, count * n));
    broadcast(spread, {.src = root, .group = g});
    all_gather_into_tensor(gathered, mine, {.group = g});
    ConstTensorList blocks;
    for (int r = 0; r < n && me == root; ++r) blocks.emplace_back(whole.part(r * count, count));
    scatter(scattered, blocks, {.src = root, .group = g});
    all_to_all_single(exchanged, whole, {.group = g});
    ASSERT_NO_FATAL_FAILURE(expect_equal<T>(spread.values(), values_of<T>(root, count), rank + "broadcast"));
    ASSERT_NO_FATAL_FAILURE(expect_equal<T>(gathered.values(), all_values(), rank + "all_gather_into_tensor"));
    ASSERT_NO_FATAL_FAILURE(expect_equal<T>(
        scattered.values(), values_of<T>(root, count, static_cast<std::size_t>(count * me)), rank + "scatter"));
    const Tensor got = exchanged.values();
    for (int r = 0; r < n; ++r) {
        const Tensor wanted = values_of<T>(r, count, static_cast<std::size_t>(count * me));
        ASSERT_EQ(std::memcmp(got.data<T>() + r * count, wanted.raw_data(), wanted.byte_count()), 0)
            << rank << "all_to_all_single of " << to_string(dtype_of<T>) << ", block " << r;
    }
    const OnGpu on_root(gpu, values_of<T>(9, count * n));
    TensorList parts;
    for (int r = 0; r < n && me == root; ++r) parts.emplace_back(on_root.part(r * count, count));
    gather(mine, parts, {.dst = root, .group = g});
    const Tensor wanted = me == root ? all_values() : values_of<T>(9, count * n);
    ASSERT_NO_FATAL_FAILURE(expect_equal<T>(on_root.values(), wanted, rank + "gather"));
    const OnGpu received(gpu, values_of<T>(9, count));
    Work incoming = irecv(received, {.src = (me + n - 1) % n, .group = g});
    Work outgoing = isend(mine, (me + 1) % n, {.group = g});
    outgoing.wait();
    incoming.wait();
    ASSERT_NO_FATAL_FAILURE(
        expect_equal<T>(received.values(), values_of<T>((me + n - 1) % n, count), rank + "message"));
}

TEST_P(Operations, move_every_type_without_a_change) {
    on_gpus(GetParam(), [](const ProcessGroup& g, const Gpu& gpu) {
        for_all_types([&](auto type) {
            for (const std::int64_t count : {1, 100}) move<decltype(type)>(g, gpu, count);
        });
    });
}

// Tensors of a list, each an allocation of its own.
struct Scattered {
    Scattered(const Gpu& gpu, const std::vector<std::int64_t>& counts, const std::function<Tensor(int)>& values) {
        for (std::size_t i = 0; i < counts.size(); ++i) tensors.emplace_back(gpu, values(static_cast<int>(i)));
    }
    TensorList views() const {
        TensorList all;
        for (const OnGpu& tensor : tensors) all.push_back(tensor.view());
        return all;
    }
    ConstTensorList const_views() const {
        const TensorList all = views();
        return {all.begin(), all.end()};
    }
    std::vector<OnGpu> tensors;
};

TEST_P(Operations, of_lists_take_tensors_from_anywhere) {
    on_gpus(GetParam(), [](const ProcessGroup& g, const Gpu& gpu) {
        const int me = g.rank(), n = g.size();
        const auto of = [](int rank, std::int64_t count, int block = 0) {
            return values_of<float>(rank, count, static_cast<std::size_t>(100 * block));
        };
        for (const bool uneven : {false, true}) {
            std::vector<std::int64_t> counts;
            for (int r = 0; r < n; ++r) counts.push_back(uneven ? 3 + 40 * r : 17);
            const std::int64_t own = counts[static_cast<std::size_t>(me)];
            const Scattered gathered(gpu, counts, [&](int r) { return of(9, counts[static_cast<std::size_t>(r)]); });
            all_gather(gathered.views(), OnGpu(gpu, of(me, own)), {.group = g});
            const Scattered given(gpu, counts, [&](int r) { return of(me, counts[static_cast<std::size_t>(r)], r); });
            const OnGpu sum(gpu, of(9, own));
            reduce_scatter(sum, given.const_views(), {.group = g});
            // To rank r: as many as the sender and r together, so that sizes match pairwise.
            const auto pair = [&](int r) { return uneven ? static_cast<std::int64_t>(2 * (me + r)) : 5; };
            std::vector<std::int64_t> pairs;
            for (int r = 0; r < n; ++r) pairs.push_back(pair(r));
            const Scattered out(gpu, pairs, [&](int r) { return of(me, pair(r), r); });
            const Scattered in(gpu, pairs, [&](int r) { return of(9, pair(r)); });
            all_to_all(in.views(), out.const_views(), {.group = g});
            for (int r = 0; r < n; ++r) {
                const auto i = static_cast<std::size_t>(r);
                expect_equal<float>(gathered.tensors[i].values(), of(r, counts[i]), "all_gather");
                expect_equal<float>(in.tensors[i].values(), of(r, pair(r), me), "all_to_all");
            }
            expect_equal<float>(sum.values(),
                                combined<float>(ReduceOp::Kind::sum, n, own, static_cast<std::size_t>(100 * me)),
                                "reduce_scatter");
            const Scattered on_root(gpu, std::vector<std::int64_t>(static_cast<std::size_t>(n), 6),
                                    [&](int) { return of(9, 6); });
            gather(OnGpu(gpu, of(me, 6)), me == 0 ? on_root.views() : TensorList{}, {.dst = 0, .group = g});
            const OnGpu back(gpu, of(9, 6));
            scatter(back, me == 0 ? on_root.const_views() : ConstTensorList{}, {.src = 0, .group = g});
            expect_equal<float>(back.values(), of(me, 6), "gather, then scatter");
        }
    });
}

TEST_P(Operations, of_uneven_blocks_are_padded_or_cut_and_leave_the_rest_alone) {
    on_gpus(GetParam(), [](const ProcessGroup& g, const Gpu& gpu) {
        const int me = g.rank(), n = g.size();
        for (const int spread : {1, 50}) {  // nearly alike, and far apart
            std::vector<std::int64_t> counts;
            std::int64_t sum = 0;
            for (int r = 0; r < n; ++r) {
                counts.push_back(100 + r * spread);
                sum += counts.back();
            }
            const std::int64_t own = counts[static_cast<std::size_t>(me)];
            const OnGpu all(gpu, values_of<double>(9, sum)), mine(gpu, values_of<double>(me, own));
            all_gather_v(all, mine, {.output_split_sizes = counts, .group = g});
            const OnGpu whole(gpu, values_of<double>(me, sum)), part(gpu, values_of<double>(9, own));
            reduce_scatter_v(part, whole, {.input_split_sizes = counts, .group = g});
            const Tensor got = all.values();
            std::int64_t at = 0;
            for (int r = 0; r < n; ++r) {
                const Tensor wanted = values_of<double>(r, counts[static_cast<std::size_t>(r)]);
                EXPECT_EQ(std::memcmp(got.data<double>() + at, wanted.raw_data(), wanted.byte_count()), 0)
                    << "block " << r << ", spread " << spread;
                if (r == me)
                    expect_equal<double>(part.values(),
                                         combined<double>(ReduceOp::Kind::sum, n, own, static_cast<std::size_t>(at)),
                                         "reduce_scatter_v");
                at += counts[static_cast<std::size_t>(r)];
            }
            // Blocks with gaps: what no block covers keeps its value.
            const OnGpu out(gpu, values_of<float>(me, 40 * n)), in(gpu, values_of<float>(7, 40 * n));
            AllToAllVOptions blocks{.group = g};
            for (int r = 0; r < n; ++r) {
                blocks.send_counts.push_back((me + 2 * r) % 7 * 5);
                blocks.receive_counts.push_back((r + 2 * me) % 7 * 5);
                blocks.send_offsets.push_back(40 * (n - 1 - r));
                blocks.receive_offsets.push_back(40 * r);
            }
            all_to_all_v(in, out, blocks);
            Tensor wanted = values_of<float>(7, 40 * n);
            for (int r = 0; r < n; ++r) {
                const Tensor block = values_of<float>(r, 40, static_cast<std::size_t>(40 * (n - 1 - me)));
                std::memcpy(
                    wanted.data<float>() + 40 * r, block.raw_data(),
                    static_cast<std::size_t>(blocks.receive_counts[static_cast<std::size_t>(r)]) * sizeof(float));
            }
            expect_equal<float>(in.values(), wanted, "all_to_all_v");
        }
    });
}

TEST_P(Operations, of_nothing_and_of_much_work) {
    on_gpus(GetParam(), [](const ProcessGroup& g, const Gpu& gpu) {
        for (const std::int64_t count : {0, 1, 300007}) {
            const OnGpu x(gpu, values_of<float>(g.rank(), count));
            all_reduce(x, {.group = g});
            broadcast(x, {.src = 0, .group = g});
            expect_equal<float>(x.values(), combined<float>(ReduceOp::Kind::sum, g.size(), count), "all_reduce");
        }
    });
}

TEST_P(Operations, in_the_order_of_ranks_give_the_same_bits_as_on_host_memory) {
    on_gpus(GetParam(),
            [](const ProcessGroup& g, const Gpu& gpu) {
                Tensor host = empty(float32, {1000});
                for (int i = 0; i < 1000; ++i)
                    host.data<float>()[i] = 0.1F * static_cast<float>(i * (g.rank() + 3)) + 1e-3F;
                const OnGpu x(gpu, host);
                all_reduce(x, {.group = g});
                all_reduce(host, {.group = g});
                const Tensor got = x.values();
                EXPECT_EQ(std::memcmp(got.raw_data(), host.raw_data(), host.byte_count()), 0);
            },
            {.determinism = Determinism::layout_invariant});
}

// The four operations of the article about NCCL's interface, as its program has them.
TEST(Article, about_NCCLs_interface_gets_what_it_prints) {
    covers_on_gpu({"S2-004"});
    on_gpus(4,
            [](const ProcessGroup& g, const Gpu& gpu) {
                const int rank = g.rank(), world_size = g.size();
                const auto number = [&](std::int64_t value) { return OnGpu(gpu, tensor<std::int64_t>({value})); };
                barrier({.group = g});
                const OnGpu x = number(rank);
                all_reduce(x, {.group = g});
                EXPECT_EQ(x.value<std::int64_t>(), 6);
                ConstTensorList input_list;
                std::vector<OnGpu> inputs, outputs;
                TensorList tensor_list;
                for (int i = 0; i < world_size; ++i) {
                    inputs.push_back(number(rank));
                    outputs.push_back(number(0));
                    input_list.emplace_back(inputs.back());
                    tensor_list.emplace_back(outputs.back());
                }
                const OnGpu output = number(-1);
                reduce_scatter(output, input_list, {.op = ReduceOp::sum, .group = g});
                EXPECT_EQ(output.value<std::int64_t>(), 6);
                all_gather(tensor_list, number(rank), {.group = g});
                for (int i = 0; i < world_size; ++i)
                    EXPECT_EQ(outputs[static_cast<std::size_t>(i)].value<std::int64_t>(), i);
                const OnGpu root = number(rank == 0 ? world_size : 0);
                broadcast(root, {.src = 0, .group = g});
                EXPECT_EQ(root.value<std::int64_t>(), 4);
                barrier({.group = g});
            },
            {.backend = "nccl"});
}

}  // namespace
}  // namespace tutti::test
