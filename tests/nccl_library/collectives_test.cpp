// Every operation of libtutti-nccl against a plain loop, of all types and operators, in place and not.
#include "ranks.hpp"

#include <tutti/dtype.hpp>

#include <array>
#include <cstring>
#include <numeric>

namespace tutti::test {
namespace {

struct Typed {
    ncclDataType_t type;
    const char* name;
    std::size_t bytes;
};
constexpr std::array<Typed, 12> types{{{ncclInt8, "int8", 1},
                                       {ncclUint8, "uint8", 1},
                                       {ncclInt32, "int32", 4},
                                       {ncclUint32, "uint32", 4},
                                       {ncclInt64, "int64", 8},
                                       {ncclUint64, "uint64", 8},
                                       {ncclFloat16, "float16", 2},
                                       {ncclFloat32, "float32", 4},
                                       {ncclFloat64, "float64", 8},
                                       {ncclBfloat16, "bfloat16", 2},
                                       {ncclFloat8e4m3, "float8e4m3", 1},
                                       {ncclFloat8e5m2, "float8e5m2", 1}}};

template <class T>
void put(std::byte* at, double value) {
    T element;
    if constexpr (std::is_arithmetic_v<T>)
        element = static_cast<T>(value);
    else
        element = T(static_cast<float>(value));
    std::memcpy(at, &element, sizeof element);
}
template <class T>
double get(const std::byte* at) {
    T element;
    std::memcpy(&element, at, sizeof element);
    if constexpr (std::is_arithmetic_v<T>)
        return static_cast<double>(element);
    else
        return static_cast<double>(static_cast<float>(element));
}

// Calls f with a value of the C++ type.
template <class F>
auto with_type(ncclDataType_t type, F f) {
    switch (type) {
        case ncclInt8: return f(std::int8_t{});
        case ncclUint8: return f(std::uint8_t{});
        case ncclInt32: return f(std::int32_t{});
        case ncclUint32: return f(std::uint32_t{});
        case ncclInt64: return f(std::int64_t{});
        case ncclUint64: return f(std::uint64_t{});
        case ncclFloat16: return f(Float16{});
        case ncclFloat64: return f(double{});
        case ncclBfloat16: return f(BFloat16{});
        case ncclFloat8e4m3: return f(Float8E4M3FN{});
        case ncclFloat8e5m2: return f(Float8E5M2{});
        default: return f(float{});
    }
}

// A buffer of elements of one type, with values that all types hold exactly.
class Buffer {
 public:
    Buffer(const Typed& type, std::size_t element_count) : type_(type), bytes_(type.bytes * element_count) {}
    void set(std::size_t i, double value) {
        with_type(type_.type, [&](auto one) { put<decltype(one)>(bytes_.data() + i * type_.bytes, value); });
    }
    double operator[](std::size_t i) const {
        return with_type(type_.type, [&](auto one) { return get<decltype(one)>(bytes_.data() + i * type_.bytes); });
    }
    void* data(std::size_t element = 0) { return bytes_.data() + element * type_.bytes; }

 private:
    Typed type_;
    std::vector<std::byte> bytes_;
};

double value_of(int rank, std::size_t i) {
    return static_cast<double>((static_cast<std::size_t>(rank) + i) % 3 + 1);
}

constexpr int ranks = 3;

double combined(ncclRedOp_t op, std::size_t i) {
    std::vector<double> values;
    for (int rank = 0; rank < ranks; ++rank) values.push_back(value_of(rank, i));
    switch (op) {
        case ncclProd: return std::accumulate(values.begin(), values.end(), 1.0, std::multiplies<>());
        case ncclMax: return *std::max_element(values.begin(), values.end());
        case ncclMin: return *std::min_element(values.begin(), values.end());
        case ncclAvg: return std::accumulate(values.begin(), values.end(), 0.0) / ranks;
        default: return std::accumulate(values.begin(), values.end(), 0.0);
    }
}

class Types : public testing::TestWithParam<Typed> {};
INSTANTIATE_TEST_SUITE_P(Nccl, Types, testing::ValuesIn(types), [](const auto& one) { return one.param.name; });

constexpr std::array<ncclRedOp_t, 5> operators{ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg};
constexpr std::size_t element_count = 37;

TEST_P(Types, are_reduced_as_a_loop_does_it) {
    on_ranks(ranks, [&](const NcclRank& me) {
        for (const ncclRedOp_t op : operators) {
            for (const bool in_place : {false, true}) {
                Buffer in(GetParam(), element_count), out(GetParam(), element_count);
                for (std::size_t i = 0; i < element_count; ++i) in.set(i, value_of(me.rank, i));
                Buffer& result = in_place ? in : out;
                good(ncclAllReduce(in.data(), result.data(), element_count, GetParam().type, op, me.comm, nullptr));
                for (std::size_t i = 0; i < element_count; ++i)
                    ASSERT_EQ(result[i], combined(op, i)) << op << " at " << i;
                if (in_place) continue;
                for (std::size_t i = 0; i < element_count; ++i)
                    ASSERT_EQ(in[i], value_of(me.rank, i)) << "the input at " << i;

                Buffer at_root(GetParam(), element_count);
                void* place = me.rank == 1 ? at_root.data() : nullptr;
                good(ncclReduce(in.data(), place, element_count, GetParam().type, op, 1, me.comm, nullptr));
                for (std::size_t i = 0; i < element_count; ++i) {
                    if (me.rank == 1) {
                        ASSERT_EQ(at_root[i], combined(op, i));
                    }
                    ASSERT_EQ(in[i], value_of(me.rank, i)) << "the input at " << i;
                }
            }
        }
    });
}

TEST_P(Types, are_reduced_and_scattered_as_a_loop_does_it) {
    on_ranks(ranks, [&](const NcclRank& me) {
        const std::size_t begin = element_count * static_cast<std::size_t>(me.rank);
        for (const ncclRedOp_t op : operators) {
            for (const bool in_place : {false, true}) {
                Buffer in(GetParam(), element_count * ranks), out(GetParam(), element_count);
                for (std::size_t i = 0; i < element_count * ranks; ++i) in.set(i, value_of(me.rank, i));
                void* place = in_place ? in.data(begin) : out.data();
                good(ncclReduceScatter(in.data(), place, element_count, GetParam().type, op, me.comm, nullptr));
                for (std::size_t i = 0; i < element_count; ++i) {
                    ASSERT_EQ(in_place ? in[begin + i] : out[i], combined(op, begin + i)) << op << " at " << i;
                }
            }
        }
    });
}

TEST_P(Types, are_moved_by_every_operation_that_moves) {
    on_ranks(ranks, [&](const NcclRank& me) {
        const auto type = GetParam().type;
        const auto rank = static_cast<std::size_t>(me.rank);
        Buffer mine(GetParam(), element_count), all(GetParam(), element_count * ranks),
            received(GetParam(), element_count);
        for (std::size_t i = 0; i < element_count; ++i) mine.set(i, value_of(me.rank, i));

        good(ncclAllGather(mine.data(), all.data(), element_count, type, me.comm, nullptr));
        for (std::size_t i = 0; i < element_count * ranks; ++i)
            ASSERT_EQ(all[i], value_of(static_cast<int>(i / element_count), i % element_count));

        Buffer in_place(GetParam(), element_count * ranks);
        for (std::size_t i = 0; i < element_count; ++i) in_place.set(rank * element_count + i, value_of(me.rank, i));
        good(
            ncclAllGather(in_place.data(rank * element_count), in_place.data(), element_count, type, me.comm, nullptr));
        for (std::size_t i = 0; i < element_count * ranks; ++i) ASSERT_EQ(in_place[i], all[i]);

        for (int root = 0; root < ranks; ++root) {
            good(ncclBroadcast(me.rank == root ? mine.data() : nullptr, received.data(), element_count, type, root,
                               me.comm, nullptr));
            for (std::size_t i = 0; i < element_count; ++i) ASSERT_EQ(received[i], value_of(root, i));
        }
        good(ncclBcast(received.data(), element_count, type, 1, me.comm, nullptr));
        for (std::size_t i = 0; i < element_count; ++i)
            ASSERT_EQ(received[i], value_of(2, i)) << "rank 1 had those of rank 2";

        Buffer exchanged(GetParam(), element_count * ranks);
        good(ncclAlltoAll(all.data(), exchanged.data(), element_count, type, me.comm, nullptr));
        for (std::size_t i = 0; i < element_count * ranks; ++i)
            ASSERT_EQ(exchanged[i], value_of(me.rank, i % element_count));

        Buffer gathered(GetParam(), element_count * ranks);
        good(ncclGather(mine.data(), me.rank == 2 ? gathered.data() : nullptr, element_count, type, 2, me.comm,
                        nullptr));
        for (std::size_t i = 0; me.rank == 2 && i < element_count * ranks; ++i) ASSERT_EQ(gathered[i], all[i]);
        good(ncclScatter(me.rank == 2 ? all.data() : nullptr, received.data(), element_count, type, 2, me.comm,
                         nullptr));
        for (std::size_t i = 0; i < element_count; ++i) ASSERT_EQ(received[i], value_of(me.rank, i));
        if (me.rank == 2) {
            good(ncclScatter(all.data(), all.data(2 * element_count), element_count, type, 2, me.comm, nullptr));
            for (std::size_t i = 0; i < element_count; ++i) ASSERT_EQ(all[2 * element_count + i], value_of(2, i));
        } else {
            good(ncclScatter(nullptr, received.data(), element_count, type, 2, me.comm, nullptr));
        }

        const int next = (me.rank + 1) % ranks, before = (me.rank + ranks - 1) % ranks;
        good(ncclGroupStart());
        good(ncclSend(mine.data(), element_count, type, next, me.comm, nullptr));
        good(ncclRecv(received.data(), element_count, type, before, me.comm, nullptr));
        good(ncclGroupEnd());
        for (std::size_t i = 0; i < element_count; ++i) ASSERT_EQ(received[i], value_of(before, i));
    });
}

TEST_P(Types, are_multiplied_before_the_sum_by_an_operator_that_was_made) {
    on_ranks(ranks, [&](const NcclRank& me) {
        Buffer factor(GetParam(), 1), in(GetParam(), element_count), out(GetParam(), element_count);
        for (std::size_t i = 0; i < element_count; ++i) in.set(i, value_of(me.rank, i));
        for (const auto residence : {ncclScalarHostImmediate, ncclScalarDevice}) {
            ncclRedOp_t op = ncclSum;
            factor.set(0, 2);
            good(ncclRedOpCreatePreMulSum(&op, factor.data(), GetParam().type, residence, me.comm));
            EXPECT_GE(op, ncclNumOps);
            if (residence == ncclScalarHostImmediate) factor.set(0, 0);  // it was read before
            good(ncclAllReduce(in.data(), out.data(), element_count, GetParam().type, op, me.comm, nullptr));
            for (std::size_t i = 0; i < element_count; ++i) ASSERT_EQ(out[i], 2 * combined(ncclSum, i)) << "at " << i;
            good(ncclReduce(in.data(), out.data(), element_count, GetParam().type, op, 0, me.comm, nullptr));
            for (std::size_t i = 0; me.rank == 0 && i < element_count; ++i) ASSERT_EQ(out[i], 2 * combined(ncclSum, i));
            for (std::size_t i = 0; i < element_count; ++i)
                ASSERT_EQ(in[i], value_of(me.rank, i)) << "the input at " << i;
            Buffer blocks(GetParam(), 3 * ranks);
            for (std::size_t i = 0; i < 3 * ranks; ++i) blocks.set(i, value_of(me.rank, i));
            good(ncclReduceScatter(blocks.data(), out.data(), 3, GetParam().type, op, me.comm, nullptr));
            for (std::size_t i = 0; i < 3; ++i)
                ASSERT_EQ(out[i], 2 * combined(ncclSum, 3 * static_cast<std::size_t>(me.rank) + i));
            good(ncclRedOpDestroy(op, me.comm));
        }
    });
}

TEST(NcclValues, of_integers_wrap_around_in_a_product_with_a_factor) {
    on_ranks(2, [&](const NcclRank& me) {
        std::int8_t factor = 100;
        ncclRedOp_t op = ncclSum;
        good(ncclRedOpCreatePreMulSum(&op, &factor, ncclInt8, ncclScalarHostImmediate, me.comm));
        std::int8_t value = static_cast<std::int8_t>(me.rank == 0 ? 3 : -5);  // 300 and -500, modulo 256: 44 and 12
        good(ncclAllReduce(&value, &value, 1, ncclInt8, op, me.comm, nullptr));
        EXPECT_EQ(value, 56);
        std::uint64_t wide_factor = 0x8000000000000001, wide = 3;
        good(ncclRedOpCreatePreMulSum(&op, &wide_factor, ncclUint64, ncclScalarHostImmediate, me.comm));
        good(ncclAllReduce(&wide, &wide, 1, ncclUint64, op, me.comm, nullptr));
        EXPECT_EQ(wide, 2 * (0x8000000000000001 * 3));
    });
}

TEST(NcclValues, of_integers_are_averaged_toward_zero) {
    on_ranks(2, [&](const NcclRank& me) {
        std::int32_t values[2] = {me.rank == 0 ? -3 : -4, me.rank == 0 ? 3 : 4};
        good(ncclAllReduce(values, values, 2, ncclInt32, ncclAvg, me.comm, nullptr));
        EXPECT_EQ(values[0], -3);
        EXPECT_EQ(values[1], 3);
    });
}

TEST(NcclCounts, of_zero_and_of_megabytes_are_carried) {
    on_ranks(2, [&](const NcclRank& me) {
        good(ncclAllReduce(nullptr, nullptr, 0, ncclFloat32, ncclSum, me.comm, nullptr));
        good(ncclAllGather(nullptr, nullptr, 0, ncclInt8, me.comm, nullptr));
        good(ncclGather(nullptr, nullptr, 0, ncclInt8, 0, me.comm, nullptr));
        std::vector<float> values(1 << 20, static_cast<float>(me.rank + 1));
        good(ncclAllReduce(values.data(), values.data(), values.size(), ncclFloat32, ncclSum, me.comm, nullptr));
        EXPECT_EQ(values.front(), 3);
        EXPECT_EQ(values.back(), 3);
    });
}

}  // namespace
}  // namespace tutti::test
