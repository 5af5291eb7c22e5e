// The bits of all quantised collectives, as they have been since 0.1: each digest is over the results of many calls.
// What runs them may change, and how their messages look; results may not, not even in their last bit.
#include "conformance/world.hpp"
#include "reduce/reduce.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace tutti::test::quantised_bits {
namespace {

using Bytes = std::vector<std::byte>;

class QuantizedBitsOfAll : public ::testing::TestWithParam<How> {};
INSTANTIATE_TEST_SUITE_P(Ranks, QuantizedBitsOfAll, ::testing::Values(How::threads, How::tcp_processes),
                         [](const auto& instance) { return to_string(instance.param); });

// Numbers of several sizes, with zeros, tiny ones, and now and then a block that is not finite.
Bytes values_of(int rank, std::size_t elements, DType dtype, unsigned seed) {
    std::mt19937 random(static_cast<unsigned>(rank) * 1000 + seed + 1);
    std::vector<float> values(elements);
    for (std::size_t i = 0; i < elements; ++i) {
        const float unit = static_cast<float>(static_cast<int>(random() % 20001) - 10000) / 10000;
        const std::size_t stretch = i / 300 % 7;
        const float most = 1 + static_cast<float>(i / 1000) / 64;  // of each tile another
        values[i] =
            stretch == 6 ? 0 : most * std::ldexp(unit, static_cast<int>(stretch) * 2 - (stretch == 5 ? 140 : 3));
        if (seed % 8 == 1 && i % 9973 == 900) values[i] = std::numeric_limits<float>::infinity();
    }
    Bytes bytes(elements * size_of(dtype));
    if (dtype == int8) {
        for (std::size_t i = 0; i < elements; ++i)
            bytes[i] = static_cast<std::byte>(static_cast<std::int8_t>(static_cast<int>(random() % 255) - 127));
    } else {
        kernels::round_to(dtype, bytes.data(), float32, values.data(), elements);
    }
    return bytes;
}

template <class Bits, class View>
View view_of(Bits& bytes, DType dtype, std::int64_t row) {
    const auto elements = static_cast<std::int64_t>(bytes.size() / size_of(dtype));
    return View(bytes.data(), {elements / row, row}, dtype);
}
TensorView target(Bytes& bytes, DType dtype, std::int64_t row = 1) {
    return view_of<Bytes, TensorView>(bytes, dtype, row);
}
ConstTensorView source(const Bytes& bytes, DType dtype, std::int64_t row = 1) {
    Bytes& all = const_cast<Bytes&>(bytes);
    return view_of<Bytes, TensorView>(all, dtype, row);
}

// FNV-1a of the results; where a number is NaN, of that alone: its bits are the CPU's.
struct Digest {
    std::uint64_t value = 0xcbf29ce484222325;
    void add(std::uint64_t word) { value = (value ^ word) * 0x100000001b3; }
    void add(const Bytes& bytes, DType dtype) {
        std::vector<float> values(bytes.size() / size_of(dtype));
        kernels::premultiply(dtype, values.data(), bytes.data(), 1.0, values.size());
        for (const float v : values) add(std::isnan(v) ? 1 : std::bit_cast<std::uint32_t>(v == 0 ? 0.0F : v));
    }
};

struct Sizes {
    std::size_t rows;
    std::int64_t row;
};

std::vector<QuantizedOptions> all_options(const ProcessGroup& g) {
    std::vector<QuantizedOptions> all;
    for (const auto type :
         {QuantizedType::int8, QuantizedType::int4, QuantizedType::float8_e4m3fn, QuantizedType::float8_e5m2}) {
        for (const std::int64_t block : {std::int64_t{32}, std::int64_t{96}, std::int64_t{1024},
                                         QuantizedOptions::per_row, QuantizedOptions::per_tensor}) {
            for (const int scales : {0, 1, 2}) {
                QuantizedOptions o{.type = type, .block = block, .group = g};
                o.scales = scales == 1 ? QuantizedScales::shared : QuantizedScales::per_rank;
                if (scales == 2) o.scale = 0.03F;
                o.quantize_results = (all.size() % 3) != 1;
                o.rounding = all.size() % 4 == 3 ? QuantizedRounding::stochastic : QuantizedRounding::nearest;
                o.seed = all.size();
                o.op = all.size() % 2 == 0 ? ReduceOp::sum : ReduceOp::avg;
                all.push_back(o);
            }
        }
    }
    return all;
}

// Rows that are shorter than a block, that blocks and tiles cut, and that are longer than a tile.
std::vector<Sizes> all_sizes() {
    return {{0, 1}, {1, 1}, {7, 35}, {3, 1001}, {3, 50'001}, {2, 140'003}};
}
// Of the longest, some calls with short blocks are enough.
bool is_left_out(const Sizes& size, const QuantizedOptions& o, std::size_t number) {
    return size.row > 2000 && o.block > 0 && number % 5 != 0;
}
DType type_of(std::size_t number) {
    static constexpr DType types[] = {float32, float16, bfloat16};
    return types[number % 3];
}

std::uint64_t all_reduces(const ProcessGroup& g) {
    Digest digest;
    std::size_t number = 0;
    for (const Sizes& size : all_sizes()) {
        for (const QuantizedOptions& o : all_options(g)) {
            const bool codes = o.scale && o.type == QuantizedType::int8 && number % 2 == 0;
            const DType from = codes ? int8 : type_of(number), to = type_of(number / 3 + number);
            if (is_left_out(size, o, ++number)) continue;
            const std::size_t elements = size.rows * static_cast<std::size_t>(size.row);
            Bytes in = values_of(g.rank(), elements, from, static_cast<unsigned>(number));
            Bytes out(elements * size_of(to));
            quantized_all_reduce(target(out, to, size.row), source(in, from, size.row), o);
            digest.add(out, to);
            if (from == int8) continue;
            quantized_all_reduce(target(in, from, size.row), o);  // in place
            digest.add(in, from);
        }
    }
    return digest.value;
}

std::uint64_t halves(const ProcessGroup& g) {
    Digest digest;
    std::size_t number = 0;
    const auto me = static_cast<std::size_t>(g.rank());
    for (const Sizes& size : all_sizes()) {
        for (QuantizedOptions o : all_options(g)) {
            const DType from = type_of(number), to = type_of(number / 3 + number);
            if (is_left_out(size, o, ++number)) continue;
            o.counts.clear();
            for (int r = 0; r < g.size(); ++r)  // whole rows, and none of one rank
                o.counts.push_back(
                    r == 1 ? 0 : static_cast<std::int64_t>(size.rows + static_cast<std::size_t>(r)) * size.row);
            std::size_t all = 0;
            for (const std::int64_t count : o.counts) all += static_cast<std::size_t>(count);
            const auto mine = static_cast<std::size_t>(o.counts[me]);
            const Bytes whole = values_of(g.rank(), all, from, static_cast<unsigned>(number));
            Bytes piece(mine * size_of(to)), gathered(all * size_of(to));
            quantized_reduce_scatter(target(piece, to, size.row), source(whole, from, size.row), o);
            Bytes pieces(gathered.size());
            std::vector<std::int64_t> of_rank = o.counts;
            for (std::int64_t& count : of_rank) count *= static_cast<std::int64_t>(size_of(to));
            digest.add(number);
            // Each rank has another piece: the digest is of all of them.
            std::vector<TensorView> parts;
            std::size_t at = 0;
            for (const std::int64_t count : of_rank) {
                parts.emplace_back(pieces.data() + at, Extents::of(count), uint8);
                at += static_cast<std::size_t>(count);
            }
            all_gather(parts, TensorView(piece.data(), Extents::of(of_rank[me]), uint8), {.group = g});
            digest.add(pieces, to);
            if (o.scales == QuantizedScales::shared) continue;
            const Bytes own = values_of(g.rank(), mine, from, static_cast<unsigned>(number) + 7);
            quantized_all_gather(target(gathered, to, size.row), source(own, from, size.row), o);
            digest.add(gathered, to);
        }
    }
    return digest.value;
}

std::uint64_t with_feedback(const ProcessGroup& g) {
    Digest digest;
    std::size_t number = 0;
    for (const Sizes& size : all_sizes()) {
        for (const QuantizedOptions& o : all_options(g)) {
            const DType dtype = type_of(number);
            if (is_left_out(size, o, ++number)) continue;
            const std::size_t elements = size.rows * static_cast<std::size_t>(size.row);
            QuantizedReducer reducer(o);
            for (unsigned call = 0; call < 3; ++call) {
                Bytes x = values_of(g.rank(), elements, dtype, static_cast<unsigned>(number) * 3 + call);
                reducer.all_reduce(target(x, dtype, size.row));
                digest.add(x, dtype);
            }
            // What each rank still owes comes out in the results of the calls after; here that of rank 0 counts.
            Bytes owed(elements * sizeof(float));
            const Tensor residual = reducer.residual();
            if (elements > 0) std::memcpy(owed.data(), residual.raw_data(), owed.size());
            broadcast(TensorView(owed.data(), Extents::of(static_cast<std::int64_t>(owed.size())), uint8),
                      {.group = g, .group_src = 0});
            digest.add(owed, float32);
        }
    }
    return digest.value;
}

// Tiles are longer between hosts, and a long block has a scale of the results for each.
struct Expected {
    int ranks;
    bool one_host;
    std::uint64_t all_reduces, halves, with_feedback;
};
constexpr Expected digests[] = {
    {1, true, 14789043947810333129ULL, 7462535064523708056ULL, 11241087025016890355ULL},
    {2, true, 6121416278523506501ULL, 18375718423838612489ULL, 13618708002276561417ULL},
    {3, true, 4217876760805930587ULL, 15587370028143547520ULL, 11309326903861106260ULL},
    {2, false, 1432193797924610590ULL, 18042437938963501353ULL, 11260504439036940656ULL},
    {3, false, 17436584453950936966ULL, 4684106155509623084ULL, 4778097501487730224ULL},
};

TEST_P(QuantizedBitsOfAll, are_those_of_all_earlier_versions) {
    if (watched || !backend_under_test().empty())
        GTEST_SKIP() << "by design: of native groups, too many calls for sanitizers";
    const bool one_host = GetParam() != How::tcp_processes;
    for (const Expected& e : digests) {
        if (e.one_host != one_host) continue;
        run_ranks(e.ranks, GetParam(), [e](const ProcessGroup& g) {
            EXPECT_EQ(all_reduces(g), e.all_reduces) << e.ranks << " ranks";
            EXPECT_EQ(halves(g), e.halves) << e.ranks << " ranks";
            EXPECT_EQ(with_feedback(g), e.with_feedback) << e.ranks << " ranks";
        });
    }
}

TEST(QuantizedBits, are_the_same_at_any_address) {
    if (!backend_under_test().empty()) GTEST_SKIP() << "by design: of native groups";
    run_ranks(2, How::threads, [](const ProcessGroup& g) {
        constexpr std::size_t elements = 1500;
        const Bytes in = values_of(g.rank(), elements, float32, 4);
        for (const QuantizedOptions& o : all_options(g)) {
            Bytes straight(elements * sizeof(float)), odd(straight.size() + 1), odd_in(in.size() + 1);
            std::memcpy(odd_in.data() + 1, in.data(), in.size());
            const Extents shape = Extents::of(std::int64_t{elements});
            quantized_all_reduce(TensorView(straight.data(), shape, float32),
                                 TensorView(const_cast<std::byte*>(in.data()), shape, float32), o);
            quantized_all_reduce(TensorView(odd.data() + 1, shape, float32),
                                 TensorView(odd_in.data() + 1, shape, float32), o);
            EXPECT_EQ(std::memcmp(straight.data(), odd.data() + 1, straight.size()), 0);
        }
    });
}

}  // namespace
}  // namespace tutti::test::quantised_bits
