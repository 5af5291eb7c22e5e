// A device mesh: four ranks as two copies of a model ("dp"), each of which two ranks share ("tp").
//
//   tutti run -n 4 build/examples/mesh
#include <tutti/tutti.hpp>

#include <cstdio>
#include <vector>

namespace {

// A layer with 4 outputs for 4 inputs. Each rank of a copy has the weights of 2 outputs.
std::vector<float> shard_of_layer(const std::vector<float>& input, int shard) {
    std::vector<float> output(2, 0.0F);
    for (std::size_t row = 0; row < output.size(); ++row) {
        for (const float value : input)
            output[row] += static_cast<float>(2 * shard + static_cast<int>(row) + 1) * value;
    }
    return output;
}

}  // namespace

int main() {
    // Joins, too. Ranks 0 1 are the first copy, 2 3 the second.
    const auto mesh = tutti::init_device_mesh("cpu", {2, 2}, {.dim_names = {"dp", "tp"}});
    const int copy = mesh.get_local_rank("dp"), shard = mesh.get_local_rank("tp");

    // Forward: each copy has an input of its own; its ranks put their outputs together.
    const std::vector<float> input(4, static_cast<float>(copy + 1));
    std::vector<float> output(4);
    tutti::all_gather_into_tensor(output, shard_of_layer(input, shard), {.group = mesh["tp"]});
    bool good = true;
    for (int i = 0; i < 4; ++i)
        good &= output[static_cast<std::size_t>(i)] == static_cast<float>(4 * (i + 1) * (copy + 1));

    // Backward: ranks that have the same weights average what they have learnt.
    std::vector<float> gradient(8, static_cast<float>(10 * copy + shard));
    tutti::all_reduce(gradient, {.op = tutti::ReduceOp::avg, .group = mesh.get_group("dp")});
    good &= gradient == std::vector<float>(8, static_cast<float>(5 + shard));

    // All ranks as one dimension: a norm of the whole gradient.
    std::vector<float> squares{gradient[0] * gradient[0] * 8};
    tutti::all_reduce(squares, {.group = mesh.flatten("all")});
    good &= squares[0] == 2 * 8 * (25 + 36);

    std::printf("rank %d: copy %d, shard %d: output %g %g %g %g, gradient %g, squares %g\n", mesh.get_rank(), copy,
                shard, output[0], output[1], output[2], output[3], gradient[0], squares[0]);
    tutti::destroy_process_group();
    return good ? 0 : 1;
}
