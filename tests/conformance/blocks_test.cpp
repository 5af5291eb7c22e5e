// all_to_all_v: random counts and places, gaps, any order, empty rows and columns, against a plain oracle.
#include "conformance/world.hpp"
#include "support/covers.hpp"

#include <algorithm>
#include <numeric>
#include <random>

namespace tutti::test {
namespace {

using Int64s = std::vector<std::int64_t>;

class Blocks : public ::testing::TestWithParam<How> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Blocks, ::testing::ValuesIn(every_way()),
                         [](const auto& instance) { return to_string(instance.param); });

/// Counts of all pairs, and where each rank's blocks lie. Every rank makes the same one from the same seed.
struct Exchange {
    std::vector<Int64s> counts;                         // [from][to]
    std::vector<Int64s> send_offsets, receive_offsets;  // [rank][peer]
    std::vector<std::int64_t> input_elements, output_elements;

    AllToAllVOptions options(const ProcessGroup& g) const {
        const auto me = static_cast<std::size_t>(g.rank());
        return {.send_counts = counts[me],
                .send_offsets = send_offsets[me],
                .receive_counts = received_by(me),
                .receive_offsets = receive_offsets[me],
                .group = g};
    }
    Int64s received_by(std::size_t rank) const {
        Int64s received;
        for (const Int64s& row : counts) received.push_back(row[rank]);
        return received;
    }
};

// Places for blocks in a random order, with gaps now and then; returns how many elements they need.
std::int64_t place(std::mt19937& random, const Int64s& counts, Int64s& offsets) {
    std::vector<std::size_t> order(counts.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::shuffle(order, random);
    const bool gaps = random() % 2 == 0;
    offsets.assign(counts.size(), 0);
    std::int64_t end = 0;
    for (const std::size_t i : order) {
        if (gaps) end += static_cast<std::int64_t>(random() % 7);
        offsets[i] = end;
        end += counts[i];
    }
    return end + (gaps ? static_cast<std::int64_t>(random() % 5) : 0);
}

Exchange random_exchange(std::mt19937& random, std::size_t n, std::int64_t most) {
    Exchange e;
    const auto kind = random() % 4;
    e.counts.assign(n, Int64s(n));
    for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t j = 0; j < n; ++j) {
            std::int64_t& count = e.counts[i][j];
            count = static_cast<std::int64_t>(random() % static_cast<unsigned>(most + 1));
            if (kind == 1 && random() % 3 != 0) count = 0;       // few pairs
            if (kind == 2 && (i == 0 || j + 1 == n)) count = 0;  // a rank sends nothing, and one gets nothing
            if (kind == 3) count = j == 0 ? count : count % 3;   // one rank gets most
        }
    }
    e.send_offsets.resize(n);
    e.receive_offsets.resize(n);
    for (std::size_t r = 0; r < n; ++r) {
        e.input_elements.push_back(place(random, e.counts[r], e.send_offsets[r]));
        e.output_elements.push_back(place(random, e.received_by(r), e.receive_offsets[r]));
    }
    return e;
}

template <class T>
T value_of(std::size_t rank, std::size_t element) {
    return static_cast<T>((rank * 31 + element) % 113);
}

template <class T>
std::vector<T> input_of(const Exchange& e, std::size_t rank) {
    std::vector<T> input(static_cast<std::size_t>(e.input_elements[rank]));
    for (std::size_t k = 0; k < input.size(); ++k) input[k] = value_of<T>(rank, k);
    return input;
}

// What `output` held where no block comes is still there.
template <class T>
std::vector<T> expected(const Exchange& e, std::size_t rank, T untouched) {
    std::vector<T> output(static_cast<std::size_t>(e.output_elements[rank]), untouched);
    for (std::size_t from = 0; from < e.counts.size(); ++from) {
        for (std::int64_t k = 0; k < e.counts[from][rank]; ++k) {
            output[static_cast<std::size_t>(e.receive_offsets[rank][from] + k)] =
                value_of<T>(from, static_cast<std::size_t>(e.send_offsets[from][rank] + k));
        }
    }
    return output;
}

TEST_P(Blocks, go_from_and_to_any_places) {
    covers("S21-001", "S21-018", "S21-020");
    for (const int n : {1, 2, 3, 5, 8}) {
        if (n == 8 && watched) continue;
        run_ranks(n, GetParam(), [](const ProcessGroup& g) {
            const auto un = static_cast<std::size_t>(g.size()), me = static_cast<std::size_t>(g.rank());
            std::mt19937 random(17);
            const int rounds = watched ? 20 : 60;
            for (int round = 0; round < rounds; ++round) {
                // Short calls, calls that fit for some ranks only, and long ones.
                const std::int64_t most = round % 10 == 9 ? 30'000 : round % 4 == 3 ? 3000 : 12;
                const Exchange e = random_exchange(random, un, most);
                const std::vector<int> input = input_of<int>(e, me);
                std::vector<int> output(static_cast<std::size_t>(e.output_elements[me]), -7);
                if (round % 3 == 0) {
                    async::all_to_all_v(output, input, e.options(g)).wait();
                } else {
                    all_to_all_v(output, input, e.options(g));
                }
                ASSERT_EQ(output, expected<int>(e, me, -7)) << "round " << round << " of " << un << " ranks";
            }
        });
    }
}

constexpr DType every_dtype[] = {
    DType::boolean, DType::uint8,     DType::uint16,     DType::uint32,        DType::uint64,     DType::int8,
    DType::int16,   DType::int32,     DType::int64,      DType::float16,       DType::bfloat16,   DType::float32,
    DType::float64, DType::complex64, DType::complex128, DType::float8_e4m3fn, DType::float8_e5m2};

// Elements are bytes here, several in a row.
std::vector<std::uint8_t> bytes_of_elements(const std::vector<int>& values, std::size_t element) {
    std::vector<std::uint8_t> bytes;
    for (const int value : values) {
        for (std::size_t i = 0; i < element; ++i)
            bytes.push_back(
                static_cast<std::uint8_t>((static_cast<std::size_t>(value) + i) % 2));  // a bool has no more
    }
    return bytes;
}

TEST_P(Blocks, are_of_any_type) {
    covers("A-23");
    run_ranks(4, GetParam(), [](const ProcessGroup& g) {
        const auto un = static_cast<std::size_t>(g.size()), me = static_cast<std::size_t>(g.rank());
        std::mt19937 random(3);
        for (const DType dtype : every_dtype) {
            for (const std::int64_t most : {5, 3000}) {
                const Exchange e = random_exchange(random, un, most);
                std::vector<std::uint8_t> input = bytes_of_elements(input_of<int>(e, me), size_of(dtype));
                const std::vector<std::uint8_t> want = bytes_of_elements(expected<int>(e, me, 0), size_of(dtype));
                std::vector<std::uint8_t> output = bytes_of_elements(
                    std::vector<int>(static_cast<std::size_t>(e.output_elements[me]), 0), size_of(dtype));
                all_to_all_v(TensorView(output.data(), {e.output_elements[me]}, dtype),
                             ConstTensorView(input.data(), {e.input_elements[me]}, dtype), e.options(g));
                ASSERT_EQ(output, want) << to_string(dtype);
            }
        }
    });
}

TEST_P(Blocks, are_equal_and_adjoin_where_nothing_is_said) {
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        std::vector<int> in(6), out(6, -1), want;
        std::iota(in.begin(), in.end(), 10 * g.rank());
        for (int from = 0; from < 3; ++from)
            want.insert(want.end(), {10 * from + 2 * g.rank(), 10 * from + 2 * g.rank() + 1});
        all_to_all_v(out, in, {.group = g});
        EXPECT_EQ(out, want);
        std::ranges::fill(out, -1);
        g.all_to_all_v(out, in);
        EXPECT_EQ(out, want);
    });
}

TEST_P(Blocks, are_planned_once_and_exchanged_often) {
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        const auto me = static_cast<std::size_t>(g.rank());
        std::mt19937 random(8);
        for (const std::int64_t most : {6, 20'000}) {
            const Exchange e = random_exchange(random, 3, most);
            const std::vector<int> input = input_of<int>(e, me);
            std::vector<int> output(static_cast<std::size_t>(e.output_elements[me]));
            Plan plan = plan::all_to_all_v(output, input, e.options(g));
            for (int run = 0; run < 5; ++run) {
                std::ranges::fill(output, run);
                if (run % 2 == 0) {
                    plan.run();
                } else {
                    plan.start().wait();
                }
                ASSERT_EQ(output, expected<int>(e, me, run)) << "run " << run;
            }
        }
    });
}

TEST_P(Blocks, of_strided_tensors_keep_the_rest_of_the_output) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        // Columns of a matrix: every second element of memory.
        std::vector<int> in{0, -1, 1, -1, 2, -1, 3, -1}, out(8, -5);
        for (int& value : in) value += 100 * g.rank();
        const ConstTensorView from(in.data(), {4}, int32, {2});
        const TensorView to(out.data(), {4}, int32, {2});
        all_to_all_v(to, from,
                     {.send_counts = {1, 2},
                      .send_offsets = {3, 0},
                      .receive_counts = g.rank() == 0 ? Int64s{1, 1} : Int64s{2, 2},
                      .receive_offsets = g.rank() == 0 ? Int64s{3, 0} : Int64s{2, 0},
                      .group = g});
        if (g.rank() == 0) {
            EXPECT_EQ(out, (std::vector<int>{103, -5, -5, -5, -5, -5, 3, -5}));
        } else {
            EXPECT_EQ(out, (std::vector<int>{100, -5, 101, -5, 0, -5, 1, -5}));
        }
    });
}

// The sizes change in every way from call to call: ranks that pass short blocks on for each other find that out.
TEST_P(Blocks, of_ever_other_lengths_arrive) {
    run_ranks(6, GetParam(), [](const ProcessGroup& g) {
        const auto un = static_cast<std::size_t>(g.size()), me = static_cast<std::size_t>(g.rank());
        std::mt19937 random(29);
        const int rounds = watched ? 40 : 150;
        for (int round = 0; round < rounds; ++round) {
            // In bytes; all short, then now and then a long one, then mostly long, then all of one length.
            const std::int64_t most = round < 40    ? 12
                                      : round < 60  ? (round % 7 == 0 ? 9000 : 200)
                                      : round < 110 ? (round % 5 == 0 ? 8 : 5000)
                                                    : 1 + round % 3;
            const Exchange e = random_exchange(random, un, most);
            const std::vector<std::uint8_t> input = input_of<std::uint8_t>(e, me);
            std::vector<std::uint8_t> output(static_cast<std::size_t>(e.output_elements[me]), 200);
            Work other;
            std::vector<std::int64_t> counts(un, round + g.rank()), theirs(un);
            if (round % 3 == 0) other = async::all_to_all_single(theirs, counts, {.group = g});
            all_to_all_v(output, input, e.options(g));
            if (other) {
                other.wait();
                for (std::size_t from = 0; from < un; ++from)
                    ASSERT_EQ(theirs[from], round + static_cast<std::int64_t>(from));
            }
            ASSERT_EQ(output, expected<std::uint8_t>(e, me, 200)) << "round " << round;
        }
    });
}

TEST_P(Blocks, of_calls_that_are_launched_together_leave_each_other_alone) {
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        const auto me = static_cast<std::size_t>(g.rank());
        std::mt19937 random(5);
        for (const std::int64_t most : {4, 9000}) {
            const Exchange one = random_exchange(random, 3, most), two = random_exchange(random, 3, most);
            // The second one's output lies behind the first one's; in a third call, in the gaps of one tensor.
            const std::vector<int> first = input_of<int>(one, me), second = input_of<int>(two, me);
            std::vector<int> out_one(static_cast<std::size_t>(one.output_elements[me]), -1);
            std::vector<int> out_two(static_cast<std::size_t>(two.output_elements[me]), -2);
            std::vector<int> shared(24, -3);
            const std::vector<int> mine{g.rank(), 10 + g.rank(), 20 + g.rank()};
            {
                const Coalescing together({.group = g});
                all_to_all_v(out_one, first, one.options(g));
                all_to_all_v(out_two, second, two.options(g));
                all_to_all_v(
                    shared, mine,
                    {.send_counts = {1, 1, 1}, .receive_counts = {1, 1, 1}, .receive_offsets = {20, 0, 8}, .group = g});
                all_to_all_v(
                    shared, mine,
                    {.send_counts = {1, 1, 1}, .receive_counts = {1, 1, 1}, .receive_offsets = {4, 1, 21}, .group = g});
            }
            EXPECT_EQ(out_one, expected<int>(one, me, -1));
            EXPECT_EQ(out_two, expected<int>(two, me, -2));
            std::vector<int> want(24, -3);
            const std::size_t places[2][3] = {{20, 0, 8}, {4, 1, 21}};
            for (const auto& at : places) {
                for (std::size_t from = 0; from < 3; ++from) want[at[from]] = 10 * g.rank() + static_cast<int>(from);
            }
            EXPECT_EQ(shared, want);
        }
    });
}

TEST_P(Blocks, of_calls_under_way_at_once_share_a_strided_output) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        std::vector<int> out(16, -5), in{1, 2};
        for (int& value : in) value += 10 * g.rank();
        const TensorView to(out.data(), {8}, int32, {2});
        Work one = async::all_to_all_v(
            to, in, {.send_counts = {1, 1}, .receive_counts = {1, 1}, .receive_offsets = {0, 5}, .group = g});
        Work two = async::all_to_all_v(
            to, in, {.send_counts = {1, 1}, .receive_counts = {1, 1}, .receive_offsets = {7, 2}, .group = g});
        one.wait();
        two.wait();
        std::vector<int> want(16, -5);
        want[0] = want[14] = 1 + g.rank();
        want[10] = want[4] = 11 + g.rank();
        EXPECT_EQ(out, want);
    });
}

TEST_P(Blocks, that_cannot_be_are_refused_before_anything_moves) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        std::vector<int> x(4), y(4);
        const auto refused = [&](AllToAllVOptions o, std::vector<std::string> words) {
            o.group = g;
            const std::string text = message_of<InvalidArgument>([&] { all_to_all_v(y, x, o); });
            for (const std::string& word : words) EXPECT_TRUE(has(text, word)) << text;
        };
        refused({.send_counts = {1, 1, 1}}, {"send_counts", "3 entries", "expected 2"});
        refused({.receive_offsets = {0}}, {"receive_offsets", "1 entries", "expected 2"});
        refused({.send_counts = {1, -1}}, {"send_counts[1] is -1"});
        refused({.send_offsets = {-3, 0}}, {"send_offsets[0] is -3"});
        refused({.send_counts = {2, 3}}, {"for rank 1", "3 elements at send_offsets 2", "input", "4 elements"});
        refused({.send_counts = {1, INT64_MAX}, .send_offsets = {0, INT64_MAX}}, {"for rank 1", "leaves input"});
        refused({.receive_counts = {2, 2}, .receive_offsets = {0, 3}}, {"from rank 1", "leaves output"});
        refused({.receive_counts = {2, 2}, .receive_offsets = {1, 0}}, {"ranks 1 and 0 overlap", "[0, +2]", "[1, +2]"});
        refused(g.rank() == 0 ? AllToAllVOptions{.send_counts = {1, 1}, .receive_counts = {2, 1}}
                              : AllToAllVOptions{.send_counts = {1, 1}, .receive_counts = {1, 2}},
                {"sends 1 elements to itself and expects 2"});
        std::vector<int> three(3);
        EXPECT_TRUE(has(message_of<InvalidArgument>([&] { all_to_all_v(y, three, {.group = g}); }), "multiple of 2"));
        std::vector<float> other(4);
        EXPECT_TRUE(has(message_of<InvalidArgument>([&] { all_to_all_v(y, other, {.group = g}); }), "int32"));
        all_to_all_v(y, x, {.group = g});  // nothing has moved
        // An empty block is nowhere, so it cannot leave a tensor.
        all_to_all_v(y, x,
                     {.send_counts = {2, 0},
                      .send_offsets = {0, 99},
                      .receive_counts = g.rank() == 0 ? Int64s{2, 2} : Int64s{0, 0},
                      .receive_offsets = g.rank() == 0 ? Int64s{0, 2} : Int64s{7, 8},
                      .group = g});
    });
}

}  // namespace
}  // namespace tutti::test
