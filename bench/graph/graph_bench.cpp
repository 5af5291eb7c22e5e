// graph_bench: replays of captured graphs beside the plain calls. One rank of a job that `tutti run` starts; rank 0
// prints and writes the figures.
//
// Threads: one, and the group's own.
#include "bench/collectives/sampling.hpp"
#include "bench/rank_program.hpp"

#include <tutti/tutti.hpp>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
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

void run(const Options& options) {
    tutti::bench::pin_to(std::stoi(std::getenv("RANK")), std::stoi(std::getenv("WORLD_SIZE")));
    tutti::init_process_group();
    nlohmann::json rows = chain("independent", true, options);
    for (auto& row : chain("dependent", false, options)) rows.push_back(row);
    rows.push_back(empty_steps(options));
    rows.push_back(instantiation());
    tutti::barrier();
    if (tutti::get_rank() == 0) {
        rows.push_back(proof());
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
    app.add_option("--json", options.json, "rank 0 writes the figures to this file");
    CLI11_PARSE(app, argc, argv);
    return tutti::bench::run_as_rank("graph_bench", [&] { run(options); });
}
