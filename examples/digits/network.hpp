// A network with one hidden layer (64 inputs, tanh, softmax over 10 classes), and the digits that it learns.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace digits {

inline constexpr std::size_t pixels = 64, hidden = 48, classes = 10;

struct Sample {
    std::array<float, pixels> image{};  // 0 … 1
    std::size_t digit = 0;
};
/// Throws std::runtime_error that names the file and the line.
std::vector<Sample> load(const std::string& file);

/// All weights in one piece, so that one all_reduce averages their gradients.
class Network {
 public:
    static constexpr std::size_t size = hidden * pixels + hidden + classes * hidden + classes;
    using Weights = std::vector<float>;

    /// The same weights for the same seed.
    explicit Network(unsigned seed);

    /// Adds the gradient of the summed loss over `batch` to `gradient` (size floats).
    void add_gradient(std::span<const Sample* const> batch, std::span<float> gradient) const;
    /// One step of gradient descent with momentum.
    void step(std::span<const float> gradient, float rate, float momentum);

    /// Mean cross entropy, and the part of the samples that is classified rightly.
    double loss(std::span<const Sample* const> samples) const;
    double accuracy(std::span<const Sample* const> samples) const;
    const Weights& weights() const { return weights_; }

 private:
    struct Activations {
        std::array<float, hidden> middle;
        std::array<float, classes> probabilities;
    };
    Activations forward(const Sample& sample) const;
    Weights weights_, velocity_;
};

}  // namespace digits
