// Symmetric memory: every collective on buffers of which all, some or none are symmetric, whole and in part, gives what
// it gives on ordinary memory; what does not fit together is an error; nothing is left behind.
#include "conformance/world.hpp"
#include "support/covers.hpp"

#include <tutti/symmetric.hpp>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <memory>
#include <numeric>
#include <sstream>

namespace tutti::test::symmetric {
namespace {

class Symmetric : public ::testing::TestWithParam<How> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Symmetric, ::testing::ValuesIn(every_way()),
                         [](const auto& instance) { return to_string(instance.param); });

// Which ranks use symmetric memory in one run of a test.
enum class Who { all, even, odd };
bool uses(Who who, int rank) {
    return who == Who::all || (who == Who::even) == (rank % 2 == 0);
}

// A buffer of `count` elements: in symmetric memory (`offset` elements into it), or ordinary. All ranks call it.
struct Buffer {
    Tensor memory;
    TensorView view;
};
template <class T>
Buffer buffer_of(const ProcessGroup& g, Who who, std::size_t count, std::size_t offset) {
    const auto whole = static_cast<std::int64_t>(count + offset);
    Tensor symmetric = empty_symmetric(dtype_of<T>, {whole}, {.group = g});
    Tensor memory = uses(who, g.rank()) ? symmetric : empty(dtype_of<T>, {whole});
    const TensorView view(memory.data<T>() + offset, {static_cast<std::int64_t>(count)}, dtype_of<T>);
    return {memory, view};
}
template <class T>
std::span<T> elements(const Buffer& buffer) {
    return {static_cast<T*>(buffer.view.data()), static_cast<std::size_t>(buffer.view.element_count())};
}
template <class T>
T value(int rank, std::size_t i) {
    return static_cast<T>(static_cast<float>((static_cast<std::size_t>(rank) * 3 + i) % 5));
}
template <class T>
T sum(int ranks, std::size_t i) {
    float total = 0;
    for (int r = 0; r < ranks; ++r) total += static_cast<float>(value<T>(r, i));
    return static_cast<T>(total);
}
template <class T>
void fill(const Buffer& buffer, int rank) {
    for (std::size_t i = 0; T & element : elements<T>(buffer)) element = value<T>(rank, i++);
}
template <class T, class F>
void expect(const Buffer& buffer, const char* what, F expected) {
    const auto got = elements<T>(buffer);
    const auto at = [&](std::size_t i) { return static_cast<float>(expected(i)); };
    std::size_t i = 0;  // of millions of elements, one assertion: each would take longer than the collective
    while (i < got.size() && static_cast<float>(got[i]) == at(i)) ++i;
    if (i < got.size()) FAIL() << what << ", element " << i << ": " << static_cast<float>(got[i]) << ", not " << at(i);
}

template <class T>
void check_all(const ProcessGroup& g, Who who, std::size_t count, std::size_t offset) {
    const int n = g.size(), me = g.rank();
    const auto ranks = static_cast<std::size_t>(n);
    const Buffer block = buffer_of<T>(g, who, count, offset), all = buffer_of<T>(g, who, count * ranks, offset);
    const Buffer result = buffer_of<T>(g, who, count * ranks, 0), mine = buffer_of<T>(g, who, count, 0);
    const auto own = [&](std::size_t i) { return value<T>(me, i); };
    const auto sums = [&](std::size_t i) { return sum<T>(n, i); };
    const auto parts = [&](const Buffer& buffer) {
        std::vector<TensorView> list;
        for (std::size_t r = 0; r < ranks; ++r) {
            list.emplace_back(elements<T>(buffer).data() + r * count, Extents::of(static_cast<std::int64_t>(count)),
                              dtype_of<T>);
        }
        return list;
    };
    // Twice, and the buffers change as soon as a call returns: whoever still reads them then reads something wrong.
    for (int turn = 0; turn < 2; ++turn) {
        fill<T>(block, me);
        all_reduce(block.view, {.group = g});
        expect<T>(block, "all_reduce", sums);
        for (const int root : {0, n - 1}) {
            fill<T>(block, me);
            reduce(block.view, {.dst = root, .group = g});
            if (me == root)
                expect<T>(block, "reduce", sums);
            else
                expect<T>(block, "reduce leaves the others' tensors alone", own);
            fill<T>(block, me);
            broadcast(block.view, {.src = root, .group = g});
            expect<T>(block, "broadcast", [&](std::size_t i) { return value<T>(root, i); });
            fill<T>(block, me);
            fill<T>(result, 4);
            TensorList gathered;
            if (me == root) gathered = parts(result);
            gather(block.view, gathered, {.dst = root, .group = g});
            if (me == root)
                expect<T>(result, "gather", [&](auto i) { return value<T>(static_cast<int>(i / count), i % count); });
            fill<T>(all, root);
            ConstTensorList scattered;
            if (me == root)
                for (const TensorView& part : parts(all)) scattered.push_back(part);
            scatter(mine.view, scattered, {.src = root, .group = g});
            expect<T>(mine, "scatter",
                      [&](std::size_t i) { return value<T>(root, static_cast<std::size_t>(me) * count + i); });
        }
        fill<T>(block, me);
        all_gather_into_tensor(result.view, block.view, {.group = g});
        expect<T>(result, "all_gather", [&](auto i) { return value<T>(static_cast<int>(i / count), i % count); });
        fill<T>(all, me);
        reduce_scatter_tensor(mine.view, all.view, {.group = g});
        expect<T>(mine, "reduce_scatter",
                  [&](std::size_t i) { return sum<T>(n, static_cast<std::size_t>(me) * count + i); });
        fill<T>(all, me);
        all_to_all_single(result.view, all.view, {.group = g});
        expect<T>(result, "all_to_all", [&](std::size_t i) {
            return value<T>(static_cast<int>(i / count), static_cast<std::size_t>(me) * count + i % count);
        });
        if (n > 1) {
            fill<T>(block, me);
            Work sent = isend(block.view, (me + 1) % n, {.group = g});
            Work received = irecv(mine.view, {.src = (me + n - 1) % n, .group = g});
            sent.wait();
            received.wait();
            expect<T>(mine, "recv", [&](std::size_t i) { return value<T>((me + n - 1) % n, i); });
        }
    }
}

TEST_P(Symmetric, memory_gives_the_results_of_ordinary_memory) {
    for (const int n : watched ? std::vector<int>{2, 3} : std::vector<int>{1, 2, 3, 4}) {
        run_ranks(n, GetParam(), [](const ProcessGroup& g) {
            for (const Who who : {Who::all, Who::even, Who::odd}) {
                check_all<float>(g, who, 3, 0);
                check_all<float>(g, who, 5'001, 7);
                check_all<float>(g, who, 20'001, 0);
                if (watched && who != Who::even) continue;
                check_all<BFloat16>(g, who, watched ? 10'003 : 70'003, 1);
                if (!watched) check_all<double>(g, who, 40'001, 0);
            }
            check_all<float>(g, Who::all, watched ? 40'001 : 300'001, 3);
        });
    }
}

TEST_P(Symmetric, operands_of_different_tensors_and_groups_mix) {
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        constexpr std::int64_t count = 50'000;
        const Tensor first = empty_symmetric(float32, {count}, {.group = g});
        const Tensor second = empty_symmetric(float32, {3, count}, {.group = g});
        const Tensor& used = g.rank() == 1 ? first : second;
        const TensorView data(used.data<float>(), {count}, float32);
        std::fill_n(used.data<float>(), count, static_cast<float>(g.rank() + 1));
        all_reduce(data, {.group = g});
        for (std::int64_t i = 0; i < count; ++i) ASSERT_EQ(used.data<float>()[i], 6) << i;
        // Strided, as for any tensor.
        std::fill_n(second.data<float>(), 3 * count, static_cast<float>(g.rank()));
        all_reduce(TensorView(second.raw_data(), {count}, float32, {3}), {.op = ReduceOp::max, .group = g});
        for (std::int64_t i = 0; i < 3 * count; ++i) {
            ASSERT_EQ(second.data<float>()[i], i % 3 == 0 ? 2 : static_cast<float>(g.rank())) << i;
        }
    });
}

TEST_P(Symmetric, memory_is_zero_at_first_and_may_be_empty_or_a_scalar) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        const Tensor some = empty_symmetric(int32, {2, 600}, {.group = g});
        EXPECT_EQ(some.shape(), Extents({2, 600}));
        for (const std::int32_t element : some.span<std::int32_t>()) ASSERT_EQ(element, 0);
        EXPECT_EQ(empty_symmetric(int32, {0}, {.group = g}).element_count(), 0);
        EXPECT_EQ(empty_symmetric(int32, {}, {.group = g}).element_count(), 1);
    });
}

TEST_P(Symmetric, operations_overlap_and_are_ordered) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        constexpr std::int64_t count = 100'000;
        const Tensor a = empty_symmetric(float32, {count}, {.group = g});
        const Tensor b = empty_symmetric(float32, {count}, {.group = g});
        std::fill_n(a.data<float>(), count, 1.0F);
        std::fill_n(b.data<float>(), count, 2.0F);
        std::vector<Work> works;
        for (int turn = 0; turn < 4; ++turn) {
            works.push_back(async::all_reduce(a.view(), {.group = g}));
            works.push_back(async::broadcast(b.view(), {.src = turn % 2, .group = g}));
            works.push_back(async::all_reduce(b.view(), {.group = g}));
        }
        for (Work& work : works) work.wait();
        for (std::int64_t i = 0; i < count; ++i) {
            ASSERT_EQ(a.data<float>()[i], 16);
            ASSERT_EQ(b.data<float>()[i], 32);
        }
    });
}

TEST_P(Symmetric, sizes_that_differ_are_an_error_that_shows_both) {
    run_ranks(2, GetParam(),
              [](const ProcessGroup& g) {
                  try {
                      empty_symmetric(float32, {g.rank() == 0 ? 1000 : 2000}, {.group = g});
                      ADD_FAILURE() << "expected CollectiveMismatch";
                  } catch (const CollectiveMismatch& error) {
                      const std::string text = error.what();
                      EXPECT_NE(text.find("empty_symmetric of float32 × 1000"), std::string::npos) << text;
                      EXPECT_NE(text.find("empty_symmetric of float32 × 2000"), std::string::npos) << text;
                  }
              },
              {.leave = false});
}

TEST_P(Symmetric, arguments_are_checked) {
    run_ranks(1, GetParam(), [](const ProcessGroup& g) {
        EXPECT_THROW(empty_symmetric(float32, {-1}, {.group = g}), InvalidArgument);
        EXPECT_THROW(empty_symmetric(float32, {INT64_MAX, 2}, {.group = g}), InvalidArgument);
        EXPECT_THROW(empty_symmetric(float32, {1}, {.group = g, .timeout = milliseconds(-1)}), InvalidArgument);
    });
}

TEST_P(Symmetric, memory_that_no_machine_has_is_an_error_on_all_ranks) {
    const How how = GetParam();
    if (how == How::tcp_processes || how == How::tcp_threads) GTEST_SKIP() << "by design: ordinary memory over TCP";
    run_ranks(3, how, [](const ProcessGroup& g) {
        EXPECT_THROW(empty_symmetric(float32, {std::int64_t{1} << 58}, {.group = g}), DistBackendError);
        std::vector<float> data(10, 1);  // the group goes on
        all_reduce(data, {.group = g});
        EXPECT_EQ(data[9], 3);
    });
}

#ifndef TUTTI_THREADS_ONLY
std::size_t shared_kilobytes() {
    std::ifstream info("/proc/self/status");
    for (std::string line; std::getline(info, line);) {
        std::istringstream words(line);
        std::string name;
        std::size_t kilobytes = 0;
        if (words >> name >> kilobytes && name == "RssShmem:") return kilobytes;
    }
    return 0;
}

TEST(SymmetricMemory, is_given_back_when_the_last_rank_lets_go) {
    run_ranks(2, How::shm_processes, [](const ProcessGroup& g) {
        constexpr std::int64_t bytes = std::int64_t{1} << 20;
        barrier({.group = g});
        const std::size_t before = shared_kilobytes();
        for (int turn = 0; turn < 50; ++turn) {
            const Tensor data = empty_symmetric(uint8, {bytes}, {.group = g});
            std::memset(data.raw_data(), 1, static_cast<std::size_t>(bytes));
            all_reduce(data.view(), {.op = ReduceOp::max, .group = g});
        }
        barrier({.group = g});
        EXPECT_LT(shared_kilobytes(), before + 8 * 1024) << "50 MB were allocated and let go";
    });
}

TEST(SymmetricMemory, outlives_its_group) {
    run_ranks(2, How::shm_processes,
              [](const ProcessGroup& g) {
                  Tensor data = empty_symmetric(float32, {5000}, {.group = g});
                  all_reduce(data.view(), {.group = g});
                  ProcessGroup(g).destroy();
                  data.data<float>()[4999] = 4;
                  EXPECT_EQ(data.data<float>()[4999], 4);
              },
              {.leave = false});
}

TEST(SymmetricMemory, of_the_parent_survives_a_forked_child) {
    run_ranks(2, How::shm_processes, [](const ProcessGroup& g) {
        auto data = std::make_unique<Tensor>(empty_symmetric(float32, {5000}, {.group = g}));
        std::fill_n(data->data<float>(), 5000, 1.0F);
        const pid_t child = ::fork();
        if (child == 0) {
            data.reset();
            ::_exit(0);
        }
        ::waitpid(child, nullptr, 0);
        barrier({.group = g});
        EXPECT_EQ(data->data<float>()[4999], 1);
        all_reduce(data->view(), {.group = g});
        EXPECT_EQ(data->data<float>()[4999], 2);
    });
}
#endif

}  // namespace
}  // namespace tutti::test::symmetric
