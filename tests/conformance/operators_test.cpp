// Operators of the caller on real ranks: against a loop over the ranks, in every reduction and form of a call; what
// they throw, and what ranks and arguments must agree on.
#include "conformance/world.hpp"

#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <stdexcept>

namespace tutti::test {
namespace {

class Operators : public ::testing::TestWithParam<How> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Operators, ::testing::ValuesIn(every_way()),
                         [](const auto& instance) { return to_string(instance.param); });

/// x → factor x + shift, modulo 2³²; `maps` tried those that have become one. Its size divides no buffer's.
struct Affine {
    std::uint32_t factor = 1, shift = 0, maps = 0;
    friend bool operator==(const Affine&, const Affine&) = default;
};
// First a, then b: the order tried.
Affine then(Affine a, Affine b) {
    return {a.factor * b.factor, a.shift * b.factor + b.shift, a.maps + b.maps};
}
// The order does not elements.
Affine mixed(Affine a, Affine b) {
    return {a.factor ^ b.factor, a.shift + b.shift, a.maps + b.maps};
}
using Maps = std::vector<Affine>;

Maps maps_of(int rank, std::size_t elements) {
    Maps maps(elements);
    std::mt19937 chance(static_cast<unsigned>(rank * 7919 + 1));
    for (Affine& map : maps) map = {static_cast<std::uint32_t>(chance()), static_cast<std::uint32_t>(chance()), 1};
    return maps;
}

struct Case {
    ReduceOp op;
    Affine (*f)(Affine, Affine);
};
std::vector<Case> cases() {
    return {{ReduceOp::of(&then, {.commutative = false, .name = "then"}), &then}, {ReduceOp::of(&mixed), &mixed}};
}

// Of ranks 0 to `end`, which is left out.
Maps combined(const Case& c, int end, std::size_t elements) {
    Maps all = maps_of(0, elements);
    for (int rank = 1; rank < end; ++rank) {
        const Maps next = maps_of(rank, elements);
        for (std::size_t i = 0; i < elements; ++i) all[i] = c.f(all[i], next[i]);
    }
    return all;
}
Maps part(const Maps& all, std::size_t begin, std::size_t elements) {
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(begin);
    return {first, first + static_cast<std::ptrdiff_t>(elements)};
}

void check_whole(const ProcessGroup& g, const Case& c, std::size_t elements) {
    const int me = g.rank(), n = g.size();
    const Maps all = combined(c, n, elements);
    Maps x = maps_of(me, elements);
    all_reduce(items(x), {.op = c.op, .group = g});
    ASSERT_EQ(x, all) << "all_reduce of " << elements;
    x = maps_of(me, elements);
    reduce(items(x), {.op = c.op, .group = g, .group_dst = n - 1});
    ASSERT_EQ(x, me == n - 1 ? all : maps_of(me, elements)) << "reduce of " << elements;
    x = maps_of(me, elements);
    scan(items(x), {.op = c.op, .group = g});
    ASSERT_EQ(x, combined(c, me + 1, elements)) << "scan of " << elements;
    x = maps_of(me, elements);
    exscan(items(x), {.op = c.op, .group = g});
    ASSERT_EQ(x, combined(c, me, elements)) << "exscan of " << elements;
}

void check_blocks(const ProcessGroup& g, const Case& c, std::size_t elements) {
    const auto n = static_cast<std::size_t>(g.size()), me = static_cast<std::size_t>(g.rank());
    Maps own(elements), x = maps_of(g.rank(), elements * n);
    reduce_scatter_tensor(items(own), items(x), {.op = c.op, .group = g});
    ASSERT_EQ(own, part(combined(c, g.size(), elements * n), me * elements, elements))
        << "reduce_scatter_tensor of " << elements;
    // Rank r gets elements + r elements.
    std::vector<std::int64_t> rows;
    std::size_t total = 0, before = 0;
    for (std::size_t r = 0; r < n; ++r) {
        if (r == me) before = total;
        rows.push_back(static_cast<std::int64_t>(elements + r));
        total += elements + r;
    }
    x = maps_of(g.rank(), total);
    const Maps wanted = part(combined(c, g.size(), total), before, elements + me);
    own.assign(elements + me, {});
    reduce_scatter_tensor_uneven(items(own), items(x), {.input_split_sizes = rows, .op = c.op, .group = g});
    ASSERT_EQ(own, wanted) << "reduce_scatter_tensor_uneven of " << elements;
    own.assign(elements + me, {});
    ConstTensorList list;
    for (std::size_t r = 0, at = 0; r < n; at += elements + r, ++r)
        list.push_back(items(std::span<const Affine>(x).subspan(at, elements + r)));
    reduce_scatter(items(own), list, {.op = c.op, .group = g});
    ASSERT_EQ(own, wanted) << "reduce_scatter of " << elements;
}

TEST_P(Operators, combine_as_a_loop_over_the_ranks_does_in_every_reduction) {
    for (const int n : {1, 2, 3, 4}) {
        run_ranks(n, GetParam(), [](const ProcessGroup& g) {
            std::mt19937 chance(11);  // the same on all ranks
            std::vector<std::size_t> tried{0, 1, 5, 341, 100'003};
            if (watched) tried.back() = 20'001;
            for (int i = 0; i < 3; ++i) tried.push_back(chance() % 12'000);
            for (const Case& c : cases()) {
                for (const std::size_t elements : tried) {
                    check_whole(g, c, elements);
                    check_blocks(g, c, elements);
                }
            }
        });
    }
}

TEST_P(Operators, come_in_every_form_of_a_call_and_of_a_function) {
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        const std::uint32_t modulus = 7;  // a lambda may hold something
        int calls = 0;
        const ReduceOp by_blocks = ReduceOp::of(
            [](const Affine* in, Affine* inout, std::size_t elements) {
                for (std::size_t i = 0; i < elements; ++i) inout[i] = then(in[i], inout[i]);
            },
            {.commutative = false});
        const ReduceOp of_c = ReduceOp::of(
            [](const void* in, void* inout, std::size_t elements, void* context) {
                ++*static_cast<int*>(context);
                const auto* const left = static_cast<const Affine*>(in);
                for (std::size_t i = 0; i < elements; ++i)
                    static_cast<Affine*>(inout)[i] = then(left[i], static_cast<Affine*>(inout)[i]);
            },
            &calls, sizeof(Affine), uint8, {.commutative = false});
        const ReduceOp generic =
            ReduceOp::of<Affine>([](auto a, auto b) { return then(a, b); }, {.commutative = false});
        for (const std::size_t elements : {std::size_t{9}, std::size_t{30'000}}) {
            const Maps mine = maps_of(g.rank(), elements);
            for (const ReduceOp& op : {by_blocks, of_c, generic}) {
                const Maps all = combined({op, &then}, 3, elements);
                Maps x = mine, y = mine;
                Work first = async::all_reduce(items(x), {.op = op, .group = g});
                Work second = async::scan(items(y), {.op = op, .group = g});
                first.wait();
                second.wait();
                EXPECT_EQ(x, all);
                EXPECT_EQ(y, combined({op, &then}, g.rank() + 1, elements));
                x = y = mine;
                {
                    const Coalescing scope({.group = g});
                    all_reduce(items(x), {.op = op, .group = g});
                    all_reduce(items(y), {.op = ReduceOp::of(&mixed), .group = g});  // which lives as long as the call
                }
                EXPECT_EQ(x, all);
                EXPECT_EQ(y, combined({op, &mixed}, 3, elements));
                Plan planned =
                    plan::all_reduce(items(x), {.op = ReduceOp::of(&then, {.commutative = false}), .group = g});
                for (int round = 0; round < 3; ++round) {
                    x = mine;
                    planned.run();
                    EXPECT_EQ(x, all);
                }
                x = y = mine;
                all_reduce_coalesced({items(x), items(y)}, {.op = op, .group = g});
                EXPECT_EQ(x, all);
                EXPECT_EQ(y, all);
            }
            // Of a type that tensors have; every second element.
            std::vector<std::int64_t> numbers(2 * elements, g.rank() + 3);
            const TensorView half(numbers.data(), {static_cast<std::int64_t>(elements)}, int64, {2});
            all_reduce(half, {.op = ReduceOp::of([modulus](std::int64_t a, std::int64_t b) { return a * b % modulus; }),
                              .group = g});
            EXPECT_EQ(numbers[0], 3 * 4 % 7 * 5 % 7);
            EXPECT_EQ(numbers[1], g.rank() + 3);
        }
        EXPECT_GT(calls, 0);
    });
}

TEST_P(Operators, find_the_place_of_the_least_and_of_the_greatest_value) {
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        const double nan = std::numeric_limits<double>::quiet_NaN();
        using Pair = ValueIndex<double>;
        const std::int64_t me = g.rank();
        for (const std::size_t copies : {1, 5000}) {
            // Ties go to the lowest index, wherever that is; NaN comes before all numbers.
            const std::vector<Pair> mine{{static_cast<double>(me), me}, {1, 10 - me}, {me == 1 ? nan : -1, me}};
            std::vector<Pair> x;
            for (std::size_t i = 0; i < copies; ++i) x.insert(x.end(), mine.begin(), mine.end());
            std::vector<Pair> y = x;
            all_reduce(items(x), {.op = ReduceOp::min_loc<double>(), .group = g});
            all_reduce(items(y), {.op = ReduceOp::max_loc<double>(), .group = g});
            for (std::size_t i = 0; i < x.size(); i += 3) {
                EXPECT_EQ(x[i], (Pair{0, 0}));
                EXPECT_EQ(y[i], (Pair{2, 2}));
                EXPECT_EQ(x[i + 1], (Pair{1, 8}));
                EXPECT_EQ(y[i + 1], (Pair{1, 8}));
                EXPECT_TRUE(std::isnan(x[i + 2].value) && x[i + 2].index == 1);
                EXPECT_TRUE(std::isnan(y[i + 2].value) && y[i + 2].index == 1);
            }
        }
        std::vector<ValueIndex<float, std::int32_t>> small{{static_cast<float>(-me), static_cast<std::int32_t>(me)}};
        all_reduce(items(small), {.op = ReduceOp::min_loc<float, std::int32_t>(), .group = g});
        EXPECT_EQ(small[0].index, 2);
    });
}

// `call` in the group: every rank learns of the failure, there or in a later call.
void expect_failure(const ProcessGroup& g, const std::function<void()>& call, const std::vector<std::string>& parts) {
    try {
        for (int round = 0; round < 1000; ++round) {
            call();
            barrier({.group = g});
        }
        ADD_FAILURE() << "rank " << g.rank() << " has not learnt of it";
    } catch (const DistError& error) {
        for (const std::string& one : parts) EXPECT_TRUE(has(error.what(), one)) << error.what() << "\nlacks: " << one;
    }
}

TEST_P(Operators, that_throw_fail_the_call_on_all_ranks) {
    for (const std::size_t elements : {std::size_t{1}, std::size_t{50'000}}) {
        run_ranks(3, GetParam(),
                  [elements](const ProcessGroup& g) {
                      // Over TCP some algorithms leave a rank nothing to combine; of many elements in rank order each
                      // has a part.
                      const bool throws = elements == 1 || g.rank() == 1;
                      const ReduceOp op = ReduceOp::of(
                          [throws](Affine a, Affine b) {
                              if (throws) throw std::runtime_error("no such map");
                              return then(a, b);
                          },
                          {.commutative = false, .name = "moody"});
                      Maps x = maps_of(g.rank(), elements);
                      expect_failure(g, [&] { all_reduce(items(x), {.op = op, .group = g}); },
                                     {"operator \"moody\" of 12-byte elements has failed: no such map"});
                  },
                  {.leave = false});
    }
}

TEST_P(Operators, that_call_tutti_fail_instead_of_waiting_for_themselves) {
    run_ranks(2, GetParam(),
              [](const ProcessGroup& g) {
                  const ReduceOp op = ReduceOp::of([&](Affine a, Affine b) {
                      barrier({.group = g});
                      return then(a, b);
                  });
                  Maps x = maps_of(g.rank(), 2);
                  // Warm enough for the short path, which takes the group's lock in another way.
                  for (int i = 0; i < 200; ++i) barrier({.group = g});
                  expect_failure(g, [&] { all_reduce(items(x), {.op = op, .group = g}); },
                                 {"tutti was called by a function that an operation runs"});
              },
              {.leave = false});
}

TEST_P(Operators, must_be_alike_on_all_ranks) {
    struct Unlike {
        OperatorOptions of_rank_0, of_others;
        std::vector<std::string> words;
    };
    const std::vector<Unlike> differences{
        // A process knows only the names that it gives itself.
        {{.name = "first"}, {.name = "second"}, {"all_reduce of uint8 × 40, operator \"", "\" of 12-byte elements"}},
        {{.commutative = false, .name = "same"}, {.name = "same"}, {"operator \"same\"", "in rank order"}},
    };
    for (const Unlike& difference : differences) {
        run_ranks(2, GetParam(),
                  [&](const ProcessGroup& g) {
                      const ReduceOp op =
                          ReduceOp::of(&mixed, g.rank() == 0 ? difference.of_rank_0 : difference.of_others);
                      Maps x = maps_of(g.rank(), 40);
                      expect_failure(
                          g, [&] { all_reduce(items(x), {.op = op, .group = g}); }, difference.words);
                  },
                  {.leave = false});
    }
    // As many bytes, of other elements.
    run_ranks(2, GetParam(),
              [](const ProcessGroup& g) {
                  Maps x = maps_of(g.rank(), 40);
                  std::vector<std::array<std::uint32_t, 4>> y(30);
                  const ReduceOp other = ReduceOp::of<std::array<std::uint32_t, 4>>([](auto a, auto) { return a; });
                  expect_failure(g,
                                 [&] {
                                     if (g.rank() == 0)
                                         all_reduce(items(x), {.op = ReduceOp::of(&mixed), .group = g});
                                     else
                                         all_reduce(items(y), {.op = other, .group = g});
                                 },
                                 {"an operator", "of uint8 × 40", "of uint8 × 30"});
              },
              {.leave = false});
}

std::string sentence_of(const std::function<void()>& call) {
    return message_of<InvalidArgument>(call);
}

TEST(OperatorsMisused, say_what_they_expect) {
    const ProcessGroup g({.store = HashStore(), .rank = 0, .world_size = 1});
    const ReduceOp op = ReduceOp::of(&then, {.name = "then"}),
                   plain = ReduceOp::of([](double a, double b) { return a + b; });
    std::vector<float> floats(12);
    std::vector<std::uint8_t> bytes(25);
    Maps x(2);
    EXPECT_EQ(
        sentence_of([&] { all_reduce(floats, {.op = op, .group = g}); }),
        "all_reduce: op is operator \"then\" of 12-byte elements, and a tensor is of float32: expected the bytes of "
        "the elements, uint8, as tutti::items() gives them");
    EXPECT_EQ(sentence_of([&] { all_reduce(floats, {.op = plain, .group = g}); }),
              "all_reduce: op is an operator without a name of 8-byte elements, and a tensor is of float32: expected "
              "float64");
    EXPECT_EQ(sentence_of([&] { scan(bytes, {.op = op, .group = g}); }),
              "scan: tensor has 25 bytes: expected a multiple of 12, the element size of operator \"then\" of 12-byte "
              "elements");
    EXPECT_EQ(sentence_of([&] { reduce_scatter_tensor(bytes, bytes, {.op = op, .group = g}); }),
              "reduce_scatter_tensor: output has 25 bytes: expected a multiple of 12, the element size of operator "
              "\"then\" of 12-byte elements");
    EXPECT_EQ(sentence_of([&] { all_reduce(items(x), {.op = ReduceOp::Kind::user, .group = g}); }),
              "all_reduce: op is of kind user, without a function: expected one of ReduceOp.of");
    EXPECT_EQ(sentence_of([&] { ReduceOp::of(nullptr, nullptr, 8, uint8); }), "ReduceOp.of: no function: expected one");
    const OperatorFunction nothing = [](const void*, void*, std::size_t, void*) {};
    EXPECT_EQ(sentence_of([&] { ReduceOp::of(nothing, nullptr, 100'000, uint8); }),
              "ReduceOp.of: elements of 100000 bytes: expected 1 to 65536");
    EXPECT_EQ(sentence_of([&] { ReduceOp::of(nothing, nullptr, 4, float64); }),
              "ReduceOp.of: elements of 4 bytes in tensors of float64: expected 8, or uint8");
    EXPECT_EQ(sentence_of([&] { quantized_all_reduce(floats, {.op = op, .group = g}); }),
              "quantized_all_reduce: op user: expected sum or avg");
}

TEST(OperatorsMisused, live_as_long_as_somebody_uses_them) {
    const auto held = std::make_shared<int>(0);
    const ProcessGroup g({.store = HashStore(), .rank = 0, .world_size = 1});
    Maps x(2);
    {
        const ReduceOp op = ReduceOp::of([held](Affine a, Affine b) { return then(a, b); }), copy = op;
        EXPECT_EQ(held.use_count(), 2);
        EXPECT_EQ(op, copy);
        EXPECT_NE(op, ReduceOp::of(&then));
        EXPECT_EQ(op.element_bytes(), sizeof(Affine));
        EXPECT_EQ(copy.kind(), ReduceOp::Kind::user);
        EXPECT_TRUE(copy.commutative());
    }
    EXPECT_EQ(held.use_count(), 1);
    {
        Plan planned = plan::all_reduce(
            items(x), {.op = ReduceOp::of([held](Affine a, Affine b) { return then(a, b); }), .group = g});
        EXPECT_EQ(held.use_count(), 2);
        planned.run();
    }
    EXPECT_EQ(held.use_count(), 1);
    std::size_t calls = 0;
    std::vector<double> values(3, 2);  // this program's own backend may combine, too
    const std::vector<double> others(3, 5);
    const void* const inputs[] = {values.data(), others.data(), others.data()};
    combine(ReduceOp::of([&calls](double a, double b) { return ++calls, a * b; }), float64, values.data(), inputs, 3);
    EXPECT_EQ(values, std::vector<double>(3, 50));
    EXPECT_EQ(calls, 6U);
}

}  // namespace
}  // namespace tutti::test
