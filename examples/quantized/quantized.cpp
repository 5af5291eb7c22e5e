// Data-parallel training with quantised gradients: the digits are learned three times, with gradients added up as
// float32, as int8, and as int4 with error feedback. All three recognise the same share of digits that they have not
// seen, within 0.5 %.
//
//   tutti run -n 4 build/examples/quantized examples/data/digits.csv
#include "digits/network.hpp"

#include <tutti/tutti.hpp>

#include <cmath>
#include <cstdio>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace {

using digits::Network;
using digits::Sample;
using Pointers = std::vector<const Sample*>;
using Gradient = std::vector<float>;

constexpr int epochs = 30, counted_epochs = 10;
constexpr std::size_t batch_size = 64;
constexpr float rate = 0.1F, momentum = 0.9F;
constexpr double tolerance = 0.005;

/// The same shuffle on every rank.
Pointers shuffled(Pointers samples, int epoch) {
    std::mt19937 random(static_cast<unsigned>(1000 + epoch));
    for (std::size_t i = samples.size() - 1; i > 0; --i) std::swap(samples[i], samples[random() % (i + 1)]);
    return samples;
}

struct Outcome {
    double accuracy;  ///< of samples that were held out, over the last epochs
    std::uint64_t bytes;
};

Outcome train(const Pointers& training, const Pointers& held_out, const std::function<void(Gradient&)>& add_up) {
    const auto rank = static_cast<std::size_t>(tutti::get_rank());
    const auto ranks = static_cast<std::size_t>(tutti::get_world_size());
    Network network(7);
    Gradient gradient(Network::size);
    const std::uint64_t before = tutti::group_counters().bytes;
    double accuracy = 0;
    for (int epoch = 0; epoch < epochs; ++epoch) {
        const Pointers order = shuffled(training, epoch);
        for (std::size_t at = 0; at < order.size(); at += batch_size) {
            const std::size_t size = std::min(batch_size, order.size() - at);
            const std::size_t first = size * rank / ranks, end = size * (rank + 1) / ranks;
            std::fill(gradient.begin(), gradient.end(), 0.0F);
            network.add_gradient(std::span(order).subspan(at + first, end - first), gradient);
            add_up(gradient);
            for (float& g : gradient) g /= static_cast<float>(size);
            network.step(gradient, rate, momentum);
        }
        if (epoch >= epochs - counted_epochs) accuracy += network.accuracy(held_out) / counted_epochs;
    }
    return {accuracy, tutti::group_counters().bytes - before};
}

bool show(const char* what, const Outcome& outcome, const Outcome& plain) {
    const bool good = std::abs(outcome.accuracy - plain.accuracy) <= tolerance;
    if (tutti::get_rank() == 0) {
        std::printf("%-26s held-out digits %.2f %%, %5.1f MB put into collectives (%.2f): %s\n", what,
                    100 * outcome.accuracy, static_cast<double>(outcome.bytes) / 1e6,
                    static_cast<double>(outcome.bytes) / static_cast<double>(plain.bytes), good ? "as good" : "WRONG");
    }
    return good;
}

int run(const std::string& file) {
    tutti::init_process_group();
    const std::vector<Sample> samples = digits::load(file);
    Pointers training, held_out;
    for (std::size_t i = 0; i < samples.size(); ++i) (i % 5 == 4 ? held_out : training).push_back(&samples[i]);

    const Outcome plain = train(training, held_out, [](Gradient& g) { tutti::all_reduce(g); });
    const Outcome eight = train(training, held_out, [](Gradient& g) { tutti::quantized_all_reduce(g); });
    tutti::QuantizedReducer reducer({.type = tutti::QuantizedType::int4});
    const Outcome four = train(training, held_out, [&](Gradient& g) { reducer.all_reduce(g); });
    bool good = show("float32", plain, plain);
    good &= show("int8", eight, plain);
    good &= show("int4, with error feedback", four, plain);
    good &= plain.accuracy > 0.95;
    tutti::destroy_process_group();
    return good ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return run(argc > 1 ? argv[1] : "examples/data/digits.csv");
    } catch (const std::exception& error) {
        std::fprintf(stderr, "quantized: %s\n", error.what());
        return 1;
    }
}
