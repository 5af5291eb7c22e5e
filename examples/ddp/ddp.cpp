// Data-parallel training with DistributedDataParallel: a network of two layers whose gradients are written by hand.
// Each rank learns from its part of the data; all end with the same weights, which are those of one process that has
// all.
//
//   tutti run -n 4 build/examples/ddp
//
// With TORCH_CPP_LOG_LEVEL=INFO and TORCH_DISTRIBUTED_DEBUG=DETAIL it logs what it does, and how long that takes.
#include <tutti/tutti.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <span>
#include <vector>

namespace {

constexpr std::size_t inputs = 2, hidden = 16, samples = 120;  // a multiple of 1 to 6 ranks
constexpr int steps = 400;
constexpr float rate = 0.2F;

struct Sample {
    float x[inputs], y;
};

/// A hill on the plane, the same on every rank.
std::vector<Sample> make_data() {
    std::mt19937 random(3);
    const auto uniform = [&] { return static_cast<float>(random()) / 4294967296.0F * 2 - 1; };
    std::vector<Sample> data(samples);
    for (Sample& s : data) {
        s.x[0] = uniform();
        s.x[1] = uniform();
        s.y = std::exp(-2 * (s.x[0] * s.x[0] + s.x[1] * s.x[1]));
    }
    return data;
}

/// y = b.weight · tanh(a.weight x + a.bias) + b.bias; the loss is the mean of (y - truth)².
struct Network {
    std::vector<float> a = std::vector<float>(hidden * inputs), a_bias = std::vector<float>(hidden);
    std::vector<float> b = std::vector<float>(hidden), b_bias = std::vector<float>(1);
    std::vector<float> da = a, da_bias = a_bias, db = b, db_bias = b_bias;
    std::vector<float> middle, error;  // of the last forward pass, by sample

    explicit Network(unsigned seed) {
        std::mt19937 random(seed);
        for (auto* weights : {&a, &a_bias, &b}) {
            for (float& w : *weights) w = static_cast<float>(random()) / 4294967296.0F - 0.5F;
        }
    }

    float forward(std::span<const Sample> batch) {
        middle.assign(batch.size() * hidden, 0);
        error.assign(batch.size(), 0);
        float loss = 0;
        for (std::size_t s = 0; s < batch.size(); ++s) {
            float y = b_bias[0];
            for (std::size_t h = 0; h < hidden; ++h) {
                const float sum = a_bias[h] + a[h * inputs] * batch[s].x[0] + a[h * inputs + 1] * batch[s].x[1];
                y += b[h] * (middle[s * hidden + h] = std::tanh(sum));
            }
            error[s] = 2 * (y - batch[s].y) / static_cast<float>(batch.size());
            loss += (y - batch[s].y) * (y - batch[s].y) / static_cast<float>(batch.size());
        }
        return loss;
    }
    void backward_b() {
        db.assign(hidden, 0);
        db_bias.assign(1, 0);
        for (std::size_t s = 0; s < error.size(); ++s) {
            db_bias[0] += error[s];
            for (std::size_t h = 0; h < hidden; ++h) db[h] += error[s] * middle[s * hidden + h];
        }
    }
    void backward_a(std::span<const Sample> batch) {
        da.assign(hidden * inputs, 0);
        da_bias.assign(hidden, 0);
        for (std::size_t s = 0; s < batch.size(); ++s) {
            for (std::size_t h = 0; h < hidden; ++h) {
                const float m = middle[s * hidden + h], delta = error[s] * b[h] * (1 - m * m);
                da_bias[h] += delta;
                for (std::size_t i = 0; i < inputs; ++i) da[h * inputs + i] += delta * batch[s].x[i];
            }
        }
    }
    void step() {
        const auto descend = [](std::vector<float>& weights, const std::vector<float>& gradient) {
            for (std::size_t i = 0; i < weights.size(); ++i) weights[i] -= rate * gradient[i];
        };
        descend(a, da);
        descend(a_bias, da_bias);
        descend(b, db);
        descend(b_bias, db_bias);
    }
    std::vector<float> weights() const {
        std::vector<float> all;
        for (const auto* part : {&a, &a_bias, &b, &b_bias}) all.insert(all.end(), part->begin(), part->end());
        return all;
    }
};

void train_together(Network& net, std::span<const Sample> part) {
    tutti::DistributedDataParallel ddp({{"a.weight", net.a, tutti::TensorView(net.da)},
                                        {"a.bias", net.a_bias, tutti::TensorView(net.da_bias)},
                                        {"b.weight", net.b, tutti::TensorView(net.db)},
                                        {"b.bias", net.b_bias, tutti::TensorView(net.db_bias)}},
                                       {.bucket_cap_bytes = 64, .module_name = "TwoLayers"});
    for (int step = 0; step < steps; ++step) {
        ddp.forward();
        net.forward(part);
        ddp.prepare_for_backward();
        net.backward_b();
        ddp.ready("b.weight");
        ddp.ready("b.bias");  // the second layer's gradients are on their way
        net.backward_a(part);
        ddp.ready("a.weight");
        ddp.ready("a.bias");
        ddp.finish();
        net.step();
    }
}

bool same_bits_everywhere(const std::vector<float>& weights) {
    std::vector<std::uint32_t> low(weights.size()), high;
    std::memcpy(low.data(), weights.data(), weights.size() * sizeof(float));
    high = low;
    tutti::all_reduce(low, {.op = tutti::ReduceOp::min});
    tutti::all_reduce(high, {.op = tutti::ReduceOp::max});
    return low == high;
}

}  // namespace

int main() {
    tutti::init_process_group();
    const auto rank = static_cast<std::size_t>(tutti::get_rank()),
               ranks = static_cast<std::size_t>(tutti::get_world_size());
    const std::vector<Sample> data = make_data();
    if (samples % ranks != 0) {
        std::fprintf(stderr, "ddp: %zu ranks: expected a divisor of %zu\n", ranks, samples);
        return 1;
    }
    const std::size_t share = samples / ranks;

    Network net(static_cast<unsigned>(rank));  // each another one; all begin with rank 0's
    train_together(net, std::span(data).subspan(rank * share, share));
    const bool equal = same_bits_everywhere(net.weights());

    Network alone(0);
    const float loss_before = alone.forward(data);
    for (int step = 0; step < steps; ++step) {
        alone.forward(data);
        alone.backward_b();
        alone.backward_a(data);
        alone.step();
    }
    const float loss = net.forward(data);
    float difference = 0;
    const std::vector<float> ours = net.weights(), theirs = alone.weights();
    for (std::size_t i = 0; i < ours.size(); ++i) difference = std::max(difference, std::abs(ours[i] - theirs[i]));
    const bool good = equal && difference < 1e-3F && loss < loss_before / 10;
    if (rank == 0) {
        std::printf(
            "%zu ranks, %d steps: loss %.4f -> %.5f; weights %s on all ranks; from one process they differ by %.1e\n",
            ranks, steps, loss_before, loss, equal ? "equal" : "DIFFERENT", difference);
    }
    tutti::destroy_process_group();
    return good ? 0 : 1;
}
