// The other collectives, and point to point.
#include "tour.hpp"

#include <chrono>

namespace tour {

using namespace std::chrono_literals;

void reduce() {
    const Station station("reduce");
    const int n = tutti::get_world_size(), root = n - 1;
    const tutti::Tensor tensor = vector({tutti::get_rank(), 10 * tutti::get_rank()});
    const tutti::Tensor before = tensor.clone();
    tutti::reduce(tensor.view(), {.dst = root, .op = tutti::ReduceOp::max});
    station.say("before reduce tensor: " + text_of(before) + ", after reduce tensor: " + text_of(tensor));
    const int r = tutti::get_rank();
    station.check(tensor, r == root ? Values{n - 1, 10 * (n - 1)} : Values{r, 10 * r});
}

void gather() {
    const Station station("gather");
    const int n = tutti::get_world_size(), r = tutti::get_rank();
    const tutti::Tensor tensor = vector({r, r + 1});
    const std::vector<tutti::Tensor> list = zeros(r == 0 ? n : 0, 2);
    tutti::gather(tensor.view(), views<tutti::TensorList>(list), {.dst = 0});
    station.say("tensor: " + text_of(tensor) + ", gather_list: " + text_of(list));
    for (std::size_t i = 0; i < list.size(); ++i) {
        station.check(list[i], {static_cast<std::int64_t>(i), static_cast<std::int64_t>(i) + 1});
    }
}

void scatter() {
    const Station station("scatter");
    const int n = tutti::get_world_size(), r = tutti::get_rank();
    const tutti::Tensor tensor = tutti::zeros(tutti::int64, {2});
    std::vector<tutti::Tensor> list;
    for (int i = 0; r == 0 && i < n; ++i) list.push_back(vector({100 + i, 200 + i}));
    tutti::scatter(tensor.view(), views<tutti::ConstTensorList>(list), {.src = 0});
    station.say("scatter_list: " + text_of(list) + ", tensor: " + text_of(tensor));
    station.check(tensor, {100 + r, 200 + r});
}

void all_to_all() {
    const Station station("all_to_all");
    const int n = tutti::get_world_size(), r = tutti::get_rank();
    // Rank r sends i + 1 values to rank i: uneven.
    std::vector<tutti::Tensor> inputs;
    for (int i = 0; i < n; ++i) inputs.push_back(vector(Values(static_cast<std::size_t>(i) + 1, 10 * r + i)));
    const std::vector<tutti::Tensor> outputs = zeros(n, r + 1);
    tutti::all_to_all(views<tutti::TensorList>(outputs), views<tutti::ConstTensorList>(inputs));
    station.say("input_list: " + text_of(inputs) + ", output_list: " + text_of(outputs));
    for (int i = 0; i < n; ++i) {
        station.check(outputs[static_cast<std::size_t>(i)], Values(static_cast<std::size_t>(r) + 1, 10 * i + r));
    }
}

void into_tensors() {
    const int n = tutti::get_world_size(), r = tutti::get_rank();
    {
        const Station station("all_gather_into_tensor");
        const tutti::Tensor input = vector({r, -r}), output = tutti::zeros(tutti::int64, {2 * n});
        tutti::all_gather_into_tensor(output.view(), input.view());
        station.say("input: " + text_of(input) + ", output: " + text_of(output));
        Values expected;
        for (int i = 0; i < n; ++i) expected.insert(expected.end(), {i, -i});
        station.check(output, expected);
    }
    {
        const Station station("reduce_scatter_tensor");
        Values values;
        for (int i = 0; i < 2 * n; ++i) values.push_back(i + r);
        const tutti::Tensor input = vector(values), output = tutti::zeros(tutti::int64, {2});
        tutti::reduce_scatter_tensor(output.view(), input.view());
        station.say("input: " + text_of(input) + ", output: " + text_of(output));
        const std::int64_t ranks = n * (n - 1) / 2;
        station.check(output, {2 * r * n + ranks, (2 * r + 1) * n + ranks});
    }
    {
        const Station station("all_to_all_single");
        Values values;
        for (int i = 0; i < n; ++i) values.push_back(10 * r + i);
        const tutti::Tensor input = vector(values), output = tutti::zeros(tutti::int64, {n});
        tutti::all_to_all_single(output.view(), input.view());
        station.say("input: " + text_of(input) + ", output: " + text_of(output));
        Values expected;
        for (int i = 0; i < n; ++i) expected.push_back(10 * i + r);
        station.check(output, expected);
    }
}

void barriers() {
    const Station station("barrier");
    tutti::barrier();
    tutti::monitored_barrier({.timeout = 30s});
    station.say("passed barrier and monitored_barrier");
}

void point_to_point() {
    const int n = tutti::get_world_size(), r = tutti::get_rank();
    if (n < 2) return;
    {
        const Station station("send, recv");
        const tutti::Tensor tensor = vector({r == 0 ? 42 : 0});
        if (r == 0) tutti::send(tensor.view(), n - 1, {.tag = 3});
        if (r == n - 1) tutti::recv(tensor.view(), {.src = 0, .tag = 3});
        station.say("tensor: " + text_of(tensor));
        station.check(tensor, {r == 0 || r == n - 1 ? 42 : 0});
    }
    {
        const Station station("batch_isend_irecv");
        const tutti::Tensor out = vector({r}), in = vector({-1});
        tutti::wait_all(tutti::batch_isend_irecv(
            {tutti::isend_op(out.view(), (r + 1) % n), tutti::irecv_op(in.view(), (r + n - 1) % n)}));
        station.say("sent: " + text_of(out) + ", received: " + text_of(in));
        station.check(in, {(r + n - 1) % n});
    }
}

}  // namespace tour
