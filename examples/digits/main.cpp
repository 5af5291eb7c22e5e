// Data-parallel training on real data: every rank computes the gradient of its part of each batch, all_reduce adds them
// up, and all ranks make the same step. Afterwards rank 0 trains alone on the same batches and compares.
//
//   tutti run -n 4 build/examples/digits examples/data/digits.csv [--exact]
//
// The loss after each epoch must agree with the one-process run within 0.1 % (sums of floats in another order); with
// --exact (Determinism::layout_invariant: values are combined in the order of ranks) bit by bit.
#include "network.hpp"

#include <tutti/tutti.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace {

using digits::Network;
using digits::Sample;
using Pointers = std::vector<const Sample*>;
using Clock = std::chrono::steady_clock;

constexpr int epochs = 40;
constexpr std::size_t batch_size = 64;
constexpr float rate = 0.1F, momentum = 0.9F;
constexpr double tolerance = 1e-3;

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Batches of one epoch: the same shuffle on every rank.
std::vector<Pointers> batches_of(const Pointers& training, int epoch) {
    Pointers order = training;
    std::mt19937 random(static_cast<unsigned>(1000 + epoch));
    for (std::size_t i = order.size() - 1; i > 0; --i) std::swap(order[i], order[random() % (i + 1)]);
    std::vector<Pointers> batches;
    for (std::size_t at = 0; at < order.size(); at += batch_size) {
        batches.emplace_back(order.begin() + static_cast<std::ptrdiff_t>(at),
                             order.begin() + static_cast<std::ptrdiff_t>(std::min(at + batch_size, order.size())));
    }
    return batches;
}

/// The part of a batch that is rank's.
std::span<const Sample* const> shard(const Pointers& batch, int rank, int ranks) {
    const auto r = static_cast<std::size_t>(rank), n = static_cast<std::size_t>(ranks);
    const std::size_t start = batch.size() * r / n, end = batch.size() * (r + 1) / n;
    return std::span(batch).subspan(start, end - start);
}

void make_step(Network& network, std::vector<float>& gradient, std::size_t samples) {
    for (float& g : gradient) g /= static_cast<float>(samples);
    network.step(gradient, rate, momentum);
}

struct Progress {
    std::vector<double> losses;
    double communicating_s = 0, all_s = 0;
};

void show_bar(int epoch, double loss, double accuracy) {
    const std::string bar(static_cast<std::size_t>(30 * epoch / epochs), '#');
    std::printf("training [%-30s] epoch %2d of %d, loss %.4f, held-out digits %.1f %%%c", bar.c_str(), epoch, epochs,
                loss, 100 * accuracy, epoch == epochs ? '\n' : '\r');
    std::fflush(stdout);
}

void show_curve(const std::vector<double>& losses) {
    constexpr int rows = 8;
    const double top = std::log(losses.front()), bottom = std::log(losses.back());
    std::printf("loss (logarithmic), epoch 1 to %d\n", epochs);
    for (int row = 0; row <= rows; ++row) {
        const double level = top + (bottom - top) * row / rows;
        std::string line;
        for (const double loss : losses)
            line += std::abs(std::log(loss) - level) <= (top - bottom) / rows / 2 ? '*' : ' ';
        std::printf("%8.4f |%s\n", std::exp(level), line.c_str());
    }
}

Progress train(Network& network, const Pointers& training, const Pointers& held_out) {
    const int rank = tutti::get_rank(), ranks = tutti::get_world_size();
    Progress progress;
    std::vector<float> gradient(Network::size);
    const auto start = Clock::now();
    for (int epoch = 1; epoch <= epochs; ++epoch) {
        for (const Pointers& batch : batches_of(training, epoch)) {
            std::ranges::fill(gradient, 0.0F);
            network.add_gradient(shard(batch, rank, ranks), gradient);
            const auto before = Clock::now();
            tutti::all_reduce(gradient);
            progress.communicating_s += seconds_since(before);
            make_step(network, gradient, batch.size());
        }
        if (rank == 0) {
            progress.losses.push_back(network.loss(training));
            show_bar(epoch, progress.losses.back(), network.accuracy(held_out));
        }
    }
    progress.all_s = seconds_since(start);
    return progress;
}

/// One process, the same batches. `ranks` > 0: adds up as so many ranks do, in their order; 0: as one sum.
std::vector<double> train_alone(const Pointers& training, unsigned seed, int ranks) {
    Network network(seed);
    std::vector<double> losses;
    std::vector<float> gradient(Network::size), part(Network::size);
    for (int epoch = 1; epoch <= epochs; ++epoch) {
        for (const Pointers& batch : batches_of(training, epoch)) {
            std::ranges::fill(gradient, 0.0F);
            network.add_gradient(ranks > 0 ? shard(batch, 0, ranks) : std::span<const Sample* const>(batch), gradient);
            for (int rank = 1; rank < ranks; ++rank) {
                std::ranges::fill(part, 0.0F);
                network.add_gradient(shard(batch, rank, ranks), part);
                for (std::size_t i = 0; i < part.size(); ++i) gradient[i] += part[i];
            }
            make_step(network, gradient, batch.size());
        }
        losses.push_back(network.loss(training));
    }
    return losses;
}

/// Whether all ranks hold the same bits.
bool same_everywhere(const Network::Weights& weights) {
    std::vector<std::uint32_t> low(weights.size()), high;
    std::memcpy(low.data(), weights.data(), weights.size() * sizeof(float));
    high = low;
    tutti::all_reduce(low, {.op = tutti::ReduceOp::min});
    tutti::all_reduce(high, {.op = tutti::ReduceOp::max});
    return low == high;
}

bool agrees(const std::vector<double>& losses, const std::vector<double>& alone, bool exact) {
    double worst = 0;
    for (std::size_t i = 0; i < losses.size(); ++i) {
        const double difference = std::abs(losses[i] / alone[i] - 1);
        if (!(difference <= worst)) worst = difference;  // also when it is not a number
    }
    const bool good = exact ? losses == alone : worst <= tolerance;
    std::printf("one process on the same batches: losses differ by at most %.1e (allowed: %g): %s\n", worst,
                exact ? 0.0 : tolerance, good ? "equal" : "WRONG");
    return good;
}

int run(const std::string& file, bool exact) {
    constexpr unsigned seed = 7;
    tutti::init_process_group({.determinism = exact ? tutti::Determinism::layout_invariant : tutti::Determinism::fast});
    const std::vector<Sample> samples = digits::load(file);
    Pointers training, held_out;
    for (std::size_t i = 0; i < samples.size(); ++i) (i % 5 == 4 ? held_out : training).push_back(&samples[i]);
    const int rank = tutti::get_rank(), ranks = tutti::get_world_size();
    if (rank == 0) {
        std::printf("digits: %zu to learn from, %zu held out; %d ranks, batches of %zu, %zu weights\n", training.size(),
                    held_out.size(), ranks, batch_size, Network::size);
    }

    Network network(seed);
    const Progress progress = train(network, training, held_out);
    bool good = same_everywhere(network.weights());
    std::vector<double> times{progress.communicating_s, progress.all_s};
    tutti::all_reduce(times, {.op = tutti::ReduceOp::avg});
    if (rank == 0) {
        if (!good) std::puts("WRONG: the ranks' weights differ");
        show_curve(progress.losses);
        const double accuracy = network.accuracy(held_out);
        std::printf("held-out digits: %.1f %% right (at least 95 wanted)\n", 100 * accuracy);
        std::printf("communicating (waiting for others included): %.1f %% of %.2f s\n", 100 * times[0] / times[1],
                    times[1]);
        good &= accuracy >= 0.95;
        good &= agrees(progress.losses, train_alone(training, seed, exact ? ranks : 0), exact);
    }
    int verdict = good ? 1 : 0;
    tutti::all_reduce(std::span<int>(&verdict, 1), {.op = tutti::ReduceOp::min});
    tutti::destroy_process_group();
    return verdict == 1 && good ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    std::string file = "examples/data/digits.csv";
    bool exact = false;
    for (int i = 1; i < argc; ++i) {
        if (std::string(argv[i]) == "--exact")
            exact = true;
        else
            file = argv[i];
    }
    try {
        return run(file, exact);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "digits: %s\n", error.what());
        return 1;
    }
}
