// graph_bench: replays of captured graphs beside the plain calls. One rank of a job that `tutti run` starts; rank 0
// prints and writes the figures.
//
// Threads: one, and the group's own.
#include "bench/collectives/sampling.hpp"
#include "bench/rank_program.hpp"

#include <tutti/tutti.hpp>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
namespace graph = tutti::graph;

constexpr std::size_t calls = 50, floats = 16;

struct Options {
    int rounds = 9;
    int repeats = 400;
    bool layers = false;
    std::string json;
};

double us_since(Clock::time_point start) {
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}
double median(std::vector<double> values) {
    std::ranges::sort(values);
    return tutti::bench::quantile(values, 0.5);
}

struct Case {
    std::string name;
    std::function<void()> once;
    std::vector<double> times{};
};

// The cases by turns, so that whatever else the machine does meets them all.
void measure(std::vector<Case>& cases, const Options& options) {
    for (int round = 0; round <= options.rounds; ++round) {
        for (Case& c : cases) {
            tutti::barrier();
            const auto start = Clock::now();
            for (int i = 0; i < options.repeats; ++i) c.once();
            if (round > 0) c.times.push_back(us_since(start) / options.repeats);
        }
    }
}

nlohmann::json chain(const char* work, bool independent, const Options& options) {
    std::vector<std::vector<float>> buffers(independent ? calls : 1, std::vector<float>(floats, 0.0F));
    const auto buffer = [&](std::size_t i) -> std::vector<float>& { return buffers[i % buffers.size()]; };
    const auto eager = [&] {
        for (std::size_t i = 0; i < calls; ++i) tutti::all_reduce(buffer(i));
    };
    std::vector<tutti::Plan> plans;
    for (std::size_t i = 0; i < calls; ++i) plans.push_back(tutti::plan::all_reduce(buffer(i)));
    const graph::Graph captured = graph::capture(eager);
    graph::Executable as_captured(captured);
    const graph::Optimised result = graph::optimise(captured);
    graph::Executable optimised(result.graph);

    std::vector<Case> cases{{"eager", eager},
                            {"planned",
                             [&] {
                                 for (tutti::Plan& plan : plans) plan.run();
                             }},
                            {"captured", [&] { as_captured.replay(); }},
                            {"optimised", [&] { optimised.replay(); }}};
    measure(cases, options);
    for (auto& values : buffers) std::ranges::fill(values, 1.0F);
    optimised.replay();
    const double factor = independent ? tutti::get_world_size() : 0;
    if (independent && buffers.back().back() != static_cast<float>(factor))
        throw std::runtime_error("replay: a wrong result");
    auto rows = nlohmann::json::array();
    const double base = median(cases.front().times);
    for (const Case& c : cases) {
        const double us = median(c.times);
        rows.push_back(
            {{"work", work}, {"case", c.name}, {"us", us}, {"ratio", us / base}, {"nodes", result.graph.nodes.size()}});
    }
    return rows;
}

nlohmann::json empty_steps(const Options& options) {
    constexpr std::size_t many = 1000;
    graph::Executable nothing(graph::capture([] {})), steps(graph::capture([] {
        for (std::size_t i = 0; i < many; ++i) graph::compute({}, {}, [] {});
    }));
    std::vector<Case> cases{{"none", [&] { nothing.replay(); }}, {"many", [&] { steps.replay(); }}};
    measure(cases, options);
    return {{"work", "empty"}, {"ns", 1000 * (median(cases[1].times) - median(cases[0].times)) / many}};
}

nlohmann::json instantiation() {
    std::vector<float> x(floats);
    const graph::Graph captured = graph::capture([&] {
        for (int i = 0; i < 1000; ++i) tutti::all_reduce(x);
    });
    const auto start = Clock::now();
    graph::Executable step(captured);
    return {{"work", "instantiate"}, {"us_per_node", us_since(start) / 1000}};
}

// As four ranks would capture it: 10,000 nodes each.
nlohmann::json proof() {
    std::vector<std::string> texts;
    std::vector<graph::Graph> graphs;
    for (int rank = 0; rank < 4; ++rank) {
        graph::Graph g;
        g.groups.push_back({.name = "world", .ranks = {0, 1, 2, 3}, .rank = rank});
        for (int i = 0; i < 5000; ++i) {
            const auto b = static_cast<std::uint32_t>(g.buffers.size());
            g.buffers.push_back(4096);
            graph::Node step, sum;
            step.id = 2 * i;
            step.pieces.push_back({{}, {{b, 0, 4096}}, 0, 2 * i});
            sum.kind = graph::Kind::all_reduce;
            sum.id = 2 * i + 1;
            sum.group = 0;
            sum.dtype = tutti::float32;
            sum.pieces.push_back({{{b, 0, 4096}}, {{b, 0, 4096}}, 0, 2 * i + 1});
            g.nodes.push_back(step);
            g.nodes.push_back(sum);
        }
        graphs.push_back(std::move(g));
    }
    const auto start = Clock::now();
    if (!graph::prove(graphs, graphs)) throw std::runtime_error("prove: a wrong result");
    return {{"work", "proof"}, {"seconds", us_since(start) / 1e6}};
}

/// So much arithmetic, in the core's own cache: `turns` products of two small matrices.
class Arithmetic {
 public:
    void run(std::size_t turns) {
        for (std::size_t turn = 0; turn < turns; ++turn) {
            for (std::size_t i = 0; i < side; ++i) {
                for (std::size_t k = 0; k < side; ++k) {
                    for (std::size_t j = 0; j < side; ++j) c_[i * side + j] += a_[i * side + k] * b_[k * side + j];
                }
            }
        }
        if (c_[turns % (side * side)] < 0) throw std::runtime_error("arithmetic: a wrong result");
    }
    /// How many turns take so long.
    std::size_t turns_in(double us) {
        constexpr std::size_t some = 2000;
        run(some);
        const auto start = Clock::now();
        run(some);
        return static_cast<std::size_t>(us * some / us_since(start)) + 1;
    }

 private:
    static constexpr std::size_t side = 16;
    std::vector<float> a_ = std::vector<float>(side * side, 1e-3F), b_ = a_, c_ = std::vector<float>(side * side);
};

int cpus() {
    cpu_set_t allowed;
    return ::sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
}

constexpr std::size_t layer_floats = 1 << 20;
constexpr int cores_of_a_rank = 2;  // one computes, one moves the data

/// Layers that compute for as long as their all_reduce takes, captured and optimised: the time of a replay to that of
/// the longer of both kinds of work alone. Where too few cores are there, only what the graph predicts.
nlohmann::json overlapped(const std::string& work, std::size_t layers, graph::OptimiseOptions optimise,
                          const Options& options) {
    const int cores = cores_of_a_rank * tutti::get_world_size();
    std::vector<std::vector<float>> x(layers, std::vector<float>(layer_floats)), y = x;
    std::vector<Case> alone{{"all_reduce", [&] { tutti::all_reduce(y.front()); }}};
    measure(alone, {options.rounds, 20});
    std::vector<double> us{median(alone.front().times)};
    tutti::broadcast(us, {.src = 0});
    Arithmetic arithmetic;
    constexpr std::int64_t rows = 64;
    const std::size_t turns = arithmetic.turns_in(us[0]) / rows + 1;
    const auto product = [&](std::span<const tutti::ConstTensorView>, std::span<const tutti::TensorView> writes) {
        arithmetic.run(turns * static_cast<std::size_t>(writes[0].shape()[0]));
    };
    const double predicted_us = tutti::default_group().predicted_us("all_reduce", layer_floats * sizeof(float));
    const graph::ComputeOptions step{.name = "product", .cost_us = predicted_us, .splittable = layers == 1};
    const graph::Graph captured = graph::capture([&] {
        for (std::size_t i = 0; i < layers; ++i) {
            constexpr std::int64_t columns = layer_floats / rows;
            graph::compute({tutti::TensorView(x[i].data(), {rows, columns}, tutti::float32)},
                           {tutti::TensorView(y[i].data(), {rows, columns}, tutti::float32)}, product, step);
            tutti::all_reduce(y[i]);
        }
    });
    optimise.overlap_us = 0;
    const graph::Graph better = graph::optimise(captured, optimise).graph;
    const double longer_us = static_cast<double>(layers) * predicted_us;
    nlohmann::json row{
        {"work", work}, {"layers", layers}, {"needs_cores", cores}, {"predicted", better.predicted_us() / longer_us}};
    if (cpus() < cores) return row;
    graph::Executable replayed(better);
    std::vector<Case> cases{{"computed", [&] { arithmetic.run(layers * turns * rows); }},
                            {"communicated",
                             [&] {
                                 for (auto& values : y) tutti::all_reduce(values);
                             }},
                            {"replayed", [&] { replayed.replay(); }}};
    measure(cases, {options.rounds, 5});
    row["us"] = median(cases[2].times);
    row["ratio"] = median(cases[2].times) / std::max(median(cases[0].times), median(cases[1].times));
    return row;
}

/// Graphs whose temporaries come and go at random: the peak that optimise() states, to what is alive at once at most.
nlohmann::json memory() {
    double worst = 0;
    for (std::uint32_t seed = 0; seed < 20; ++seed) {
        std::mt19937 random(seed);
        const auto below = [&](std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random); };
        graph::Graph g;
        std::vector<graph::Range> alive;
        std::uint64_t now = 0, most = 0;
        const auto add = [&](std::vector<graph::Range> reads, std::vector<graph::Range> writes) {
            graph::Node node;
            node.id = static_cast<int>(g.nodes.size());
            node.pieces.push_back({std::move(reads), std::move(writes), 0, node.id});
            g.nodes.push_back(std::move(node));
        };
        for (int i = 0; i < 300 || !alive.empty(); ++i) {
            if (i >= 300 || alive.size() > 4 + below(12)) {
                const std::size_t which = below(alive.size());
                add({alive[which]}, {});
                now -= alive[which].bytes;
                alive.erase(alive.begin() + static_cast<std::ptrdiff_t>(which));
                continue;
            }
            const graph::Range made{static_cast<std::uint32_t>(g.buffers.size()), 0, 4096ULL << below(8)};
            g.buffers.push_back(made.bytes);
            g.temporaries.push_back(made);
            add(alive.empty() ? std::vector<graph::Range>() : std::vector{alive[below(alive.size())]}, {made});
            alive.push_back(made);
            most = std::max(most, now += made.bytes);
        }
        const std::uint64_t peak = graph::optimise(std::vector{g}).front().graph.peak_bytes();
        worst = std::max(worst, static_cast<double>(peak) / static_cast<double>(most));
    }
    return {{"work", "memory"}, {"ratio", worst}};
}

void run_layers(const Options& options) {
    tutti::init_process_group();
    const std::vector<nlohmann::json> rows{overlapped("layers", 16, {}, options), overlapped("split", 1, {}, options)};
    if (tutti::get_rank() == 0) tutti::bench::report(rows, options.json);
    tutti::destroy_process_group();
}

void run(const Options& options) {
    if (options.layers) return run_layers(options);
    tutti::bench::pin_to(std::stoi(std::getenv("RANK")), std::stoi(std::getenv("WORLD_SIZE")));
    tutti::init_process_group();
    nlohmann::json rows = chain("independent", true, options);
    for (auto& row : chain("dependent", false, options)) rows.push_back(row);
    rows.push_back(empty_steps(options));
    rows.push_back(instantiation());
    tutti::barrier();
    if (tutti::get_rank() == 0) {
        rows.push_back(proof());
        rows.push_back(memory());
        tutti::bench::report(rows, options.json);
    }
    tutti::destroy_process_group();
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    CLI::App app("Replays of captured graphs beside the plain calls; one rank of several.");
    app.add_option("--rounds", options.rounds)->check(CLI::Range(1, 1000))->capture_default_str();
    app.add_option("--repeats", options.repeats, "replays in a round")
        ->check(CLI::Range(1, 1000000))
        ->capture_default_str();
    app.add_flag("--layers", options.layers, "layers beside their all_reduces instead, on any CPUs");
    app.add_option("--json", options.json, "rank 0 writes the figures to this file");
    CLI11_PARSE(app, argc, argv);
    return tutti::bench::run_as_rank("graph_bench", [&] { run(options); });
}
