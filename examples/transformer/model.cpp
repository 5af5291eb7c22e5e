#include "model.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>

namespace transformer {

namespace {

/// Uniform in [-scale, scale), and the same for the same number (Steele, Lea, Flood: SplitMix, 2014).
float random_value(std::uint64_t number, float scale) {
    number += 0x9E3779B97F4A7C15;
    number = (number ^ (number >> 30)) * 0xBF58476D1CE4E5B9;
    number = (number ^ (number >> 27)) * 0x94D049BB133111EB;
    number ^= number >> 31;
    return (static_cast<float>(number >> 40) / 8388608.0F - 1.0F) * scale;
}

struct Range {
    std::size_t begin = 0, end = 0;
};

Range part_of(std::size_t length, Part part) {
    const std::size_t piece = length / part.count;
    return {part.index * piece, (part.index + 1) * piece};
}

/// Rows and columns of a random matrix with `inputs` columns. `seed` names the matrix.
Matrix random_matrix(std::uint64_t seed, Range rows, Range columns, std::size_t inputs) {
    Matrix matrix{rows.end - rows.begin, columns.end - columns.begin, {}};
    const float scale = std::sqrt(3.0F / static_cast<float>(inputs));
    for (std::size_t row = rows.begin; row < rows.end; ++row) {
        for (std::size_t column = columns.begin; column < columns.end; ++column)
            matrix.values.push_back(random_value((seed << 40) + row * inputs + column, scale));
    }
    return matrix;
}

/// Sixteen sums at once, which a compiler puts into vectors.
float dot(const float* a, const float* b, std::size_t length) {
    std::array<float, 16> sums{};
    std::size_t i = 0;
    for (; i + sums.size() <= length; i += sums.size()) {
        for (std::size_t lane = 0; lane < sums.size(); ++lane) sums[lane] += a[i + lane] * b[i + lane];
    }
    float sum = 0;
    for (const float value : sums) sum += value;
    for (; i < length; ++i) sum += a[i] * b[i];
    return sum;
}

/// outputs[token] = matrix * inputs[token]. A row of the matrix is read once for all tokens.
void multiply(const Matrix& matrix, std::size_t tokens, const float* inputs, float* outputs) {
    for (std::size_t row = 0; row < matrix.outputs; ++row) {
        const float* weights = matrix.values.data() + row * matrix.inputs;
        for (std::size_t token = 0; token < tokens; ++token)
            outputs[token * matrix.outputs + row] = dot(weights, inputs + token * matrix.inputs, matrix.inputs);
    }
}

void normalise(std::size_t tokens, std::size_t width, const float* inputs, float* outputs) {
    for (std::size_t token = 0; token < tokens; ++token, inputs += width, outputs += width) {
        const float mean_square = dot(inputs, inputs, width) / static_cast<float>(width);
        const float scale = 1 / std::sqrt(mean_square + 1e-5F);
        for (std::size_t i = 0; i < width; ++i) outputs[i] = scale * inputs[i];
    }
}

}  // namespace

Model::Model(const Shape& shape, Part part, std::uint64_t seed, AddUp add_up)
    : shape_(shape), part_(part), add_up_(std::move(add_up)) {
    for (const auto& [length, what] :
         {std::pair{shape.heads, "heads"}, {shape.neurons, "neurons"}, {shape.vocabulary, "tokens"}}) {
        if (length % part.count != 0)
            throw std::invalid_argument(std::to_string(part.count) + " ranks cannot share " + std::to_string(length) +
                                        " " + what + " equally: expected a number of ranks that divides them");
    }
    const Range all{0, shape.width}, heads = part_of(shape.width, part), neurons = part_of(shape.neurons, part);
    std::uint64_t number = seed * 1000;
    embedding_ = random_matrix(number++, {0, shape.vocabulary}, all, shape.width);
    head_ = random_matrix(number++, part_of(shape.vocabulary, part), all, shape.width);
    logits_.resize(head_.outputs);
    for (std::size_t i = 0; i < shape.layers; ++i) {
        Layer layer;
        for (Matrix* matrix : {&layer.query, &layer.key, &layer.value})
            *matrix = random_matrix(number++, heads, all, shape.width);
        layer.output = random_matrix(number++, all, heads, shape.width);
        for (Matrix* matrix : {&layer.gate, &layer.up}) *matrix = random_matrix(number++, neurons, all, shape.width);
        layer.down = random_matrix(number++, all, neurons, shape.neurons);
        layer.keys.resize(shape.context * layer.key.outputs);
        layer.values.resize(shape.context * layer.value.outputs);
        layers_.push_back(std::move(layer));
    }
    const std::size_t half = shape.width / shape.heads / 2;
    for (std::size_t position = 0; position < shape.context; ++position) {
        for (std::size_t i = 0; i < half; ++i) {
            const double angle =
                static_cast<double>(position) / std::pow(10'000.0, static_cast<double>(i) / static_cast<double>(half));
            cosines_.push_back(static_cast<float>(std::cos(angle)));
            sines_.push_back(static_cast<float>(std::sin(angle)));
        }
    }
}

std::span<const float> Model::forward(std::span<const std::size_t> tokens) {
    const std::size_t count = tokens.size(), width = shape_.width;
    if (past_ + count > shape_.context)
        throw std::length_error(std::to_string(past_ + count) + " tokens: the context has " +
                                std::to_string(shape_.context));
    for (std::vector<float>* buffer : {&stream_, &normed_, &sums_}) buffer->resize(count * width);
    for (std::size_t token = 0; token < count; ++token)
        std::copy_n(embedding_.values.data() + tokens[token] * width, width, stream_.data() + token * width);
    for (Layer& layer : layers_) {
        normalise(count, width, stream_.data(), normed_.data());
        attend(layer, count);
        normalise(count, width, stream_.data(), normed_.data());
        think(layer, count);
    }
    past_ += count;
    normalise(1, width, stream_.data() + (count - 1) * width, normed_.data());
    multiply(head_, 1, normed_.data(), logits_.data());
    return logits_;
}

void Model::attend(Layer& layer, std::size_t count) {
    const std::size_t mine = layer.query.outputs, head_size = shape_.width / shape_.heads;
    queries_.resize(count * mine);
    mixed_.assign(count * mine, 0.0F);
    float* const keys = layer.keys.data() + past_ * mine;
    multiply(layer.query, count, normed_.data(), queries_.data());
    multiply(layer.key, count, normed_.data(), keys);
    multiply(layer.value, count, normed_.data(), layer.values.data() + past_ * mine);
    for (std::size_t token = 0; token < count; ++token) {
        for (std::size_t head = 0; head < mine; head += head_size) {
            rotate(queries_.data() + token * mine + head, past_ + token);
            rotate(keys + token * mine + head, past_ + token);
        }
    }
    for (std::size_t token = 0; token < count; ++token) {
        for (std::size_t head = 0; head < mine; head += head_size)
            attend_to_past(layer, head, past_ + token, &queries_[token * mine + head], &mixed_[token * mine + head]);
    }
    multiply(layer.output, count, mixed_.data(), sums_.data());
    add_up_(sums_);
    for (std::size_t i = 0; i < stream_.size(); ++i) stream_[i] += sums_[i];
}

void Model::attend_to_past(const Layer& layer, std::size_t head, std::size_t position, const float* query,
                           float* mixed) {
    const std::size_t stride = layer.key.outputs, head_size = shape_.width / shape_.heads;
    scores_.resize(position + 1);
    const float scale = 1 / std::sqrt(static_cast<float>(head_size));
    for (std::size_t past = 0; past <= position; ++past)
        scores_[past] = scale * dot(query, &layer.keys[past * stride + head], head_size);
    const float highest = *std::ranges::max_element(scores_);
    float sum = 0;
    for (float& score : scores_) sum += score = std::exp(score - highest);
    for (std::size_t past = 0; past <= position; ++past) {
        const float* value = &layer.values[past * stride + head];
        for (std::size_t i = 0; i < head_size; ++i) mixed[i] += scores_[past] / sum * value[i];
    }
}

void Model::rotate(float* head, std::size_t position) const {
    const std::size_t half = shape_.width / shape_.heads / 2;
    for (std::size_t i = 0; i < half; ++i) {
        const float cosine = cosines_[position * half + i], sine = sines_[position * half + i];
        const float first = head[i], second = head[half + i];
        head[i] = first * cosine - second * sine;
        head[half + i] = first * sine + second * cosine;
    }
}

void Model::think(const Layer& layer, std::size_t count) {
    gates_.resize(count * layer.gate.outputs);
    ups_.resize(count * layer.up.outputs);
    multiply(layer.gate, count, normed_.data(), gates_.data());
    multiply(layer.up, count, normed_.data(), ups_.data());
    for (std::size_t i = 0; i < gates_.size(); ++i) gates_[i] *= ups_[i] / (1 + std::exp(-gates_[i]));
    multiply(layer.down, count, gates_.data(), sums_.data());
    add_up_(sums_);
    for (std::size_t i = 0; i < stream_.size(); ++i) stream_[i] += sums_[i];
}

}  // namespace transformer
