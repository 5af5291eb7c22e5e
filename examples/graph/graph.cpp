// Graphs: a training step of four layers, captured once, proved, optimised, replayed.
//
//   tutti run -n 4 build/examples/graph
#include <tutti/tutti.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <numeric>
#include <vector>

namespace {

constexpr std::size_t layers = 4, parameters = 64;
constexpr int steps = 200;

struct Layer {
    std::vector<float> weights = std::vector<float>(parameters, 1.0F), gradient = std::vector<float>(parameters);
};

double microseconds(const auto& function) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < steps; ++i) function();
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / steps;
}

}  // namespace

int main() {
    namespace graph = tutti::graph;
    tutti::init_process_group();
    const int rank = tutti::get_rank(), n = tutti::get_world_size();
    std::vector<Layer> model(layers);

    // Each rank's gradient pulls a weight towards the rank's number; together they pull it to the average of all.
    const auto step = [&] {
        for (Layer& layer : model) {
            graph::compute({layer.weights}, {layer.gradient},
                           [&layer, rank] {
                               for (std::size_t i = 0; i < parameters; ++i)
                                   layer.gradient[i] = layer.weights[i] - static_cast<float>(rank);
                           },
                           {.name = "backward", .cost_us = 1});
            tutti::all_reduce(layer.gradient, {.op = tutti::ReduceOp::avg});
        }
        for (Layer& layer : model) {
            graph::compute({layer.weights, layer.gradient}, {layer.weights},
                           [&layer] {
                               for (std::size_t i = 0; i < parameters; ++i)
                                   layer.weights[i] -= 0.1F * layer.gradient[i];
                           },
                           {.name = "update", .cost_us = 1});
        }
    };

    const graph::Graph captured = graph::capture(step);  // nothing has run
    const graph::Optimised optimised = graph::optimise(captured);
    graph::Executable replayed(optimised.graph);
    if (rank == 0) std::printf("%s\n%s", optimised.graph.to_text().c_str(), optimised.to_text().c_str());

    const double plain_us = microseconds(step);
    const double replayed_us = microseconds([&] { replayed.replay(); });

    const float average = static_cast<float>(n - 1) / 2;
    bool good = optimised.graph.nodes.size() < captured.nodes.size();
    for (const Layer& layer : model) {
        good = good && std::ranges::all_of(layer.weights, [&](float w) { return std::abs(w - average) < 1e-3F; });
    }
    if (rank == 0)
        std::printf("a step takes %.1f us, replayed %.1f us; all weights are %g\n", plain_us, replayed_us,
                    static_cast<double>(average));
    tutti::destroy_process_group();
    return good ? 0 : 1;
}
