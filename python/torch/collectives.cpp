// Collectives on dense tensors.
#include "issue.hpp"

#include <ATen/ATen.h>

#include <torch/csrc/distributed/c10d/Utils.hpp>

namespace tutti::torch {
namespace {

// Throws PyTorch's message about a bad list; PyTorch's checks take such a function.
using Refuse = std::function<void(const std::string&)>;

void check_equal_inputs(const Refuse& refuse, const Tensors& tensors) {
    c10d::assertNonEmpty(refuse, tensors);
    c10d::assertLayoutMatch(refuse, tensors);
    c10d::assertTypeAndSizesMatch(refuse, tensors);
}

// Checks that every tensor of `list` has the type of `one`, and its sizes.
void check_list(const Refuse& refuse, const Tensors& list, const at::Tensor& one, bool equal_sizes) {
    if (equal_sizes) return c10d::assertTypeAndSizesMatch(refuse, list, one.options(), one.sizes());
    for (std::size_t i = 0; i < list.size(); ++i) {
        if (list[i].scalar_type() != one.scalar_type()) {
            refuse(c10::str("invalid tensor type at index ", i, " (expected ", one.toString(), ", got ",
                            list[i].toString(), ")"));
        }
    }
}

// Turns rows by rank into elements by rank; no rows: the same number for each.
std::vector<std::int64_t> elements_of(const std::vector<std::int64_t>& rows, const at::Tensor& tensor, int ranks) {
    if (rows.empty()) return std::vector<std::int64_t>(static_cast<std::size_t>(ranks), tensor.numel() / ranks);
    const std::int64_t row = tensor.size(0) == 0 ? 0 : tensor.numel() / tensor.size(0);
    std::vector<std::int64_t> elements;
    for (const std::int64_t count : rows) elements.push_back(count * row);
    return elements;
}
std::vector<std::int64_t> elements_of(const Tensors& tensors) {
    std::vector<std::int64_t> elements;
    for (const at::Tensor& tensor : tensors) elements.push_back(tensor.numel());
    return elements;
}

}  // namespace

WorkPtr ProcessGroupTutti::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
    if (Staging::needed(tensors)) return on_host(tensors, [&](auto& copies) { return broadcast(copies, options); });
    const Refuse invalid = [&](const std::string& message) { refuse("broadcast", message); };
    c10d::assertRootRank(invalid, options.rootRank, size_);
    c10d::assertRootTensor(invalid, options.rootTensor, static_cast<std::int64_t>(tensors.size()));
    if (tensors.size() > 1) {
        check_not_coalesced("broadcast");
        c10d::assertTypeAndSizesMatch(invalid, tensors);
    }
    at::Tensor& tensor = tensors[static_cast<std::size_t>(options.rootTensor)];
    const TensorView view = view_of(tensor, "broadcast", "tensor");
    const BroadcastOptions ours{
        .group = group(), .group_src = static_cast<int>(options.rootRank), .timeout = timeout_of(options.timeout)};
    const Call call = call_of(functions::broadcast, options, ours);
    Call own = call;
    own.async_op = options.asyncOp && tensors.size() == 1;
    WorkPtr work = run_as(own, functions::broadcast, ours, keep(tensor, tensor), view);
    if (tensors.size() == 1) return work;
    for (at::Tensor& other : tensors) {
        if (!other.is_same(tensor)) other.copy_(tensor);
    }
    return finished(call, {tensors});
}

WorkPtr ProcessGroupTutti::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
    if (Staging::needed(tensors)) return on_host(tensors, [&](auto& copies) { return allreduce(copies, options); });
    if (tensors.size() != 1) {
        check_equal_inputs([&](const std::string& message) { refuse("allreduce", message); }, tensors);
    }
    at::Tensor& tensor = tensors.front();
    if (tensor.layout() != at::kStrided) return allreduce_sparse(tensors, options);
    const ReduceOp op = operator_of(options.reduceOp, "all_reduce");
    const AllReduceOptions ours{.op = op, .group = group(), .timeout = timeout_of(options.timeout)};
    if (tensors.size() != 1) return allreduce_several(call_of(functions::all_reduce, options, ours), tensors, op);
    const TensorView view = view_of(tensor, "all_reduce", "tensor", Use::combined);
    if (!is_supported(op.kind(), view.dtype())) check_supported(op, tensor, "all_reduce");
    return run(functions::all_reduce, options, ours, keep(tensors, tensors), view);
}

// Several tensors of one rank count as if each were another rank's; all get the result.
WorkPtr ProcessGroupTutti::allreduce_several(const Call& call, Tensors& tensors, ReduceOp op) {
    check_not_coalesced("allreduce");
    for (at::Tensor& tensor : tensors) check_supported(op, tensor, call.operation);
    Tensors copies;
    std::vector<const void*> inputs;
    for (at::Tensor& tensor : tensors) {
        copies.push_back(tensor.contiguous());
        inputs.push_back(copies.back().data_ptr());
    }
    at::Tensor sum = at::empty_like(copies.front());
    const TensorView view = view_of(sum, call.operation, "tensors", Use::combined);
    if (op.kind() == ReduceOp::Kind::premul_sum) refuse("allreduce", "ReduceOp.PREMUL_SUM takes one tensor");
    translating(
        [&] { combine(op, view.dtype(), view.data(), inputs, static_cast<std::uint64_t>(view.element_count())); });
    Call own = call;
    own.async_op = false;
    const AllReduceOptions ours{.op = op, .group = group(), .timeout = call.timeout};
    run_as(own, functions::all_reduce, ours, keep(sum, tensors), view);
    for (at::Tensor& tensor : tensors) tensor.copy_(sum);
    return finished(call, {tensors});
}

WorkPtr ProcessGroupTutti::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
    if (Staging::needed(tensors)) return on_host(tensors, [&](auto& copies) { return reduce(copies, options); });
    const Refuse invalid = [&](const std::string& message) { refuse("reduce", message); };
    c10d::assertRootRank(invalid, options.rootRank, size_);
    c10d::assertRootTensor(invalid, options.rootTensor, static_cast<std::int64_t>(tensors.size()));
    c10d::assertSingleElement(invalid, tensors);
    const ReduceOp op = operator_of(options.reduceOp, "reduce");
    const TensorView view = view_of(tensors[0], "reduce", "tensor", Use::combined);
    check_supported(op, tensors[0], "reduce");
    const tutti::ReduceOptions ours{.op = op,
                                    .group = group(),
                                    .group_dst = static_cast<int>(options.rootRank),
                                    .timeout = timeout_of(options.timeout)};
    return run(functions::reduce, options, ours, keep(tensors, tensors), view);
}

WorkPtr ProcessGroupTutti::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                     const c10d::AllgatherOptions& options) {
    if (Staging::needed(outputs, inputs))
        return on_host(outputs, inputs, [&](auto& to, auto& from) { return allgather(to, from, options); });
    const Refuse invalid = [&](const std::string& message) { refuse("allgather", message); };
    c10d::assertNonEmpty(invalid, inputs);
    if (inputs.size() != outputs.size()) invalid("requires input/output tensor lists to have the same length");
    const std::size_t expected = inputs.size() * static_cast<std::size_t>(size_);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
        if (outputs[i].size() == expected) continue;
        invalid(c10::str("invalid output tensor list at index ", i, " (expected length ", expected, ", got ",
                         outputs[i].size(), ")"));
    }
    if (inputs.size() > 1) return allgather_several(outputs, inputs, options);
    // tutti allows counts that differ between ranks, gloo does not.
    check_list(invalid, outputs[0], inputs[0], options_->backend == "gloo");
    const ConstTensorView input = view_of(inputs[0], "all_gather", "tensor");
    const TensorList views = views_of(outputs[0], "all_gather", "output_tensors");
    const CollectiveOptions ours{.group = group(), .timeout = timeout_of(options.timeout)};
    return run(functions::all_gather, options, ours, keep(outputs, inputs), views, input);
}

// Several inputs of each rank: every list of outputs gets all of them, rank by rank.
WorkPtr ProcessGroupTutti::allgather_several(std::vector<Tensors>& outputs, Tensors& inputs,
                                             const c10d::AllgatherOptions& options) {
    const Refuse invalid = [&](const std::string& message) { refuse("allgather", message); };
    check_not_coalesced("allgather");
    c10d::assertDense(invalid, inputs);
    check_list(invalid, inputs, inputs[0], true);
    for (const Tensors& list : outputs) check_list(invalid, list, inputs[0], true);
    const at::NoGradGuard no_grad;
    at::Tensor own = at::stack(inputs);
    std::vector<std::int64_t> shape = own.sizes().vec();
    shape[0] *= size_;
    at::Tensor all = at::empty(shape, own.options());
    c10d::AllgatherOptions blocking = options;
    blocking.asyncOp = false;
    _allgather_base(all, own, blocking);
    for (Tensors& list : outputs) {
        for (std::size_t i = 0; i < list.size(); ++i) list[i].copy_(all[static_cast<std::int64_t>(i)]);
    }
    const CollectiveOptions ours{.timeout = timeout_of(options.timeout)};
    return finished(call_of(functions::all_gather, options, ours), outputs);
}

WorkPtr ProcessGroupTutti::_allgather_base(at::Tensor& output, at::Tensor& input,
                                           const c10d::AllgatherOptions& options) {
    if (Staging::needed(output, input))
        return on_host(output, input, [&](auto& to, auto& from) { return _allgather_base(to, from, options); });
    if (output.scalar_type() != input.scalar_type())
        refuse("_allgather_base", "output tensor must have the same type as input tensor");
    if (output.numel() != input.numel() * size_) {
        refuse("_allgather_base", "output tensor size must be equal to world_size times input tensor size");
    }
    const TensorView to = view_of(output, "all_gather_into_tensor", "output_tensor");
    const ConstTensorView from = view_of(input, "all_gather_into_tensor", "input_tensor");
    const CollectiveOptions ours{.group = group(), .timeout = timeout_of(options.timeout)};
    return run(functions::all_gather_into_tensor, options, ours, keep(output, input), to, from);
}

WorkPtr ProcessGroupTutti::gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
    if (Staging::needed(outputs, inputs))
        return on_host(outputs, inputs, [&](auto& to, auto& from) { return gather(to, from, options); });
    const Refuse invalid = [&](const std::string& message) { refuse("gather", message); };
    c10d::assertRootRank(invalid, options.rootRank, size_);
    c10d::assertSingleElementInput(invalid, inputs);
    const bool root = rank_ == options.rootRank;
    if (root) {
        if (outputs.size() != 1) {
            invalid(c10::str("requires a single-element output list containing a list with ", size_, " tensors."));
        } else if (outputs[0].size() != static_cast<std::size_t>(size_)) {
            invalid(c10::str("Incorrect output list size ", outputs[0].size(), ". Output list size should be ", size_,
                             ", same as size of the process group."));
        }
        check_list(invalid, outputs[0], inputs[0], true);
    } else if (!outputs.empty()) {
        invalid("requires empty output on non-root");
    }
    const ConstTensorView input = view_of(inputs[0], "gather", "tensor");
    const TensorList views = root ? views_of(outputs[0], "gather", "gather_list") : TensorList();
    const GatherOptions ours{
        .group = group(), .group_dst = static_cast<int>(options.rootRank), .timeout = timeout_of(options.timeout)};
    return run(functions::gather, options, ours, keep(outputs, inputs), input, views);
}

WorkPtr ProcessGroupTutti::gather_into_tensor(at::Tensor& output, at::Tensor& input,
                                              const c10d::GatherOptions& options) {
    std::vector<Tensors> outputs;
    if (rank_ == options.rootRank) {
        if (output.numel() != input.numel() * size_ || !output.is_contiguous()) {
            refuse("gather_into_tensor",
                   "output tensor must be contiguous and have world_size times the input's elements");
        }
        outputs.emplace_back();
        for (const at::Tensor& part : output.view({-1}).chunk(size_)) outputs[0].push_back(part.view(input.sizes()));
        if (input.numel() == 0) outputs[0].assign(static_cast<std::size_t>(size_), input.new_empty(input.sizes()));
    }
    Tensors inputs{input};
    return gather(outputs, inputs, options);
}

WorkPtr ProcessGroupTutti::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                   const c10d::ScatterOptions& options) {
    if (Staging::needed(outputs, inputs))
        return on_host(outputs, inputs, [&](auto& to, auto& from) { return scatter(to, from, options); });
    const Refuse invalid = [&](const std::string& message) { refuse("scatter", message); };
    c10d::assertRootRank(invalid, options.rootRank, size_);
    c10d::assertSingleElementOutput(invalid, outputs);
    const bool root = rank_ == options.rootRank;
    if (root) {
        if (inputs.size() != 1) {
            invalid(c10::str("requires a single-element input list containing a list with ", size_, " tensors"));
        } else if (inputs[0].size() != static_cast<std::size_t>(size_)) {
            invalid(c10::str("Incorrect input list size ", inputs[0].size(), ". Input list size should be ", size_,
                             ", same as size of the process group."));
        }
        check_list(invalid, inputs[0], outputs[0], true);
    } else if (!inputs.empty()) {
        invalid("requires empty input on non-root");
    }
    const TensorView output = view_of(outputs[0], "scatter", "tensor");
    const ConstTensorList views = root ? const_views_of(inputs[0], "scatter", "scatter_list") : ConstTensorList();
    const ScatterOptions ours{
        .group = group(), .group_src = static_cast<int>(options.rootRank), .timeout = timeout_of(options.timeout)};
    const Tensors none;
    return run(functions::scatter, options, ours, keep(outputs, root ? inputs[0] : none), output, views);
}

WorkPtr ProcessGroupTutti::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                          const c10d::ReduceScatterOptions& options) {
    if (Staging::needed(outputs, inputs))
        return on_host(outputs, inputs, [&](auto& to, auto& from) { return reduce_scatter(to, from, options); });
    const Refuse invalid = [&](const std::string& message) { refuse("reduce_scatter", message); };
    c10d::assertSingleElementOutput(invalid, outputs);
    if (inputs.size() != 1) {
        invalid(c10::str("requires a single-element input list containing a list with ", size_, " tensors"));
    }
    if (inputs[0].size() != static_cast<std::size_t>(size_)) {
        invalid("invalid input tensor list size, must be world size");
    }
    check_list(invalid, inputs[0], outputs[0], false);
    const ReduceOp op = operator_of(options.reduceOp, "reduce_scatter");
    const TensorView output = view_of(outputs[0], "reduce_scatter", "output", Use::combined);
    const ConstTensorList views = const_views_of(inputs[0], "reduce_scatter", "input_list", Use::combined);
    check_supported(op, outputs[0], "reduce_scatter");
    const tutti::ReduceScatterOptions ours{.op = op, .group = group(), .timeout = timeout_of(options.timeout)};
    return run(functions::reduce_scatter, options, ours, keep(outputs, inputs[0]), output, views);
}

WorkPtr ProcessGroupTutti::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                const c10d::ReduceScatterOptions& options) {
    if (Staging::needed(output, input))
        return on_host(output, input, [&](auto& to, auto& from) { return _reduce_scatter_base(to, from, options); });
    if (output.scalar_type() != input.scalar_type())
        refuse("_reduce_scatter_base", "input tensor must be the same type as the output tensor.");
    if (input.numel() != output.numel() * size_) {
        refuse("_reduce_scatter_base", "input tensor must be the same size as output size times world size");
    }
    const ReduceOp op = operator_of(options.reduceOp, "reduce_scatter_tensor");
    const TensorView to = view_of(output, "reduce_scatter_tensor", "output", Use::combined);
    const ConstTensorView from = view_of(input, "reduce_scatter_tensor", "input", Use::combined);
    check_supported(op, output, "reduce_scatter_tensor");
    const tutti::ReduceScatterOptions ours{.op = op, .group = group(), .timeout = timeout_of(options.timeout)};
    return run(functions::reduce_scatter_tensor, options, ours, keep(output, input), to, from);
}

WorkPtr ProcessGroupTutti::alltoall_base(at::Tensor& output, at::Tensor& input,
                                         std::vector<std::int64_t>& output_splits,
                                         std::vector<std::int64_t>& input_splits,
                                         const c10d::AllToAllOptions& options) {
    if (Staging::needed(output, input))
        return on_host(output, input, [&](auto& to, auto& from) {
            return alltoall_base(to, from, output_splits, input_splits, options);
        });
    const Refuse invalid = [&](const std::string& message) { refuse("alltoall_base", message); };
    if (output.scalar_type() != input.scalar_type()) invalid("tensors are not equal in data type");
    // tutti takes strides, but gloo's callers expect the error.
    TORCH_CHECK_VALUE(options_->backend != "gloo" || (output.is_contiguous() && input.is_contiguous()),
                      "Tensors must be contiguous");
    const bool even = output_splits.empty() && input_splits.empty();
    if (even && output.numel() != input.numel()) invalid("tensors are not equal in size");
    c10d::checkSplitSizes(input_splits, input, size_);
    c10d::checkSplitSizes(output_splits, output, size_);
    const TensorView to =
        even ? view_of(output, "all_to_all_single", "output") : shaped_view_of(output, "all_to_all_single", "output");
    const ConstTensorView from =
        even ? view_of(input, "all_to_all_single", "input") : shaped_view_of(input, "all_to_all_single", "input");
    const AllToAllSingleOptions ours{.output_split_sizes = output_splits,
                                     .input_split_sizes = input_splits,
                                     .group = group(),
                                     .timeout = timeout_of(options.timeout)};
    Call call = call_of(functions::all_to_all_single, options, ours);
    if (Recorder::is_on())
        call.splits = {elements_of(input_splits, input, size_), elements_of(output_splits, output, size_)};
    return run_as(call, functions::all_to_all_single, ours, keep(output, input), to, from);
}

WorkPtr ProcessGroupTutti::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
    if (Staging::needed(outputs, inputs))
        return on_host(outputs, inputs, [&](auto& to, auto& from) { return alltoall(to, from, options); });
    const Refuse invalid = [&](const std::string& message) { refuse("alltoall", message); };
    if (outputs.size() != static_cast<std::size_t>(size_)) {
        invalid(c10::str("invalid output tensor list (expected length ", size_, ", got ", outputs.size(), ")"));
    }
    if (inputs.size() != static_cast<std::size_t>(size_)) {
        invalid(c10::str("invalid input tensor list (expected length ", size_, ", got ", inputs.size(), ")"));
    }
    const TensorList to = views_of(outputs, "all_to_all", "output_tensor_list");
    const ConstTensorList from = const_views_of(inputs, "all_to_all", "input_tensor_list");
    const CollectiveOptions ours{.group = group(), .timeout = timeout_of(options.timeout)};
    Call call = call_of(functions::all_to_all, options, ours);
    if (Recorder::is_on()) call.splits = {elements_of(inputs), elements_of(outputs)};
    return run_as(call, functions::all_to_all, ours, keep(outputs, inputs), to, from);
}

}  // namespace tutti::torch
