// A model for the tests of DistributedDataParallel: parameters, and gradients whose averages are exact.
#pragma once

#include "conformance/world.hpp"

#include <tutti/tutti.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace tutti::test {

using Lists = std::vector<std::vector<float>>;

/// Element k of the gradient of parameter i on a rank.
inline float gradient_value(int rank, int iteration, std::size_t i, std::size_t k) {
    return static_cast<float>(6 * ((rank + 1) * static_cast<int>(k + i + 1) - iteration));
}

struct Model {
    static constexpr std::size_t size = 7;
    /// One has no elements; some fill a bucket of 64 bytes alone.
    static constexpr std::size_t counts[size] = {3, 20, 1, 0, 8, 8, 40};

    explicit Model(int rank) {
        for (std::size_t i = 0; i < size; ++i) {
            values.emplace_back(counts[i], static_cast<float>(rank) + static_cast<float>(i));
            gradients.emplace_back(counts[i]);
        }
    }
    std::vector<NamedParameter> parameters() {
        std::vector<NamedParameter> all;
        for (std::size_t i = 0; i < size; ++i)
            all.push_back({"layer" + std::to_string(i), values[i], TensorView(gradients[i])});
        return all;
    }
    void compute_gradients(int rank, int iteration) {
        for (std::size_t i = 0; i < size; ++i) {
            for (std::size_t k = 0; k < counts[i]; ++k) gradients[i][k] = gradient_value(rank, iteration, i, k);
        }
    }

    Lists values, gradients;
};

inline Lists averages(int ranks, int iteration) {
    Lists all;
    for (std::size_t i = 0; i < Model::size; ++i) {
        std::vector<float>& one = all.emplace_back(Model::counts[i]);
        for (std::size_t k = 0; k < one.size(); ++k) {
            for (int rank = 0; rank < ranks; ++rank) one[k] += gradient_value(rank, iteration, i, k);
            one[k] /= static_cast<float>(ranks);
        }
    }
    return all;
}

}  // namespace tutti::test
