// Every dtype with every operator and every way of moving data, on real ranks against the oracle.
#include "conformance/oracle.hpp"
#include "conformance/world.hpp"
#include "support/covers.hpp"

#include <cstring>

namespace tutti::test {
namespace {

class Types : public ::testing::TestWithParam<How> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Types, ::testing::ValuesIn(every_way()),
                         [](const auto& instance) { return to_string(instance.param); });

ReduceOp op_of(ReduceOp::Kind kind, int rank) {
    return kind == ReduceOp::Kind::premul_sum ? ReduceOp::premul_sum(oracle_factor(rank)) : ReduceOp(kind);
}

template <class T>
Tensor values_of(int rank, std::size_t count, std::size_t first = 0) {
    Tensor result = empty(dtype_of<T>, Extents::of(static_cast<std::int64_t>(count)));
    for (std::size_t i = 0; i < count; ++i) result.data<T>()[i] = oracle_value<T>(rank, first + i);
    return result;
}

template <class T>
T combined(ReduceOp::Kind op, int size, std::size_t i) {
    std::vector<T> of_rank;
    for (int r = 0; r < size; ++r) of_rank.push_back(oracle_value<T>(r, i));
    return oracle_combined<T>(op, of_rank);
}

template <class T>
void expect_combined(const ProcessGroup& g, ReduceOp::Kind op, const Tensor& got, std::size_t first, const char* what) {
    for (std::size_t i = 0; i < got.span<T>().size(); ++i) {
        ASSERT_TRUE(same_value<T>(got.data<T>()[i], combined<T>(op, g.size(), first + i)))
            << what << " " << to_string(op) << " of " << to_string(dtype_of<T>) << ", rank " << g.rank() << " of "
            << g.size() << ", element " << i;
    }
}

template <class T>
void check_prefixes(const ProcessGroup& g, ReduceOp::Kind kind, std::size_t count) {
    const int me = g.rank();
    const ReduceOp op = op_of(kind, me);
    const auto expect_of = [&](int ranks, const Tensor& got, const char* what) {
        for (std::size_t i = 0; i < count; ++i) {
            ASSERT_TRUE(same_value<T>(got.data<T>()[i], combined<T>(kind, ranks, i)))
                << what << " " << to_string(kind) << " of " << to_string(dtype_of<T>) << ", rank " << me << " of "
                << g.size() << ", element " << i;
        }
    };
    Tensor data = values_of<T>(me, count);
    const Tensor before = data.clone();
    scan(data, {.op = op, .group = g});
    ASSERT_NO_FATAL_FAILURE(expect_of(me + 1, data, "scan"));
    data = before.clone();
    exscan(data, {.op = op, .group = g});
    if (me > 0) {
        ASSERT_NO_FATAL_FAILURE(expect_of(me, data, "exscan"));
    } else {
        ASSERT_EQ(std::memcmp(data.raw_data(), before.raw_data(), data.byte_count()), 0) << "rank 0 keeps its values";
    }
}

template <class T>
void check_operator(const ProcessGroup& g, ReduceOp::Kind kind, std::size_t count) {
    const int me = g.rank(), n = g.size();
    const ReduceOp op = op_of(kind, me);
    Tensor data = values_of<T>(me, count);
    all_reduce(data, {.op = op, .group = g});
    ASSERT_NO_FATAL_FAILURE(expect_combined<T>(g, kind, data, 0, "all_reduce"));
    const int root = static_cast<int>(count) % n;
    data = values_of<T>(me, count);
    const Tensor before = data.clone();
    reduce(data, {.dst = root, .op = op, .group = g});
    if (me == root) {
        ASSERT_NO_FATAL_FAILURE(expect_combined<T>(g, kind, data, 0, "reduce"));
    } else {
        ASSERT_EQ(std::memcmp(data.raw_data(), before.raw_data(), data.byte_count()), 0) << "reduce writes only there";
    }
    if (kind != ReduceOp::Kind::avg) {
        ASSERT_NO_FATAL_FAILURE(check_prefixes<T>(g, kind, count));
    }
    const Tensor whole = values_of<T>(me, count * static_cast<std::size_t>(n));
    Tensor part = empty(dtype_of<T>, Extents::of(static_cast<std::int64_t>(count)));
    reduce_scatter_tensor(part, whole, {.op = op, .group = g});
    ASSERT_NO_FATAL_FAILURE(
        expect_combined<T>(g, kind, part, count * static_cast<std::size_t>(me), "reduce_scatter_tensor"));
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
TEST(Operators, have_the_names_that_torch_has_given_up) {
    covers("S10-013");
    static_assert(reduce_op::SUM == ReduceOp::sum && reduce_op::PRODUCT == ReduceOp::product);
    EXPECT_EQ(reduce_op::MIN, ReduceOp::min);
    EXPECT_EQ(reduce_op::MAX, ReduceOp::max);
}
#pragma GCC diagnostic pop

TEST_P(Types, combine_with_every_operator_that_is_defined_for_them) {
    covers("S10-001", "S10-002", "S10-003", "S10-004", "S10-005", "S10-006", "S10-007", "S10-008", "S10-009", "S10-010",
           "S10-012", "A-43", "A-44", "A-45");
    for (const int n : watched ? std::vector<int>{3} : std::vector<int>{2, 3, 4}) {
        run_ranks(n, GetParam(), [](const ProcessGroup& g) {
            for_all_types([&](auto type) {
                using T = decltype(type);
                for (int k = 0; k < reduce_op_count; ++k) {
                    const auto kind = static_cast<ReduceOp::Kind>(k);
                    ASSERT_EQ(is_supported(kind, dtype_of<T>), defined_for<T>(kind))
                        << to_string(kind) << " of " << to_string(dtype_of<T>);
                    if (defined_for<T>(kind)) {
                        for (const std::size_t count : {1, 6, 129, 2047}) {
                            if (!watched || count == 129) check_operator<T>(g, kind, count);
                        }
                        continue;
                    }
                    Tensor data = values_of<T>(g.rank(), 3);
                    const ReduceOp op = op_of(kind, g.rank());
                    EXPECT_THROW(all_reduce(data, {.op = op, .group = g}), InvalidArgument);
                    EXPECT_THROW(reduce(data, {.dst = 0, .op = op, .group = g}), InvalidArgument);
                    EXPECT_THROW(scan(data, {.op = op, .group = g}), InvalidArgument);
                    EXPECT_THROW(exscan(data, {.op = op, .group = g}), InvalidArgument);
                    EXPECT_THROW(reduce_scatter_tensor(data, values_of<T>(0, 3 * static_cast<std::size_t>(g.size())),
                                                       {.op = op, .group = g}),
                                 InvalidArgument);
                }
            });
        });
    }
}

TEST_P(Types, carry_a_nan_of_any_rank_through_min_and_max) {
    covers("S10-004", "S10-005");
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        const auto check = [&](auto type) {
            using T = decltype(type);
            for (const ReduceOp& op : {ReduceOp::min, ReduceOp::max, ReduceOp::sum}) {
                for (const std::size_t count : {3, 40, 3000}) {  // element i is NaN on rank i % 4, if there is one
                    std::vector<T> data(count);
                    for (std::size_t i = 0; i < count; ++i) {
                        const bool nan = static_cast<int>(i % 4) == g.rank();
                        data[i] = T(nan ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(g.rank()));
                    }
                    all_reduce(data, {.op = op, .group = g});
                    for (std::size_t i = 0; i < count; ++i) {
                        const float clean = op == ReduceOp::min ? 0 : op == ReduceOp::max ? 2 : 3;
                        const auto got = static_cast<float>(data[i]);
                        ASSERT_TRUE(i % 4 < 3 ? std::isnan(got) : got == clean)
                            << to_string(op.kind()) << " of " << to_string(dtype_of<T>) << ", element " << i;
                    }
                }
            }
        };
        check(Float16());
        check(BFloat16());
        check(float());
        check(double());
        check(Float8E4M3FN());
        check(Float8E5M2());
    });
}

TEST_P(Types, of_low_precision_are_rounded_once_whatever_the_number_of_ranks) {
    // 1 + 3 × 2^-9 rounds to 1 at every step when rounded to bfloat16 after each addition, and up when rounded once.
    for (const int n : {2, 3, 4}) {
        run_ranks(n, GetParam(), [](const ProcessGroup& g) {
            for (const std::size_t count : {1, 100, 70'001}) {
                const float small = 1.0F / 512;
                std::vector<BFloat16> data(count, BFloat16(g.rank() == 0 ? 1.0F : small));
                all_reduce(data, {.group = g});
                const BFloat16 expected(1.0F + static_cast<float>(g.size() - 1) * small);
                for (const BFloat16 value : data) ASSERT_EQ(value, expected) << g.size() << " ranks";
            }
        });
    }
}

// Any bits at all (both values of bool), different on every rank and for every message.
Tensor noise(DType dtype, std::size_t count, int seed) {
    Tensor result = empty(dtype, Extents::of(static_cast<std::int64_t>(count)));
    auto* bytes = static_cast<unsigned char*>(result.raw_data());
    std::uint64_t state = static_cast<std::uint64_t>(seed) * 0x9e3779b97f4a7c15ULL + 1;
    for (std::size_t i = 0; i < result.byte_count(); ++i) {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        bytes[i] = static_cast<unsigned char>(dtype == boolean ? (state >> 56) & 1 : state >> 56);
    }
    return result;
}

void expect_same_bits(const Tensor& got, const Tensor& expected, const char* what) {
    ASSERT_EQ(got.byte_count(), expected.byte_count());
    ASSERT_EQ(std::memcmp(got.raw_data(), expected.raw_data(), got.byte_count()), 0)
        << what << " of " << got.view().to_string();
}

TEST_P(Types, arrive_bit_by_bit_as_they_were) {
    covers("S6-001", "S6-002", "S8-004", "S8-010", "S8-013", "S8-016", "S8-019", "S8-026", "S8-029", "S8-035");
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        const int n = g.size(), me = g.rank();
        const auto size = static_cast<std::size_t>(n);
        for (int d = 0; d < dtype_count; ++d) {
            const auto dtype = static_cast<DType>(d);
            for (const std::size_t count : {1, 7, 1021, 5000}) {
                const auto room = [&] { return empty(dtype, Extents::of(static_cast<std::int64_t>(count))); };
                const auto message = [&](int from, int to) { return noise(dtype, count, 1 + from * n + to); };
                for (int root = 0; root < n; ++root) {
                    Tensor data = message(me, 0);
                    broadcast(data, {.src = root, .group = g});
                    ASSERT_NO_FATAL_FAILURE(expect_same_bits(data, message(root, 0), "broadcast"));
                    std::vector<Tensor> got(size), parts(size);
                    TensorList into;
                    ConstTensorList from;
                    for (std::size_t r = 0; r < size && me == root; ++r) {
                        got[r] = room();
                        parts[r] = message(root, static_cast<int>(r));
                        into.emplace_back(got[r]);
                        from.emplace_back(parts[r]);
                    }
                    gather(message(me, root), into, {.group = g, .group_dst = root});
                    for (int r = 0; r < n && me == root; ++r) {
                        ASSERT_NO_FATAL_FAILURE(
                            expect_same_bits(got[static_cast<std::size_t>(r)], message(r, root), "gather"));
                    }
                    Tensor part = room();
                    scatter(part, from, {.src = root, .group = g});
                    ASSERT_NO_FATAL_FAILURE(expect_same_bits(part, message(root, me), "scatter"));
                }
                std::vector<Tensor> in(size), out(size), all(size);
                ConstTensorList ins;
                TensorList outs, alls;
                for (std::size_t r = 0; r < size; ++r) {
                    in[r] = message(me, static_cast<int>(r));
                    out[r] = room();
                    all[r] = room();
                    ins.emplace_back(in[r]);
                    outs.emplace_back(out[r]);
                    alls.emplace_back(all[r]);
                }
                all_gather(alls, in[0], {.group = g});
                all_to_all(outs, ins, {.group = g});
                const int next = (me + 1) % n, previous = (me + n - 1) % n;
                Tensor got = room();
                Work sent = isend(in[static_cast<std::size_t>(next)], next, {.tag = d, .group = g});
                ASSERT_EQ(recv(got, {.src = previous, .tag = d, .group = g}), previous);
                sent.wait();
                ASSERT_NO_FATAL_FAILURE(expect_same_bits(got, message(previous, me), "recv"));
                for (int r = 0; r < n; ++r) {
                    const auto at = static_cast<std::size_t>(r);
                    ASSERT_NO_FATAL_FAILURE(expect_same_bits(all[at], message(r, 0), "all_gather"));
                    ASSERT_NO_FATAL_FAILURE(expect_same_bits(out[at], message(r, me), "all_to_all"));
                }
            }
        }
    });
}

}  // namespace
}  // namespace tutti::test
