// Exchange between neighbours: halos of random blocks and messages on random graphs against serial oracles, and what
// goes wrong.
#include "conformance/world.hpp"

#include <algorithm>
#include <complex>
#include <numeric>
#include <optional>
#include <random>
#include <thread>

namespace tutti::test {
namespace {

using namespace std::chrono_literals;
using Ranks = std::vector<int>;
using Lengths = std::vector<std::int64_t>;

class Neighbors : public ::testing::TestWithParam<How> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Neighbors, ::testing::ValuesIn(every_way()),
                         [](const auto& instance) { return to_string(instance.param); });

/// The forms of a call.
enum class CallForm { blocking, asynchronous, planned, planned_start };
constexpr CallForm call_forms[] = {CallForm::blocking, CallForm::asynchronous, CallForm::planned,
                                   CallForm::planned_start};

void expect_words(const std::string& text, const std::string& part) {
    EXPECT_TRUE(has(text, part)) << text << "\ndoes not say: " << part;
}

// ---- Halos

/// The part of a random array that one rank has; equal random numbers on all ranks.
struct HaloProblem {
    Ranks mesh_shape;
    std::vector<Halo> halos;
    std::vector<Lengths> inner;      // by dimension of the tensor: inner cells of each coordinate of its mesh dimension
    std::vector<int> mesh_dim;       // by dimension of the tensor; -1: not divided
    std::vector<std::size_t> order;  // of the dimensions in memory, outermost first
    std::int64_t padding = 0;        // elements behind each row of memory

    HaloProblem(unsigned seed, int ranks) {
        std::mt19937 random(seed);
        const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
        const int dims = draw(1, 4), divided = draw(1, std::min(dims, 3));
        mesh_shape = balanced_mesh_shape(ranks, Ranks(static_cast<std::size_t>(divided), 0));
        std::ranges::shuffle(mesh_shape, random);
        std::vector<int> tensor_dims(static_cast<std::size_t>(dims));
        for (int d = 0; d < dims; ++d) tensor_dims[static_cast<std::size_t>(d)] = d;
        order.assign(tensor_dims.begin(), tensor_dims.end());
        std::ranges::shuffle(order, random);
        std::ranges::shuffle(tensor_dims, random);
        mesh_dim.assign(static_cast<std::size_t>(dims), -1);
        inner.resize(static_cast<std::size_t>(dims));
        bool is_long = draw(0, 2) == 0;  // one of the other dimensions
        for (int m = 0; m < divided; ++m) {
            const int d = tensor_dims[static_cast<std::size_t>(m)];
            const HaloWidth width(draw(0, 3), draw(0, 3));
            halos.push_back({.dim = d, .width = width, .mesh_dim = m, .periodic = draw(0, 1) == 1});
            mesh_dim[static_cast<std::size_t>(d)] = m;
            for (int c = 0; c < mesh_shape[static_cast<std::size_t>(m)]; ++c)
                inner[static_cast<std::size_t>(d)].push_back(std::max(width.low, width.high) + draw(0, 3));
        }
        for (std::size_t d = 0; d < inner.size(); ++d) {
            if (!inner[d].empty()) continue;
            inner[d].push_back(std::exchange(is_long, false) ? draw(200, 900) : draw(0, 6));
        }
        padding = draw(0, 1) * draw(1, 5);
    }

    std::int64_t width_low(std::size_t dim) const {
        for (const Halo& h : halos) {
            if (h.dim == static_cast<int>(dim)) return h.width.low;
        }
        return 0;
    }
    std::int64_t width_high(std::size_t dim) const {
        for (const Halo& h : halos) {
            if (h.dim == static_cast<int>(dim)) return h.width.high;
        }
        return 0;
    }
    bool periodic(std::size_t dim) const {
        return std::ranges::any_of(halos, [&](const Halo& h) { return h.dim == static_cast<int>(dim) && h.periodic; });
    }
};

template <class T>
class HaloBlock {
 public:
    HaloBlock(const HaloProblem& problem, const Ranks& coordinate) : problem_(problem) {
        const std::size_t dims = problem.inner.size();
        for (std::size_t d = 0; d < dims; ++d) {
            const int m = problem.mesh_dim[d];
            const auto c = m < 0 ? std::size_t{0} : static_cast<std::size_t>(coordinate[static_cast<std::size_t>(m)]);
            begin_.push_back(std::accumulate(problem.inner[d].begin(), problem.inner[d].begin() + std::ptrdiff_t(c),
                                             std::int64_t{0}));
            whole_.push_back(std::accumulate(problem.inner[d].begin(), problem.inner[d].end(), std::int64_t{0}));
            inner_.push_back(problem.inner[d][c]);
            shape_.push_back(problem.inner[d][c] + problem.width_low(d) + problem.width_high(d));
        }
        strides_.resize(dims);
        std::int64_t stride = 1;
        for (std::size_t i = dims; i-- > 0;) {
            strides_[problem.order[i]] = stride;
            stride *= shape_[problem.order[i]];
            if (i + 1 == dims) stride += problem.padding;
        }
        memory_.assign(static_cast<std::size_t>(std::max<std::int64_t>(stride, 1)), untouched);
    }

    TensorView view() { return TensorView(memory_.data(), Extents(shape_), dtype_of<T>, Extents(strides_)); }
    /// Inner cells get their values, all others `untouched`.
    void fill(int round) {
        std::ranges::fill(memory_, untouched);
        each([&](const Lengths& index, T& cell) {
            bool is_inner = true;
            for (std::size_t d = 0; d < index.size(); ++d) {
                const std::int64_t at = index[d] - problem_.width_low(d);
                is_inner &= at >= 0 && at < inner_[d];
            }
            if (is_inner) cell = *expected(index, round);
        });
    }
    /// How many cells are wrong. Those beyond open ends are untouched, and so are elements that the view does not have.
    int wrong(int round) {
        int faults = 0;
        std::vector<T> others = memory_;
        each([&](const Lengths& index, T& cell) {
            if (cell != expected(index, round).value_or(untouched)) ++faults;
            others[static_cast<std::size_t>(&cell - memory_.data())] = untouched;
        });
        return faults + static_cast<int>(std::ranges::count_if(others, [](const T& x) { return x != untouched; }));
    }

 private:
    static constexpr T untouched{255};
    template <class F>
    void each(F&& f) {
        if (std::ranges::find(shape_, 0) != shape_.end()) return;
        Lengths index(shape_.size());
        for (;;) {
            std::int64_t at = 0;
            for (std::size_t d = 0; d < index.size(); ++d) at += index[d] * strides_[d];
            f(index, memory_[static_cast<std::size_t>(at)]);
            std::size_t d = index.size();
            while (d > 0 && ++index[d - 1] == shape_[d - 1]) index[--d] = 0;
            if (d == 0) return;
        }
    }
    // Nothing: the cell lies beyond an open end.
    std::optional<T> expected(const Lengths& index, int round) const {
        std::int64_t number = round;
        for (std::size_t d = 0; d < index.size(); ++d) {
            std::int64_t at = begin_[d] + index[d] - problem_.width_low(d);
            if (problem_.periodic(d)) at = (at + whole_[d]) % whole_[d];
            if (at < 0 || at >= whole_[d]) return std::nullopt;
            number = number * 1009 + at;
        }
        return static_cast<T>(static_cast<int>(number % 251));
    }

    const HaloProblem& problem_;
    Lengths begin_, whole_, inner_, shape_, strides_;
    std::vector<T> memory_;
};

void exchange_as(CallForm form, const TensorView& view, const DeviceMesh& mesh, const std::vector<Halo>& halos,
                 Plan& plan) {
    switch (form) {
        case CallForm::blocking: return exchange_halos(view, mesh, halos);
        case CallForm::asynchronous: return void(async::exchange_halos(view, mesh, halos).wait());
        default: break;
    }
    if (!plan) plan = plan::exchange_halos(view, mesh, halos);
    form == CallForm::planned ? plan.run() : void(plan.start().wait());
}

template <class T>
void try_halos(const ProcessGroup& w, unsigned seed) {
    const HaloProblem problem(seed, w.size());
    std::vector<int> ranks(static_cast<std::size_t>(w.size()));
    for (int r = 0; r < w.size(); ++r) ranks[static_cast<std::size_t>(r)] = w.global_rank(r);
    std::shuffle(ranks.begin(), ranks.end(), std::mt19937(seed));
    const DeviceMesh mesh("cpu", RankArray::of(problem.mesh_shape, ranks), {.world = w});
    HaloBlock<T> block(problem, *mesh.get_coordinate());
    Plan plan;
    int round = 0;
    for (const CallForm form : call_forms) {
        for (int i = 0; i < 2; ++i, ++round) {
            block.fill(round);
            exchange_as(form, block.view(), mesh, problem.halos, plan);
            ASSERT_EQ(block.wrong(round), 0)
                << "seed " << seed << ", form " << static_cast<int>(form) << ", rank " << w.rank() << ", view "
                << block.view().to_string() << ", mesh " << mesh.to_string();
        }
    }
}

TEST_P(Neighbors, halos_of_random_blocks_are_parts_of_the_whole_array) {
    for (const int ranks : {1, 2, 3, 4, 6}) {
        run_ranks(ranks, GetParam(), [](const ProcessGroup& w) {
            if (GetParam() == How::part && w.size() == 6) return;
            for (unsigned seed = 0; seed < (watched ? 8U : 16U); seed += 4) {
                const unsigned s = 100 * static_cast<unsigned>(w.size()) + seed;
                try_halos<std::uint8_t>(w, s);
                try_halos<float>(w, s + 1);
                try_halos<double>(w, s + 2);
                try_halos<std::complex<double>>(w, s + 3);
            }
        });
    }
}

// Faces of this size are announced, or read where they lie.
TEST_P(Neighbors, faces_of_large_blocks_travel_while_the_caller_computes) {
    run_ranks(2, GetParam(), [](const ProcessGroup& w) {
        constexpr std::int64_t size = watched ? 60 : 90;
        const DeviceMesh mesh("cpu", RankArray::of({2}, {w.global_rank(0), w.global_rank(1)}), {.world = w});
        const auto cell = [](int rank, std::int64_t i) { return static_cast<double>(rank * 10'000'000 + i); };
        for (int dim = 0; dim < 3; ++dim) {
            std::vector<double> block(static_cast<std::size_t>(size * size * size));
            for (std::size_t i = 0; i < block.size(); ++i) block[i] = cell(w.rank(), std::int64_t(i));
            Work work = async::exchange_halos(view(block.data(), {size, size, size}), mesh,
                                              {{.dim = dim, .width = {2, 1}, .periodic = true}});
            for (int i = 0; i < 1000; ++i) (void)work.is_completed();
            work.wait();
            const std::int64_t strides[] = {size * size, size, 1};
            for (std::int64_t i = 0; i < size * size * size; ++i) {
                const std::int64_t at = i / strides[dim] % size;
                double expected = cell(w.rank(), i);
                if (at < 2) expected = cell(1 - w.rank(), i + (size - 3) * strides[dim]);
                if (at == size - 1) expected = cell(1 - w.rank(), i - (size - 3) * strides[dim]);
                ASSERT_EQ(block[static_cast<std::size_t>(i)], expected) << "dimension " << dim << ", element " << i;
            }
        }
    });
}

TEST_P(Neighbors, exchanges_under_way_at_once_match_neither_each_other_nor_messages_of_the_program) {
    run_ranks(3, GetParam(), [](const ProcessGroup& w) {
        const int me = w.rank(), next = (me + 1) % 3, before = (me + 2) % 3;
        const DeviceMesh mesh("cpu", RankArray::of({3}, w.ranks()), {.world = w});
        const ProcessGroup line = mesh.get_group();
        std::vector<int> a{-1, me, -1}, b{-1, 10 + me, -1}, sent{100 + me}, got{-1};
        Work receive = irecv(got, {.tag = 0, .group = line, .group_src = before});
        std::vector<Work> works{async::exchange_halos(a, mesh, {{.periodic = true}}),
                                async::exchange_halos(b, mesh, {{.periodic = true}})};
        works.push_back(isend(sent, line.global_rank(next), {.tag = 0, .group = line}));
        works.push_back(receive);
        wait_all(works);
        EXPECT_EQ(a, (std::vector{before, me, next}));
        EXPECT_EQ(b, (std::vector{10 + before, 10 + me, 10 + next}));
        EXPECT_EQ(got[0], 100 + before);
        EXPECT_EQ(works[0].result().size(), 1U);
    });
}

TEST_P(Neighbors, a_rank_outside_the_mesh_exchanges_nothing) {
    run_ranks(3, GetParam(), [](const ProcessGroup& w) {
        const DeviceMesh mesh("cpu", RankArray::of({2}, {w.global_rank(2), w.global_rank(0)}), {.world = w});
        std::vector<int> row{-1, w.rank(), -1};
        exchange_halos(row, mesh, {{}});
        const MeshNeighbors beside = mesh_neighbors(mesh);
        if (w.rank() == 1) {
            EXPECT_EQ(row, (std::vector{-1, 1, -1}));
            EXPECT_FALSE(async::exchange_halos(row, mesh, {{}}));
            EXPECT_THROW((void)plan::exchange_halos(row, mesh, {{}}), InvalidArgument);
            EXPECT_EQ(beside, (MeshNeighbors{no_rank, no_rank}));
        } else if (w.rank() == 2) {
            async::exchange_halos(row, mesh, {{}}).wait();
            EXPECT_EQ(row, (std::vector{-1, 2, 0}));
            EXPECT_EQ(beside, (MeshNeighbors{no_rank, w.global_rank(0)}));
        } else {
            async::exchange_halos(row, mesh, {{}}).wait();
            EXPECT_EQ(row, (std::vector{2, 0, -1}));
            EXPECT_EQ(beside, (MeshNeighbors{w.global_rank(2), no_rank}));
        }
    });
}

TEST_P(Neighbors, have_coordinates_next_to_each_other) {
    run_ranks(4, GetParam(), [](const ProcessGroup& w) {
        const DeviceMesh mesh("cpu", RankArray::of({2, 2}, w.ranks()), {.dim_names = {"y", "x"}, .world = w});
        const int me = w.rank();
        EXPECT_EQ(mesh_neighbors(mesh, "x"),
                  (MeshNeighbors{me % 2 == 1 ? me - 1 : no_rank, me % 2 == 0 ? me + 1 : no_rank}));
        EXPECT_EQ(mesh_neighbors(mesh, "y", {.periodic = true}), (MeshNeighbors{me ^ 2, me ^ 2}));
        EXPECT_EQ(mesh_neighbors(mesh, 0, {.periodic = true, .distance = 2}), (MeshNeighbors{me, me}));
        EXPECT_EQ(mesh_neighbors(mesh, 1, {.distance = 2}), (MeshNeighbors{}));
        EXPECT_THROW((void)mesh_neighbors(mesh, 1, {.distance = 0}), InvalidArgument);
    });
}

TEST(NeighborShapes, are_as_near_to_a_cube_as_the_number_of_ranks_allows) {
    EXPECT_EQ(balanced_mesh_shape(12, {0, 0}), (Ranks{4, 3}));
    EXPECT_EQ(balanced_mesh_shape(12, {0, 2}), (Ranks{6, 2}));
    EXPECT_EQ(balanced_mesh_shape(24, {0, 0, 0}), (Ranks{4, 3, 2}));
    EXPECT_EQ(balanced_mesh_shape(7, {0, 0, 0}), (Ranks{7, 1, 1}));
    EXPECT_EQ(balanced_mesh_shape(6, {3, 0, 1}), (Ranks{3, 2, 1}));
    EXPECT_EQ(balanced_mesh_shape(6, {3, 2}), (Ranks{3, 2}));
    for (const auto& wrong : {Ranks{}, Ranks{5, 0}, Ranks{3, 3}, Ranks{-1, 0}})
        EXPECT_THROW((void)balanced_mesh_shape(6, wrong), InvalidArgument);
    EXPECT_THROW((void)balanced_mesh_shape(0, {0}), InvalidArgument);
}

// ---- Graphs

/// Messages from each rank to each rank, by their lengths; equal on all ranks.
std::vector<std::vector<std::vector<int>>> random_graph(unsigned seed, int ranks) {
    std::mt19937 random(seed);
    const auto draw = [&](int high) { return std::uniform_int_distribution<int>(0, high)(random); };
    const auto size = static_cast<std::size_t>(ranks);
    std::vector sizes(size, std::vector<std::vector<int>>(size));
    for (auto& row : sizes) {
        for (auto& list : row) {
            for (int left = std::max(0, draw(5) - 2); left > 0; --left)
                list.push_back(draw(6) == 0 ? 40'000 + draw(100) : draw(3) * draw(50));
        }
    }
    return sizes;
}

TEST_P(Neighbors, of_random_graphs_get_what_their_sources_sent) {
    for (const int ranks : {1, 3, 4}) {
        run_ranks(ranks, GetParam(), [](const ProcessGroup& w) {
            for (unsigned seed = 0; seed < (watched ? 4U : 12U); ++seed) {
                const auto sizes = random_graph(seed, w.size());
                const auto me = static_cast<std::size_t>(w.rank());
                Ranks sources, destinations;
                std::vector<std::vector<int>> inputs, outputs, expected;
                const auto value = [](std::size_t from, std::size_t to, std::size_t k, int i) {
                    return static_cast<int>(from * 1'000'000 + to * 100'000 + k * 10'000) + i;
                };
                const auto message = [&](std::size_t from, std::size_t to, std::size_t k) {
                    std::vector<int> data(static_cast<std::size_t>(sizes[from][to][k]));
                    for (std::size_t i = 0; i < data.size(); ++i) data[i] = value(from, to, k, static_cast<int>(i));
                    return data;
                };
                // Receives are listed from the last rank on; the k-th message of a pair stays the k-th.
                for (std::size_t r = 0; r < sizes.size(); ++r) {
                    const std::size_t back = sizes.size() - 1 - r;
                    for (std::size_t k = 0; k < sizes[me][r].size(); ++k) {
                        destinations.push_back(w.global_rank(static_cast<int>(r)));
                        inputs.push_back(message(me, r, k));
                    }
                    for (std::size_t k = 0; k < sizes[back][me].size(); ++k) {
                        sources.push_back(w.global_rank(static_cast<int>(back)));
                        expected.push_back(message(back, me, k));
                        outputs.emplace_back(expected.back().size(), -1);
                    }
                    if (r == 1) {  // no rank
                        destinations.push_back(no_rank);
                        inputs.emplace_back(3);
                        sources.push_back(no_rank);
                        expected.emplace_back(2, -1);
                        outputs.emplace_back(2, -1);
                    }
                }
                const NeighborGraph graph(sources, destinations, {.group = w});
                EXPECT_EQ(graph.sources(), sources);
                EXPECT_EQ(graph.group(), w);
                const TensorList to(outputs.begin(), outputs.end());
                const ConstTensorList from(inputs.begin(), inputs.end());
                Plan plan = plan::neighbor_all_to_all(to, from, graph);
                for (const CallForm form : call_forms) {
                    for (auto& output : outputs) std::ranges::fill(output, -1);
                    switch (form) {
                        case CallForm::blocking: neighbor_all_to_all(to, from, graph); break;
                        case CallForm::asynchronous: async::neighbor_all_to_all(to, from, graph).wait(); break;
                        case CallForm::planned: plan.run(); break;
                        case CallForm::planned_start: plan.start().wait(); break;
                    }
                    ASSERT_EQ(outputs, expected) << "seed " << seed << ", form " << static_cast<int>(form);
                }
                // Each rank sends one tensor of its own length.
                const auto length = [](int rank) { return static_cast<std::size_t>(rank % 3 * 20); };
                const std::vector<int> own(length(w.rank()), w.rank());
                std::vector<std::vector<int>> all, gathered;
                for (const int source : sources) {
                    const bool none = source == no_rank;
                    gathered.push_back(none ? std::vector{-1}
                                            : std::vector<int>(length(w.group_rank(source)), w.group_rank(source)));
                    all.emplace_back(gathered.back().size(), -1);
                }
                neighbor_all_gather(TensorList(all.begin(), all.end()), own, graph);
                ASSERT_EQ(all, gathered);
                async::neighbor_all_gather(TensorList(all.begin(), all.end()), own, graph).wait();
                plan::neighbor_all_gather(TensorList(all.begin(), all.end()), own, graph).run();
                ASSERT_EQ(all, gathered);
            }
        });
    }
}

TEST_P(Neighbors, of_two_graphs_may_be_called_in_any_order) {
    run_ranks(2, GetParam(), [](const ProcessGroup& w) {
        const int other = w.global_rank(1 - w.rank());
        const NeighborGraph a({other}, {other}, {.group = w}), b({other}, {other}, {.group = w});
        std::vector<int> x{w.rank()}, y{10 + w.rank()}, from_a{-1}, from_b{-1};
        Work first =
            w.rank() == 0 ? async::neighbor_all_to_all({from_a}, {x}, a) : async::neighbor_all_to_all({from_b}, {y}, b);
        Work second =
            w.rank() == 0 ? async::neighbor_all_to_all({from_b}, {y}, b) : async::neighbor_all_to_all({from_a}, {x}, a);
        wait_all({first, second});
        EXPECT_EQ(from_a[0], 1 - w.rank());
        EXPECT_EQ(from_b[0], 11 - w.rank());
    });
}

// ---- Misuses

TEST_P(Neighbors, that_disagree_about_the_graph_are_all_told) {
    run_ranks(3, GetParam(), [](const ProcessGroup& w) {
        const int zero = w.global_rank(0), one = w.global_rank(1);
        const Ranks destinations = w.rank() == 0 ? Ranks{one, one} : Ranks{};
        const Ranks sources = w.rank() == 1 ? Ranks{zero} : Ranks{};
        const std::string text =
            message_of<CollectiveMismatch>([&] { NeighborGraph(sources, destinations, {.group = w}); });
        expect_words(text, "rank 0 lists rank 1 2 times as a destination, but rank 1 lists rank 0 once as a source");
        const NeighborGraph right(w.rank() == 1 ? Ranks{zero} : Ranks{}, w.rank() == 0 ? Ranks{one} : Ranks{},
                                  {.group = w});  // the group still works
        std::vector<int> x{7};
        if (w.rank() == 0) neighbor_all_gather({}, x, right);
        if (w.rank() == 1) {
            x[0] = 0;
            neighbor_all_gather({x}, {}, right);
            EXPECT_EQ(x[0], 7);
        }
        barrier({.group = w});
    });
}

/// Both ranks of a job make a call, each in its own way; each gets CollectiveMismatch with these words.
void expect_told(How how, const std::function<void(const ProcessGroup&)>& call, const std::string& words) {
    run_ranks(2, how,
              [&](const ProcessGroup& w) {
                  expect_words(message_of<CollectiveMismatch>([&] {
                                   call(w);
                                   barrier({.group = w});  // the other rank may have noticed first
                               }),
                               words);
              },
              {.leave = false});
}

TEST_P(Neighbors, that_disagree_about_a_message_are_all_told_both_sides) {
    const auto halos = [](const std::function<void(const DeviceMesh&, int)>& call) {
        return [call](const ProcessGroup& w) {
            call(DeviceMesh("cpu", RankArray::of({2}, w.ranks()), {.world = w}), w.rank());
        };
    };
    expect_told(GetParam(), halos([](const DeviceMesh& mesh, int rank) {
                    std::vector<float> row(9);
                    exchange_halos(row, mesh, {{.width = {1, rank}}});
                }),
                "widths 1 and 1, not periodic, a face of float32 × 1");
    expect_told(GetParam(), halos([](const DeviceMesh& mesh, int rank) {
                    std::vector<float> row(9);
                    exchange_halos(row, mesh, {{.periodic = rank == 0}});
                }),
                "widths 1 and 1, periodic");
    expect_told(GetParam(), halos([](const DeviceMesh& mesh, int rank) {
                    std::vector<float> a(9);
                    std::vector<double> b(9);
                    async::exchange_halos(rank == 0 ? TensorView(a) : TensorView(b), mesh, {{}}).wait();
                }),
                "a face of float64 × 1");
    expect_told(GetParam(), halos([](const DeviceMesh& mesh, int rank) {
                    std::vector<float> a(81);
                    exchange_halos(view(a.data(), {9, 3 + rank * 3}), mesh, {{.dim = 0}});
                }),
                "a face of float32 × 6");
    expect_told(
        GetParam(),
        [](const ProcessGroup& w) {
            const int other = w.global_rank(1 - w.rank());
            const NeighborGraph graph({other}, {other}, {.group = w});
            std::vector<int> in(3), out(3);
            if (w.rank() == 0)
                neighbor_all_gather({out}, in, graph);
            else
                neighbor_all_to_all({out}, {in}, graph);
        },
        "neighbor_all_gather, a message of int32 × 3");
}

// Neither would wait for the other for ever, but corners would hold values of before.
TEST_P(Neighbors, that_list_halos_in_another_order_are_all_told) {
    const auto called = [](const ProcessGroup& w) {
        const DeviceMesh mesh("cpu", RankArray::of({2, 2}, w.ranks()), {.world = w});
        std::vector<float> block(16);
        std::vector<Halo> halos{{.dim = 0}, {.dim = 1}};
        exchange_halos(view(block.data(), {4, 4}), mesh, halos);
        if (w.rank() == 3) std::ranges::reverse(halos);
        exchange_halos(view(block.data(), {4, 4}), mesh, halos);
        barrier({.group = w});
    };
    run_ranks(4, GetParam(),
              [&](const ProcessGroup& w) {
                  expect_words(message_of<CollectiveMismatch>([&] { called(w); }), "of the tensor, after dimension");
              },
              {.leave = false});
}

TEST_P(Neighbors, get_invalid_argument_before_anything_is_sent) {
    run_ranks(2, GetParam(), [](const ProcessGroup& w) {
        const DeviceMesh mesh("cpu", RankArray::of({2}, w.ranks()), {.world = w});
        std::vector<float> block(12);
        const auto refused = [&](const std::vector<Halo>& halos, const std::string& words) {
            expect_words(message_of<InvalidArgument>([&] {
                             exchange_halos(view(block.data(), {4, 3}), mesh, halos);
                         }),
                         words);
        };
        refused({}, "the list of halos is empty");
        refused({{.dim = 2}}, "exchange_halos: dim 2: expected 0 to 1, a dimension of float32[4, 3]");
        refused({{.dim = -1}}, "dim -1: expected 0 to 1");
        refused({{.dim = 1}, {.dim = 1}}, "dim 1 is listed twice");
        refused({{.dim = 1, .width = {-1, 1}}}, "widths -1 and 1: expected zero or more");
        refused({{.dim = 0, .width = 2}},
                "view float32[4, 3] has 4 cells along dimension 0: expected at least 6, for halos of 2 and 2 cells and "
                "2 inner ones");
        refused({{.dim = 0, .width = {5, 0}}}, "has 4 cells along dimension 0: expected at least 10");
        refused({{.dim = 0, .mesh_dim = "x"}}, "dimension \"x\": expected one of a 1-D mesh");
        refused({{.dim = 0, .mesh_dim = 1}}, "dimension 1: expected 0 to 0 of a 1-D mesh");
        expect_words(
            message_of<InvalidArgument>([&] {
                exchange_halos(TensorView(block.data(), {12}, float32, {}, {Device::Type::cuda, 0}), mesh, {{}});
            }),
            "view is on cuda:0: expected host memory");
        expect_words(message_of<InvalidArgument>([&] {
                         const Plan plan = plan::exchange_halos(view(block.data(), {4, 3}), mesh, {{.dim = 0}});
                         (void)plan.source_rank();
                     }),
                     "this plan has several messages");
        const int other = w.global_rank(1 - w.rank());
        expect_words(message_of<InvalidArgument>([&] { NeighborGraph({17}, {}, {.group = w}); }), "source 17");
        const NeighborGraph graph({other, w.global_rank(w.rank())}, {other, w.global_rank(w.rank())}, {.group = w});
        std::vector<int> a(2), b(2), c(3);
        expect_words(message_of<InvalidArgument>([&] {
                         neighbor_all_to_all({a}, {b, b}, graph);
                     }),
                     "output_list has 1 tensors: expected 2, one for each of the graph's sources");
        expect_words(message_of<InvalidArgument>([&] {
                         neighbor_all_to_all({a, b}, {b}, graph);
                     }),
                     "input_list has 1 tensors: expected 2, one for each of the graph's destinations");
        expect_words(
            message_of<InvalidArgument>([&] {
                neighbor_all_to_all({a, c}, {b, b}, graph);
            }),
            "destination 1 and source 1 are this rank itself, but the input is int32[2] and the output int32[3]");
        expect_words(message_of<InvalidArgument>([&] { neighbor_all_to_all({}, {}, {}); }), "graph is empty");
        barrier({.group = w});
    });
}

// A rank that does not come is named after the time limit.
TEST_P(Neighbors, that_do_not_come_are_named) {
    run_ranks(2, GetParam(),
              [](const ProcessGroup& w) {
                  const DeviceMesh mesh("cpu", RankArray::of({2}, w.ranks()), {.world = w});
                  (void)mesh.get_group();
                  std::vector<int> row{0, 1, 2};
                  if (w.rank() == 0)
                      expect_words(message_of<Timeout>([&] { exchange_halos(row, mesh, {{}}, {.timeout = 200ms}); }),
                                   "exchange_halos in group");
                  else
                      EXPECT_THROW(barrier({.group = w, .timeout = 20s}), DistError);
              },
              {.leave = false});
}

}  // namespace
}  // namespace tutti::test
