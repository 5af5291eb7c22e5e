// A decoder-only transformer as Llama's family has it (RMS norms, rotary positions, SwiGLU), and the part of it that
// one rank of a tensor-parallel group holds. It knows nothing of tutti: a function adds up what the ranks have
// computed.
//
// Each layer is cut as in Megatron-LM (Shoeybi et al. 2019): the matrices that come first (queries, keys, values; gate,
// up) by their outputs, so that a rank has whole heads and whole neurons; those that follow (attention's output; down)
// by their inputs, so that each rank has a sum over its own part. The sums of all ranks are added up twice a layer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace transformer {

struct Shape {
    std::size_t layers = 4, width = 512, heads = 8, neurons = 1536, vocabulary = 2048, context = 128;
};

/// Part `index` of `count` equal ones. `count` must divide the heads, the neurons and the vocabulary.
struct Part {
    std::size_t index = 0, count = 1;
};

/// `outputs` x `inputs`, row by row.
struct Matrix {
    std::size_t outputs = 0, inputs = 0;
    std::vector<float> values;
};

class Model {
 public:
    /// Adds `values` up over all ranks, in place.
    using AddUp = std::function<void(std::span<float> values)>;

    /// Random weights. The parts of one seed are parts of the same model. Throws std::invalid_argument where
    /// `part.count` does not divide the model.
    Model(const Shape& shape, Part part, std::uint64_t seed, AddUp add_up);

    /// Runs `tokens`, which follow those of the calls before; their keys and values are kept. Returns this part's
    /// logits (vocabulary / part.count of them, from token first_token() on) for the token after the last one, until
    /// the next call. Throws std::length_error behind the end of the context.
    std::span<const float> forward(std::span<const std::size_t> tokens);
    std::size_t first_token() const { return part_.index * logits_.size(); }

 private:
    struct Layer {
        Matrix query, key, value, output, gate, up, down;
        std::vector<float> keys, values;  // of all tokens until now: [context][the part's heads]
    };
    void attend(Layer& layer, std::size_t count);
    void think(const Layer& layer, std::size_t count);
    void attend_to_past(const Layer& layer, std::size_t head, std::size_t position, const float* query, float* mixed);
    void rotate(float* head, std::size_t position) const;

    Shape shape_;
    Part part_;
    AddUp add_up_;
    Matrix embedding_, head_;
    std::vector<Layer> layers_;
    std::vector<float> cosines_, sines_;  // [context][size of a head / 2]
    std::size_t past_ = 0;                // tokens that have been run
    // Of the tokens of a call.
    std::vector<float> stream_, normed_, sums_, queries_, mixed_, gates_, ups_, scores_, logits_;
};

}  // namespace transformer
