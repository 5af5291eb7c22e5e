// The four programs that the tour starts with, as the PyTorch-over-NCCL tutorials have them: scalars and vectors of
// one.
#include "tour.hpp"

namespace tour {

void all_reduce() {
    const Station station("all_reduce");
    const int n = tutti::get_world_size();
    const tutti::Tensor tensor = scalar(tutti::get_rank());
    const tutti::Tensor before = tensor.clone();
    tutti::all_reduce(tensor.view());
    station.say("before allreduce tensor: " + text_of(before) + ", after allreduce tensor: " + text_of(tensor));
    station.check(tensor, {n * (n - 1) / 2});
}

void reduce_scatter() {
    const Station station("reduce_scatter");
    const int n = tutti::get_world_size();
    const tutti::Tensor output = tutti::empty(tutti::int64, {1});
    std::vector<tutti::Tensor> inputs;
    for (int i = 0; i < n; ++i) inputs.push_back(scalar(tutti::get_rank()));
    tutti::reduce_scatter(output.view(), views<tutti::ConstTensorList>(inputs));
    station.say("input_list: " + text_of(inputs) + ", tensor: " + text_of(output));
    station.check(output, {n * (n - 1) / 2});
}

void all_gather() {
    const Station station("allgather");
    const int n = tutti::get_world_size();
    const tutti::Tensor input = scalar(tutti::get_rank());
    const std::vector<tutti::Tensor> outputs = zeros(n);
    tutti::all_gather(views<tutti::TensorList>(outputs), input.view());
    station.say("input_tensor: " + text_of(input) + ", output tensor_list: " + text_of(outputs));
    for (int r = 0; r < n; ++r) station.check(outputs[static_cast<std::size_t>(r)], {r});
}

void broadcast() {
    const Station station("broadcast");
    const int n = tutti::get_world_size();
    const tutti::Tensor tensor = tutti::get_rank() == 0 ? scalar(n) : vector({0});
    const tutti::Tensor before = tensor.clone();
    tutti::broadcast(tensor.view(), {.src = 0});
    station.say("before broadcast tensor: " + text_of(before) + " after broadcast tensor: " + text_of(tensor));
    station.check(tensor, {n});
}

}  // namespace tour
