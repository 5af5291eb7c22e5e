// Memory of every form: strided, reversed, empty, without dimensions, overlapping, small and large, on real ranks.
#include "conformance/oracle.hpp"
#include "conformance/world.hpp"
#include "support/covers.hpp"

#include <algorithm>
#include <random>

namespace tutti::test {
namespace {

class Layouts : public ::testing::TestWithParam<How> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Layouts, ::testing::ValuesIn(every_way()),
                         [](const auto& instance) { return to_string(instance.param); });

constexpr int untouched = -77;
enum class Form { contiguous, spread, transposed, reversed, cube };
constexpr Form forms[] = {Form::contiguous, Form::spread, Form::transposed, Form::reversed, Form::cube};

// 2 × rows × 3 numbers in one of the forms, with memory around and between them that nobody may write.
class Block {
 public:
    Block(Form form, std::int64_t rows) : memory_(static_cast<std::size_t>(24 * rows + 16), untouched) {
        int* at = memory_.data() + 8;
        switch (form) {
            case Form::contiguous: view_ = TensorView(at, {2 * rows, 3}, int32); break;
            case Form::spread: view_ = TensorView(at, {2 * rows, 3}, int32, {12, 2}); break;
            case Form::transposed: view_ = TensorView(at, {2 * rows, 3}, int32, {1, 2 * rows}); break;
            case Form::reversed: view_ = TensorView(at + 6 * rows - 1, {2 * rows, 3}, int32, {-3, -1}); break;
            case Form::cube: view_ = TensorView(at, {2, rows, 3}, int32, {1, 8, 2}); break;
        }
    }
    TensorView view() const { return view_; }
    std::int64_t count() const { return view_.element_count(); }

    // In row-major order, by plain index arithmetic.
    int& operator[](std::int64_t i) {
        const Extents& shape = view_.shape();
        std::int64_t offset = 0, step = 1;
        for (std::size_t d = shape.size(); d-- > 0;) {
            const std::int64_t index = i % shape[d];
            i /= shape[d];
            offset += index * (view_.contiguous() ? step : view_.strides()[d]);
            step *= shape[d];
        }
        return static_cast<int*>(view_.data())[offset];
    }
    void fill(int seed) {
        for (std::int64_t i = 0; i < count(); ++i) (*this)[i] = value(seed, i);
    }
    static int value(int seed, std::int64_t i) { return seed * 100'003 + static_cast<int>(i); }
    void expect(int seed, std::int64_t first, const char* what) {
        expect([&](std::int64_t i) { return value(seed, first + i); }, what);
    }
    template <class F>
    void expect(F expected, const char* what) {
        for (std::int64_t i = 0; i < count(); ++i) ASSERT_EQ((*this)[i], expected(i)) << what << ", element " << i;
        // Wiped, nothing but the untouched must be left.
        for (std::int64_t i = 0; i < count(); ++i) (*this)[i] = untouched;
        for (const int around : memory_) ASSERT_EQ(around, untouched) << what << " wrote outside of its tensor";
    }

 private:
    std::vector<int> memory_;
    TensorView view_;
};

void check_forms(const ProcessGroup& g, Form in_form, Form out_form, std::int64_t rows) {
    const int n = g.size(), me = g.rank();
    const auto m = static_cast<std::size_t>(me);
    const std::int64_t count = 6 * rows;
    const auto sum_of = [&](std::int64_t i) {
        int sum = 0;
        for (int r = 0; r < n; ++r) sum += Block::value(r, i);
        return sum;
    };
    Block in(in_form, rows), out(out_form, rows);
    out.fill(me);
    all_reduce(out.view(), {.group = g});
    out.expect(sum_of, "all_reduce");
    for (int root = 0; root < n; ++root) {
        out.fill(me);
        reduce(out.view(), {.dst = root, .group = g});
        if (me == root)
            out.expect(sum_of, "reduce");
        else
            out.expect(me, 0, "reduce elsewhere");
        out.fill(me);
        broadcast(out.view(), {.src = root, .group = g});
        out.expect(root, 0, "broadcast");
    }
    std::vector<Block> ins, outs;
    TensorList out_views;
    ConstTensorList in_views;
    for (int r = 0; r < n; ++r) {
        ins.emplace_back(in_form, rows).fill(me * n + r);
        outs.emplace_back(r % 2 == 0 ? out_form : in_form, rows);
    }
    for (int r = 0; r < n; ++r) {
        in_views.emplace_back(ins[static_cast<std::size_t>(r)].view());
        out_views.emplace_back(outs[static_cast<std::size_t>(r)].view());
    }
    const auto expect_all = [&](auto seed_of, const char* what) {
        for (int r = 0; r < n; ++r) outs[static_cast<std::size_t>(r)].expect(seed_of(r), 0, what);
    };
    in.fill(me);
    all_gather(out_views, in.view(), {.group = g});
    expect_all([](int r) { return r; }, "all_gather");
    all_to_all(out_views, in_views, {.group = g});
    expect_all([&](int r) { return r * n + me; }, "all_to_all");
    for (int root = 0; root < n; ++root) {
        gather(in.view(), me == root ? out_views : TensorList{}, {.dst = root, .group = g});
        if (me == root) expect_all([](int r) { return r; }, "gather");
        scatter(out.view(), me == root ? in_views : ConstTensorList{}, {.src = root, .group = g});
        out.expect(root * n + me, 0, "scatter");
    }
    reduce_scatter(out.view(), in_views, {.group = g});
    out.expect(
        [&](std::int64_t i) {
            int sum = 0;
            for (int r = 0; r < n; ++r) sum += Block::value(r * n + me, i);
            return sum;
        },
        "reduce_scatter");
    // One tensor for all ranks: rows that divide by n.
    Block whole_in(in_form, rows * n), whole_out(out_form, rows * n);
    whole_in.fill(me);
    all_gather_into_tensor(whole_out.view(), in.view(), {.group = g});
    whole_out.expect([&](std::int64_t i) { return Block::value(static_cast<int>(i / count), i % count); },
                     "all_gather_into_tensor");
    reduce_scatter_tensor(out.view(), whole_in.view(), {.group = g});
    out.expect([&](std::int64_t i) { return sum_of(static_cast<std::int64_t>(m) * count + i); },
               "reduce_scatter_tensor");
    if (in_form != Form::cube && out_form != Form::cube) {  // its first dimension is 2: no even split
        all_to_all_single(whole_out.view(), whole_in.view(), {.group = g});
        whole_out.expect(
            [&](std::int64_t i) {
                return Block::value(static_cast<int>(i / count), static_cast<std::int64_t>(m) * count + i % count);
            },
            "all_to_all_single");
    }
    const int next = (me + 1) % n, previous = (me + n - 1) % n;
    Work sent = isend(in.view(), next, {.group = g});
    recv(out.view(), {.src = previous, .group = g});
    sent.wait();
    out.expect(previous, 0, "recv");
    in.expect(me, 0, "an input");
}

TEST_P(Layouts, of_any_strides_go_in_and_out_of_every_function) {
    covers("S8-012", "S8-023", "A-07");
    for (const int n : watched ? std::vector<int>{3} : std::vector<int>{2, 3}) {
        run_ranks(n, GetParam(), [](const ProcessGroup& g) {
            for (const Form in : forms) {
                for (const Form out : forms) {
                    for (const std::int64_t rows : {1, 7, watched ? 37 : 501}) check_forms(g, in, out, rows);
                }
            }
        });
    }
}

TEST_P(Layouts, without_elements_or_dimensions_are_tensors_too) {
    covers("A-56", "S8-005", "S8-012", "S8-023");
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        const int n = g.size(), me = g.rank();
        std::vector<int> mark(1, untouched);
        const TensorView nothing[] = {TensorView(nullptr, {0}, int32), TensorView(mark.data(), {3, 0, 5}, int32),
                                      TensorView(mark.data(), {0, 4}, int32, {9, 2})};
        for (const TensorView& v : nothing) {
            all_reduce(v, {.group = g});
            broadcast(v, {.src = 2, .group = g});
            reduce(v, {.dst = 1, .group = g});
            all_gather({v, v, v}, v, {.group = g});
            all_gather_into_tensor(v, v, {.group = g});
            gather(v, me == 1 ? TensorList{v, v, v} : TensorList{}, {.dst = 1, .group = g});
            scatter(v, me == 2 ? ConstTensorList{v, v, v} : ConstTensorList{}, {.src = 2, .group = g});
            reduce_scatter(v, {v, v, v}, {.group = g});
            reduce_scatter_tensor(v, v, {.group = g});
            all_to_all({v, v, v}, {v, v, v}, {.group = g});
            all_to_all_single(v, v, {.group = g});
            Work sent = isend(v, (me + 1) % n, {.group = g});
            EXPECT_EQ(recv(v, {.group = g}), (me + n - 1) % n);
            sent.wait();
        }
        EXPECT_EQ(mark[0], untouched);
        std::int64_t scalar = me + 1, other = 0, all[3] = {};
        all_reduce(view(&scalar, {}), {.op = ReduceOp::product, .group = g});
        EXPECT_EQ(scalar, 6);
        scalar = me;
        all_gather_into_tensor(view(all, {3, 1}), view(&scalar, {}), {.group = g});
        EXPECT_EQ(all[2], 2);
        all_gather({view(&all[0], {}), view(&all[1], {1, 1}), view(&all[2], {1})}, view(&scalar, {}), {.group = g});
        EXPECT_EQ(all[1], 1);
        reduce_scatter_tensor(view(&other, {}), all, {.group = g});
        EXPECT_EQ(other, 3 * me);
        scatter(view(&other, {}),
                me == 0 ? ConstTensorList{view(&all[2], {}), view(&all[1], {}), view(&all[0], {})} : ConstTensorList{},
                {.group = g});
        EXPECT_EQ(other, 2 - me);
    });
}

TEST_P(Layouts, may_be_slices_of_the_output_or_the_input) {
    covers("S8-008");
    for (const int n : {2, 3}) {
        run_ranks(n, GetParam(), [](const ProcessGroup& g) {
            const int size = g.size(), me = g.rank();
            const auto m = static_cast<std::size_t>(me), un = static_cast<std::size_t>(size);
            for (const std::size_t count : {1, 13, 4099, watched ? 20'011 : 120'001}) {
                std::vector<int> all(un * count, untouched);
                const auto slice = [&](std::size_t r) {
                    return view(all.data() + r * count, {static_cast<std::int64_t>(count)});
                };
                const auto fill = [&](std::size_t r, int seed) {
                    for (std::size_t i = 0; i < count; ++i)
                        all[r * count + i] = seed * 1000 + static_cast<int>(i % 997);
                };
                const auto expect = [&](std::size_t r, int seed, int times, const char* what) {
                    for (std::size_t i = 0; i < count; ++i) {
                        ASSERT_EQ(all[r * count + i], seed * 1000 + times * static_cast<int>(i % 997))
                            << what << " on rank " << me << ", slice " << r << ", element " << i;
                    }
                };
                fill(m, me);
                all_gather_into_tensor(all, slice(m), {.group = g});
                for (std::size_t r = 0; r < un; ++r)
                    ASSERT_NO_FATAL_FAILURE(expect(r, static_cast<int>(r), 1, "all_gather_into_tensor"));
                TensorList slices;
                ConstTensorList inputs;
                for (std::size_t r = 0; r < un; ++r) {
                    slices.push_back(slice(r));
                    inputs.emplace_back(slice(r));
                }
                std::fill(all.begin(), all.end(), 0);
                fill(m, me + 1);
                all_gather(slices, slice(m), {.group = g});
                for (std::size_t r = 0; r < un; ++r)
                    ASSERT_NO_FATAL_FAILURE(expect(r, static_cast<int>(r) + 1, 1, "all_gather"));
                for (std::size_t r = 0; r < un; ++r) fill(r, static_cast<int>(r));
                reduce_scatter_tensor(slice(m), all, {.group = g});
                ASSERT_NO_FATAL_FAILURE(expect(m, me * size, size, "reduce_scatter_tensor"));
                for (std::size_t r = 0; r < un; ++r) fill(r, static_cast<int>(r));
                reduce_scatter(slice(m), inputs, {.group = g});
                ASSERT_NO_FATAL_FAILURE(expect(m, me * size, size, "reduce_scatter"));
                for (std::size_t r = 0; r < un; ++r) fill(r, me * size + static_cast<int>(r));
                all_to_all_single(all, all, {.group = g});
                for (std::size_t r = 0; r < un; ++r)
                    ASSERT_NO_FATAL_FAILURE(expect(r, static_cast<int>(r) * size + me, 1, "all_to_all_single"));
                fill(m, me);
                gather(slice(m), me == 0 ? slices : TensorList{}, {.group = g});
                for (std::size_t r = 0; r < un && me == 0; ++r)
                    ASSERT_NO_FATAL_FAILURE(expect(r, static_cast<int>(r), 1, "gather"));
                for (std::size_t r = 0; r < un; ++r) fill(r, static_cast<int>(r) + 5);
                scatter(slice(m), me == 0 ? inputs : ConstTensorList{}, {.group = g});
                ASSERT_NO_FATAL_FAILURE(expect(m, me + 5, 1, "scatter"));
            }
        });
    }
}

TEST_P(Layouts, of_any_size_small_odd_and_large) {
    covers("S8-004", "S8-006", "S8-009", "S8-013", "S8-024", "S8-026");
    constexpr int rounds = watched ? 6 : 60;
    const std::vector<int> sizes = watched ? std::vector<int>{2, 3, 5} : std::vector<int>{2, 3, 5, 8};
    for (const int n : sizes) {
        run_ranks(n, GetParam(), [](const ProcessGroup& g) {
            const int size = g.size(), me = g.rank();
            const auto un = static_cast<std::size_t>(size), m = static_cast<std::size_t>(me);
            std::mt19937 random(7);  // the same numbers on all ranks
            std::vector<std::size_t> counts;
            for (int i = 0; i < rounds; ++i) counts.push_back(1 + random() % 5000);
            counts.push_back(watched ? 40'001 : 750'001);
#ifndef TUTTI_THREADS_ONLY
            if (size == 2) counts.push_back(5'000'011);  // 20 MB
#endif
            for (const std::size_t count : counts) {
                const auto at = [](std::size_t rank, std::size_t i) {
                    return static_cast<float>((rank * 31 + i * 7) % 1009);
                };
                const auto sum_at = [&](std::size_t i) {
                    float sum = 0;
                    for (std::size_t r = 0; r < un; ++r) sum += at(r, i);
                    return sum;
                };
                std::vector<float> mine(count);
                for (std::size_t i = 0; i < count; ++i) mine[i] = at(m, i);
                const int root = static_cast<int>(count % un);
                std::vector<float> data = mine;
                all_reduce(data, {.group = g});
                for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(data[i], sum_at(i)) << "all_reduce " << count;
                data = mine;
                reduce(data, {.dst = root, .group = g});
                for (std::size_t i = 0; i < count && me == root; ++i) ASSERT_EQ(data[i], sum_at(i)) << "reduce";
                data = mine;
                broadcast(data, {.src = root, .group = g});
                for (std::size_t i = 0; i < count; ++i)
                    ASSERT_EQ(data[i], at(static_cast<std::size_t>(root), i)) << "broadcast " << count;
                std::vector<float> all(count * un), swapped(count * un);
                all_gather_into_tensor(all, mine, {.group = g});
                for (std::size_t k = 0; k < all.size(); ++k)
                    ASSERT_EQ(all[k], at(k / count, k % count)) << "all_gather_into_tensor " << count;
                all_to_all_single(swapped, all, {.group = g});
                for (std::size_t k = 0; k < all.size(); ++k) ASSERT_EQ(swapped[k], mine[k % count]) << "all_to_all";
                reduce_scatter_tensor(data, all, {.group = g});
                for (std::size_t i = 0; i < count; ++i)
                    ASSERT_EQ(data[i], static_cast<float>(size) * mine[i]) << "reduce_scatter_tensor " << count;
            }
        });
    }
}

#ifndef TUTTI_THREADS_ONLY
TEST_P(Layouts, that_take_hundreds_of_segments_a_step_do_not_wait_for_each_other) {
    covers("S8-006");
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        std::vector<std::uint8_t> data(300U << 20, static_cast<std::uint8_t>(g.rank() + 1));
        data.back() = 50;
        all_reduce(data, {.group = g});
        ASSERT_EQ(std::ranges::count(data, 3), static_cast<std::ptrdiff_t>(data.size()) - 1);
        ASSERT_EQ(data.back(), 100);
    });
}
#endif

}  // namespace
}  // namespace tutti::test
