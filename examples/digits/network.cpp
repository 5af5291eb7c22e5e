#include "network.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <random>
#include <sstream>
#include <stdexcept>

namespace digits {
namespace {

// Where the parts lie in the weights.
constexpr std::size_t w1 = 0, b1 = w1 + hidden * pixels, w2 = b1 + hidden, b2 = w2 + classes * hidden;

}  // namespace

std::vector<Sample> load(const std::string& file) {
    std::ifstream in(file);
    if (!in) throw std::runtime_error("cannot read " + file + "; run it from the project's folder, or name the file");
    std::vector<Sample> samples;
    for (std::string line; std::getline(in, line);) {
        std::istringstream fields(line);
        Sample sample;
        bool good = true;
        for (std::size_t i = 0; i <= pixels; ++i) {
            int value = 0;
            good = good && (i == 0 || fields.get() == ',') && fields >> value && value >= 0 && value <= 16;
            if (i < pixels)
                sample.image[i] = static_cast<float>(value) / 16;
            else
                sample.digit = static_cast<std::size_t>(value);
        }
        if (!good || sample.digit >= classes) {
            throw std::runtime_error(file + ", line " + std::to_string(samples.size() + 1) +
                                     ": expected 64 pixels from 0 to 16 and a digit");
        }
        samples.push_back(sample);
    }
    return samples;
}

Network::Network(unsigned seed) : weights_(size), velocity_(size) {
    std::mt19937 random(seed);  // its sequence is fixed by the standard; distributions' are not
    const auto uniform = [&] { return static_cast<float>(random()) / 4294967296.0F * 2 - 1; };
    for (std::size_t i = w1; i < b1; ++i) weights_[i] = uniform() / 8;
    for (std::size_t i = w2; i < b2; ++i) weights_[i] = uniform() / 7;
}

Network::Activations Network::forward(const Sample& sample) const {
    Activations a{};
    for (std::size_t h = 0; h < hidden; ++h) {
        float sum = weights_[b1 + h];
        for (std::size_t p = 0; p < pixels; ++p) sum += weights_[w1 + h * pixels + p] * sample.image[p];
        a.middle[h] = std::tanh(sum);
    }
    for (std::size_t c = 0; c < classes; ++c) {
        float sum = weights_[b2 + c];
        for (std::size_t h = 0; h < hidden; ++h) sum += weights_[w2 + c * hidden + h] * a.middle[h];
        a.probabilities[c] = sum;
    }
    const float largest = std::ranges::max(a.probabilities);
    float total = 0;
    for (float& p : a.probabilities) total += p = std::exp(p - largest);
    for (float& p : a.probabilities) p /= total;
    return a;
}

void Network::add_gradient(std::span<const Sample* const> batch, std::span<float> gradient) const {
    for (const Sample* sample : batch) {
        const Activations a = forward(*sample);
        std::array<float, hidden> back{};
        for (std::size_t c = 0; c < classes; ++c) {
            const float delta = a.probabilities[c] - (c == sample->digit ? 1.0F : 0.0F);
            gradient[b2 + c] += delta;
            for (std::size_t h = 0; h < hidden; ++h) {
                gradient[w2 + c * hidden + h] += delta * a.middle[h];
                back[h] += delta * weights_[w2 + c * hidden + h];
            }
        }
        for (std::size_t h = 0; h < hidden; ++h) {
            const float delta = back[h] * (1 - a.middle[h] * a.middle[h]);
            gradient[b1 + h] += delta;
            for (std::size_t p = 0; p < pixels; ++p) gradient[w1 + h * pixels + p] += delta * sample->image[p];
        }
    }
}

void Network::step(std::span<const float> gradient, float rate, float momentum) {
    for (std::size_t i = 0; i < size; ++i) {
        velocity_[i] = momentum * velocity_[i] - rate * gradient[i];
        weights_[i] += velocity_[i];
    }
}

double Network::loss(std::span<const Sample* const> samples) const {
    double sum = 0;
    for (const Sample* sample : samples) {
        sum -= std::log(std::max(static_cast<double>(forward(*sample).probabilities[sample->digit]), 1e-30));
    }
    return sum / static_cast<double>(samples.size());
}

double Network::accuracy(std::span<const Sample* const> samples) const {
    const auto right = std::ranges::count_if(samples, [&](const Sample* sample) {
        const auto p = forward(*sample).probabilities;
        return static_cast<std::size_t>(std::ranges::max_element(p) - p.begin()) == sample->digit;
    });
    return static_cast<double>(right) / static_cast<double>(samples.size());
}

}  // namespace digits
