// Graphs: captured once, proved, optimised, replayed on real ranks.
#include "conformance/world.hpp"
#include "record/dump.hpp"

#include <tutti/graph.hpp>
#include <tutti/symmetric.hpp>

#include <algorithm>
#include <filesystem>
#include <numeric>

namespace tutti::test {
namespace {

using namespace std::chrono_literals;
using graph::Executable;
using graph::Graph;
using graph::Kind;

class Graphs : public ::testing::TestWithParam<How> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Graphs, ::testing::ValuesIn(every_way()),
                         [](const auto& instance) { return to_string(instance.param); });

using Values = std::vector<float>;
Values values(const ProcessGroup& g, int round, std::size_t count) {
    Values v(count);
    for (std::size_t k = 0; k < count; ++k)
        v[k] = static_cast<float>(100 * g.rank() + 10 * round + static_cast<int>(k % 7));
    return v;
}
std::vector<Kind> kinds_of(const Graph& graph) {
    std::vector<Kind> kinds;
    for (const auto& node : graph.nodes) kinds.push_back(node.kind);
    return kinds;
}

/// The buffers of a program with every collective and messages, and the program.
struct Step {
    Step(const ProcessGroup& group, std::size_t elements)
        : g(group), n(static_cast<std::size_t>(g.size())), me(static_cast<std::size_t>(g.rank())), count(elements) {
        for (Values* v :
             {&x, &y, &z, &root_only, &part, &own, &sent, &received, &scattered, &up_to_me, &before_me, &from_root})
            v->resize(count);
        for (Values* v : {&into, &wide, &all, &traded, &uneven}) v->resize(count * n);
        strided.resize(2 * count);
    }

    void fill(int round) {
        for (Values* v : {&x, &y, &z, &root_only, &part, &wide, &sent, &strided, &up_to_me, &before_me})
            std::ranges::copy(values(g, round++, v->size()), v->begin());
        for (Values* v : {&into, &own, &all, &traded, &received, &scattered, &uneven, &from_root})
            std::ranges::fill(*v, -1.F);
    }
    void run() {
        const int right = (g.rank() + 1) % g.size(), left = (g.rank() + g.size() - 1) % g.size();
        TensorList gather_list;
        ConstTensorList scatter_list;
        for (std::size_t r = 0; r < n && me == 1; ++r) {
            gather_list.emplace_back(std::span(all).subspan(r * count, count));
            scatter_list.emplace_back(std::span<const float>(wide).subspan(r * count, count));
        }
        graph::compute({x, y}, {y}, [this] { std::ranges::transform(x, y, y.begin(), std::plus<>()); });
        all_reduce(x, {.group = g});
        broadcast(y, {.group = g, .group_src = 1});
        all_reduce(z, {.op = ReduceOp::max, .group = g});
        reduce(root_only, {.group = g, .group_dst = 1});
        all_gather_into_tensor(into, part, {.group = g});
        graph::compute({into}, {into},
                       [this] { std::ranges::transform(into, into.begin(), [](float v) { return v + 1; }); });
        reduce_scatter_tensor(own, into, {.group = g});
        gather(part, gather_list, {.group = g, .group_dst = 1});
        scatter(scattered, scatter_list, {.group = g, .group_src = 1});
        // Rank r gives r elements fewer than it might; they lie apart, and come back as they are.
        const auto c = static_cast<std::int64_t>(count);
        const std::span mine = std::span(part).first(count - std::min(me, count));
        const std::span again = std::span(from_root).first(mine.size());
        std::vector<std::int64_t> counts, offsets;
        for (std::int64_t r = 0; r < g.size(); ++r) {
            counts.push_back(c - std::min(r, c));
            offsets.push_back(r * c);
        }
        gather_v(mine, uneven, {.receive_counts = counts, .receive_offsets = offsets, .group = g, .group_dst = 1});
        scatter_v(again, uneven, {.send_counts = counts, .send_offsets = offsets, .group = g, .group_src = 1});
        Work exchange = async::all_to_all_single(traded, wide, {.group = g});
        Work out = isend(sent, g.global_rank(right), {.tag = 5, .group = g});
        recv(received, {.src = g.global_rank(left), .tag = 5, .group = g});
        out.wait();
        exchange.wait();
        all_reduce(TensorView(strided.data(), {static_cast<std::int64_t>(count)}, float32, {2}), {.group = g});
        all_reduce(scattered, {.op = ReduceOp::premul_sum(0.5), .group = g});
        scan(up_to_me, {.group = g});
        exscan(before_me, {.op = ReduceOp::max, .group = g});
        barrier({.group = g});
    }
    std::vector<Values> results() const {
        return {x,   y,      z,    root_only, part,      into,    wide,     own,       uneven,
                all, traded, sent, received,  scattered, strided, up_to_me, before_me, from_root};
    }

    ProcessGroup g;
    std::size_t n, me, count;
    Values x, y, z, root_only, part, into, wide, own, all, traded, sent, received, scattered, strided, up_to_me,
        before_me, uneven, from_root;
};

TEST_P(Graphs, replay_what_the_program_does) {
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        for (const std::size_t count : {std::size_t{2}, std::size_t{30'000}}) {
            Step step(g, count);
            step.fill(0);
            const std::vector<Values> before = step.results();
            const Graph captured = graph::capture([&] { step.run(); });
            EXPECT_EQ(step.results(), before) << "a capture moves nothing";
            EXPECT_FALSE(captured.changed());
            Executable replayed(captured), optimised(graph::optimise(captured, {.group = g, .overlap_us = 0}).graph);
            for (int round = 1; round < 4; ++round) {
                step.fill(round);
                step.run();
                const std::vector<Values> expected = step.results();
                for (Executable* one : {&replayed, &optimised}) {
                    step.fill(round);
                    one->replay();
                    EXPECT_EQ(step.results(), expected) << one->graph().to_text();
                }
            }
        }
    });
}

TEST_P(Graphs, that_nobody_has_changed_meet_plain_calls) {
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        for (const std::size_t count : {std::size_t{2}, std::size_t{30'000}}) {
            Step step(g, count);
            Executable replayed(graph::capture([&] { step.run(); }));
            for (int round = 0; round < 6; ++round) {
                step.fill(round);
                step.run();
                const std::vector<Values> expected = step.results();
                step.fill(round);
                (round + g.rank()) % 3 == 0 ? step.run() : replayed.replay();
                EXPECT_EQ(step.results(), expected);
            }
        }
    });
}

TEST_P(Graphs, keep_calls_with_an_operator_of_the_caller_as_they_are) {
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        using Pair = ValueIndex<std::int32_t, std::int32_t>;
        for (const std::size_t count : {std::size_t{2}, std::size_t{30'000}}) {
            std::vector<Pair> x(count), y(count);
            std::vector<std::int64_t> z(count), w(count);
            Values v(count);
            const graph::Optimised optimised = graph::optimise(
                graph::capture([&] {
                    all_reduce(items(x), {.op = ReduceOp::min_loc<std::int32_t, std::int32_t>(), .group = g});
                    all_reduce(items(y), {.op = ReduceOp::max_loc<std::int32_t, std::int32_t>(), .group = g});
                    using Long = std::int64_t;
                    all_reduce(
                        z, {.op = ReduceOp::of([](Long a, Long) { return a; }, {.commutative = false}), .group = g});
                    all_reduce(
                        w, {.op = ReduceOp::of([](Long, Long b) { return b; }, {.commutative = false}), .group = g});
                    for (int i = 0; i < 2; ++i) all_reduce(v, {.group = g});
                }),
                {.group = g, .bucket_bytes = 1 << 20});
            const std::string text = optimised.graph.to_text();
            EXPECT_EQ(Graph::from_text(text).to_text(), text);
            Executable step(optimised.graph);
            for (int round = 0; round < 3; ++round) {
                const auto me = static_cast<std::int32_t>(g.rank());
                std::ranges::fill(x, Pair{me, me});
                std::ranges::fill(y, Pair{me, me});
                std::ranges::fill(z, me + 1);
                std::ranges::fill(w, me + 2);
                std::ranges::fill(v, 1.F);
                step.replay();
                EXPECT_EQ(x, std::vector<Pair>(count, {0, 0}));
                EXPECT_EQ(y, std::vector<Pair>(count, {2, 2}));
                EXPECT_EQ(v, Values(count, 9.F));
                EXPECT_EQ(w, std::vector<std::int64_t>(count, 4));
                EXPECT_EQ(z, std::vector<std::int64_t>(count, 1));
            }
        }
    });
}

TEST_P(Graphs, put_small_calls_together) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        std::vector<Values> x(20, Values(16));
        const Graph captured = graph::capture([&] {
            for (Values& each : x) all_reduce(each, {.group = g});
        });
        const graph::Optimised optimised = graph::optimise(captured, {.group = g, .bucket_bytes = 1 << 20});
        EXPECT_EQ(kinds_of(optimised.graph), std::vector{Kind::all_reduce}) << optimised.to_text();
        EXPECT_TRUE(has(optimised.to_text(), "20 calls became one: all_reduce of float32 × 320 in 20 pieces, sum"))
            << optimised.to_text();
        Executable step(optimised.graph);
        for (int round = 0; round < 3; ++round) {
            for (std::size_t i = 0; i < x.size(); ++i)
                std::ranges::copy(values(g, round + static_cast<int>(i), 16), x[i].begin());
            step.replay();
            for (std::size_t i = 0; i < x.size(); ++i) {
                for (std::size_t k = 0; k < 16; ++k)
                    ASSERT_EQ(x[i][k], static_cast<float>(100 + 20 * (round + static_cast<int>(i)) +
                                                          2 * static_cast<int>(k % 7)));
            }
        }
    });
}

TEST_P(Graphs, put_blocks_together_and_pairs_into_one) {
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        const std::size_t n = 3, count = 8;
        Values a(count, static_cast<float>(g.rank())), b(count, static_cast<float>(10 + g.rank())), all_a(n * count),
            all_b(n * count);
        Values wide(n * count), own(count), back(n * count), other(n * count), own_other(count);
        const auto program = [&] {
            all_gather_into_tensor(all_a, a, {.group = g});
            all_gather_into_tensor(all_b, b, {.group = g});
            reduce_scatter_tensor(own, wide, {.group = g});
            all_gather_into_tensor(back, own, {.group = g});
            reduce_scatter_tensor(own_other, other, {.group = g});
            broadcast(back, {.group = g, .group_src = 2});
        };
        const auto fill = [&] {
            for (std::size_t k = 0; k < n * count; ++k)
                wide[k] = other[k] = static_cast<float>(g.rank()) + static_cast<float>(k);
            for (Values* v : {&all_a, &all_b, &own, &back, &own_other}) std::ranges::fill(*v, -1.F);
        };
        const auto results = [&] { return std::vector{all_a, all_b, own, back, wide, other, own_other}; };
        const graph::Optimised optimised =
            graph::optimise(graph::capture(program), {.group = g, .bucket_bytes = 1 << 20});
        EXPECT_EQ(optimised.graph.nodes.size(), 4U) << optimised.graph.to_text();
        Executable step(optimised.graph);
        fill();
        program();
        const auto expected = results();
        fill();
        step.replay();
        EXPECT_EQ(results(), expected) << optimised.to_text() << optimised.graph.to_text();
    });
}

TEST_P(Graphs, run_on_other_buffers) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        Values x(16), y(16), other(16), third(16);
        const auto doubled = [](std::span<const ConstTensorView> reads, std::span<const TensorView> writes) {
            const auto* from = static_cast<const float*>(reads[0].data());
            auto* to = static_cast<float*>(writes[0].data());
            for (int k = 0; k < 16; ++k) to[k] = 2 * from[k];
        };
        Executable step(graph::capture([&] {
            graph::compute({x}, {y}, doubled);
            all_reduce(std::span(y).subspan(4), {.group = g});
            all_reduce(x, {.group = g});
        }));
        const auto check = [&](const Values& from, const Values& to) {
            for (std::size_t k = 0; k < 16; ++k) {
                ASSERT_EQ(from[k], 3.F);
                ASSERT_EQ(to[k], k < 4 ? 2.F * static_cast<float>(g.rank() + 1) : 6.F);
            }
        };
        for (Values* from : {&x, &other, &third, &x}) {
            std::ranges::fill(*from, static_cast<float>(g.rank() + 1));
            if (from != &x || third[0] != 0) step.bind(from == &other ? x : from == &third ? other : third, *from);
            step.replay();
            check(*from, y);
        }
        Values short_one(8), doubles(16);
        std::vector<double> wrong(16);
        EXPECT_THROW(step.bind(x, short_one), InvalidArgument);
        EXPECT_THROW(step.bind(x, wrong), InvalidArgument);
        EXPECT_THROW(step.bind(std::span(y).subspan(0, 8), short_one), InvalidArgument) << "a part of a node's";
        Executable fixed(graph::capture([&] { graph::compute({x}, {y}, [] {}); }));
        EXPECT_TRUE(has(message_of<InvalidArgument>([&] { fixed.bind(x, other); }),
                        "expected a function that takes its views"));
        fixed.replay();
    });
}

TEST_P(Graphs, bind_buckets_too) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        Values x(16), y(16), other(16);
        const Graph captured = graph::capture([&] {
            all_reduce(x, {.group = g});
            all_reduce(y, {.group = g});
        });
        Executable step(graph::optimise(captured, {.group = g, .bucket_bytes = 1 << 20}).graph);
        step.bind(y, other);
        std::ranges::fill(x, 1.F);
        std::ranges::fill(other, 2.F);
        step.replay();
        EXPECT_EQ(x, Values(16, 2.F));
        EXPECT_EQ(other, Values(16, 4.F));
        EXPECT_EQ(y, Values(16, 0.F));
    });
}

TEST_P(Graphs, that_are_alike_are_optimised_alone_and_bind_several_buffers_at_once) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        Values x(16), y(16), other(16), another(16), short_one(8);
        const Graph captured = graph::capture([&] {
            all_reduce(x, {.group = g});
            all_reduce(y, {.group = g});
            broadcast(x, {.group = g, .group_src = 1});
        });
        // Nobody is asked: rank 1 does it while rank 0 does something else.
        if (g.rank() == 0) barrier({.group = g});
        Executable step(graph::optimise(captured, {.alike = true, .bucket_bytes = 1 << 20}).graph);
        if (g.rank() == 1) barrier({.group = g});
        EXPECT_EQ(kinds_of(step.graph()), std::vector{Kind::all_reduce});
        const std::vector<graph::Binding> refused{{x, other}, {y, short_one}}, bindings{{x, other}, {y, another}};
        EXPECT_THROW(step.bind(refused), InvalidArgument);
        for (const bool bound : {false, true}) {
            if (bound) step.bind(bindings);
            for (Values* v : {&x, &other}) std::ranges::fill(*v, 1.F);
            for (Values* v : {&y, &another}) std::ranges::fill(*v, 2.F);
            step.replay();
            EXPECT_EQ(x, Values(16, bound ? 1.F : 2.F));
            EXPECT_EQ(another, Values(16, bound ? 4.F : 2.F));
            EXPECT_EQ(other, Values(16, bound ? 2.F : 1.F));
        }
    });
}

TEST_P(Graphs, overlap_long_calls_with_steps) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        Values x(100'000), y(16);
        int steps = 0;
        const Graph captured = graph::capture([&] {
            all_reduce(x, {.group = g});
            graph::compute({}, {y}, [&] { y[0] = static_cast<float>(++steps); }, {.name = "beside", .cost_us = 50});
            graph::compute({x, y}, {y}, [&] { y[1] = x.back(); }, {.name = "behind"});
        });
        const graph::Optimised optimised = graph::optimise(captured, {.group = g, .overlap_us = 0});
        EXPECT_EQ(kinds_of(optimised.graph), (std::vector{Kind::all_reduce, Kind::compute, Kind::wait, Kind::compute}));
        Executable step(optimised.graph);
        for (int round = 1; round < 4; ++round) {
            std::ranges::fill(x, static_cast<float>(g.rank() + round));
            step.replay();
            EXPECT_EQ(y[0], static_cast<float>(round));
            EXPECT_EQ(y[1], static_cast<float>(2 * round + 1));
        }
        // The other rank makes the plain call: the collective is as it was.
        std::ranges::fill(x, 1.F);
        if (g.rank() == 0)
            step.replay();
        else
            all_reduce(x, {.group = g});
        EXPECT_EQ(x.front(), 2.F);
    });
}

TEST_P(Graphs, of_other_passes_are_one_error_that_names_both_ranks) {
    run_ranks(
        2, GetParam(),
        [](const ProcessGroup& g) {
            std::vector<Values> x(4, Values(16));
            const Graph captured = graph::capture([&] {
                for (Values& each : x) all_reduce(each, {.group = g});
            });
            // Both exchange, then one goes on with larger buckets: two of two instead of one of four.
            const auto mine = graph::optimise(captured, {.group = g, .bucket_bytes = 128});
            const auto other = graph::optimise(captured, {.group = g, .bucket_bytes = 1 << 20});
            ASSERT_EQ(mine.graph.nodes.size(), 2U);
            Executable step(g.rank() == 0 ? mine.graph : other.graph);
            const std::string text = message_of<CollectiveMismatch>([&] {
                step.replay();
                step.replay();
            });
            EXPECT_TRUE(
                has(text,
                    "rank 0 called a graph that begins with all_reduce of float32 (digest of its collectives: ") ||
                has(text, "rank 1 called a graph that begins with all_reduce of float32 (digest of its collectives: "))
                << text;
        },
        {.timeout = patience(30s), .leave = false});
}

TEST_P(Graphs, with_passes_and_plain_calls_are_one_error) {
    run_ranks(
        2, GetParam(),
        [](const ProcessGroup& g) {
            Values x(16), y(16);
            const auto program = [&] {
                all_reduce(x, {.group = g});
                all_reduce(y, {.group = g});
            };
            Executable step(graph::optimise(graph::capture(program), {.group = g, .bucket_bytes = 1 << 20}).graph);
            const std::string text = message_of<CollectiveMismatch>([&] { g.rank() == 0 ? step.replay() : program(); });
            EXPECT_TRUE(has(text, "rank 0 called a graph that begins with all_reduce of float32")) << text;
            EXPECT_TRUE(has(text, "called all_reduce of float32 × 16, sum")) << text;
        },
        {.timeout = patience(30s), .leave = false});
}

TEST_P(Graphs, tell_who_reads_on_the_host_what_is_not_there_yet) {
    run_ranks(1, How::threads, [](const ProcessGroup& g) {
        Values x(1), y(1), free(1, 7.F);
        Tensor owned = zeros(float32, {1});
        const auto sites = [&](const std::function<void()>& read) {
            std::string text;
            (void)graph::capture([&] {
                all_reduce(x, {.group = g});
                all_reduce(owned.view(), {.group = g});
                try {
                    read();
                    ADD_FAILURE() << "no error";
                } catch (const graph::HostRead& error) {
                    text = error.what();
                    EXPECT_FALSE(error.read_at().empty());
                    EXPECT_FALSE(error.written_at().empty());
                    EXPECT_TRUE(has(text, error.written_at())) << text;
                }
            });
            return text;
        };
        const std::string text = sites([&] { (void)graph::item<float>(x); });
        EXPECT_TRUE(has(text, "item reads float32[1] at graphs_test.cpp:")) << text;
        EXPECT_TRUE(has(sites([&] { graph::check_host_read(x, "the log"); }), "the log reads float32[1] at"));
        EXPECT_TRUE(has(sites([&] { copy(y, x); }), "copy reads float32[1]"));
        EXPECT_TRUE(has(sites([&] { (void)owned.clone(); }), "clone reads"));
        EXPECT_TRUE(has(sites([&] {
                            ObjectList list(1);
                            all_gather_object(list, Object(owned), {.group = g});
                        }),
                        "an object reads float32[1]"));
        (void)graph::capture([&] {
            all_reduce(x, {.group = g});
            EXPECT_EQ(graph::item<float>(free), 7.F) << "nobody writes it";
        });
        EXPECT_EQ(graph::item<float>(x), 0.F) << "outside";
        EXPECT_THROW((void)graph::item<double>(x), InvalidArgument);
    });
}

TEST_P(Graphs, refuse_what_they_cannot_hold_and_leave_the_group_whole) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        Values x(4), y(4);
        Work late;
        const Graph captured = graph::capture([&] {
            EXPECT_TRUE(graph::is_capturing());
            EXPECT_THROW(Coalescing({.group = g}), InvalidArgument);
            EXPECT_THROW(all_reduce_coalesced({x, y}, {.group = g}), InvalidArgument);
            EXPECT_THROW(monitored_barrier({.group = g}), InvalidArgument);
            EXPECT_THROW((void)all_gather_object(3, CollectiveOptions{.group = g}), InvalidArgument);
            EXPECT_THROW((void)graph::capture([] {}), InvalidArgument);
            EXPECT_THROW(recv(x, {.group = g}), InvalidArgument) << "from any rank";
            EXPECT_THROW(graph::compute({TensorView(x.data(), {2}, float32, {2})}, {}, [] {}), InvalidArgument);
            late = async::all_reduce(x, {.group = g});
            EXPECT_THROW((void)late.is_completed(), InvalidArgument);
            EXPECT_THROW((void)late.result(), InvalidArgument);
        });
        EXPECT_FALSE(graph::is_capturing());
        EXPECT_EQ(kinds_of(captured), (std::vector{Kind::all_reduce, Kind::wait})) << "waited for at the end";
        EXPECT_THROW(late.wait(), InvalidArgument) << "its capture has ended";
        EXPECT_THROW(graph::temporary(x), InvalidArgument);
        EXPECT_THROW(Executable{Graph::from_text(captured.to_text())}, InvalidArgument);
        EXPECT_THROW((void)graph::capture([&] {
                         all_reduce(x, {.group = g});
                         throw std::runtime_error("the program's own");
                     }),
                     std::runtime_error);
        EXPECT_FALSE(graph::is_capturing());
        std::ranges::fill(x, 1.F);
        all_reduce(x, {.group = g});
        EXPECT_EQ(x, Values(4, 2.F));
        int called = 0;
        graph::compute({x}, {}, [&] { ++called; });
        EXPECT_EQ(called, 1) << "outside it is called at once";
    });
}

TEST_P(Graphs, remember_where_their_calls_were_made) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        Values x(4);
        Plan planned = plan::all_reduce(x, {.group = g});
        const Graph captured = graph::capture([&] {
            graph::compute({}, {x}, [&] { std::ranges::fill(x, 1.F); }, {.name = "fill"});
            planned.run();
            planned.start().wait();
        });
        ASSERT_EQ(kinds_of(captured), (std::vector{Kind::compute, Kind::all_reduce, Kind::all_reduce, Kind::wait}));
        EXPECT_TRUE(has(captured.nodes[0].site, "graphs_test.cpp:")) << captured.to_text();
        EXPECT_FALSE(captured.nodes[1].site.empty());
        Executable step(captured);
        step.replay();
        EXPECT_EQ(x, Values(4, 4.F));
        planned.run();
        EXPECT_EQ(x, Values(4, 8.F));
    });
}

TEST_P(Graphs, leave_the_times_of_their_replays_in_dumps) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        Values x(4);
        {
            Executable step(graph::capture([&] {
                graph::compute({}, {x}, [&] { std::ranges::fill(x, 1.F); }, {.name = "fill"});
                all_reduce(x, {.group = g});
            }));
            for (int i = 0; i < 3; ++i) step.replay();
        }
        const auto folder = std::filesystem::path(::testing::TempDir()) /
                            ("graph-trace-" + std::to_string(::getpid()) + "-" + std::to_string(g.rank()));
        int seen = 0;
        for (const std::string& file : dump_trace(folder.string(), "a test")) {
            const record::Dump dump = record::read_dump(file);
            if (dump.rank != g.rank() || dump.group != g.name() || dump.entries.size() != 3) continue;
            ASSERT_FALSE(dump.graphs.empty());
            const record::ReplayedGraph& replayed = dump.graphs.back();
            ASSERT_EQ(replayed.replays.size(), 3U);
            ASSERT_EQ(replayed.nodes.size(), 2U);
            EXPECT_TRUE(has(replayed.nodes[0], "\"fill\"")) << replayed.nodes[0];
            constexpr std::int64_t moment_ns = 10'000;  // CPUs do not keep the order of looks at their clocks
            for (std::size_t i = 0; i < 3; ++i) {       // the call of a replay runs in its node
                const record::Replay& replay = replayed.replays[i];
                ASSERT_EQ(replay.began_ns.size(), 2U);
                EXPECT_LE(replay.began_ns[1], dump.entries[i].enqueued_ns + moment_ns);
                EXPECT_LE(dump.entries[i].enqueued_ns, replay.ended_ns + moment_ns);
            }
            ++seen;
        }
        EXPECT_EQ(seen, 1);
        std::filesystem::remove_all(folder);
        barrier({.group = g});
    });
}

}  // namespace
}  // namespace tutti::test
