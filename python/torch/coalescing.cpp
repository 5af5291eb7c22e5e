// Several tensors in one call.
#include "issue.hpp"

#include <torch/csrc/distributed/c10d/Utils.hpp>

namespace tutti::torch {
namespace {

// Operation types that only later versions have: 2.14, 2.12.
template <class Type>
constexpr Type all_gather_into_tensor_type() {
    if constexpr (requires { Type::ALLGATHER_INTO_TENSOR_COALESCED; }) {
        return Type::ALLGATHER_INTO_TENSOR_COALESCED;
    } else {
        return Type::ALLGATHER_COALESCED;
    }
}
template <class Type>
constexpr Type reduce_scatter_tensor_type() {
    if constexpr (requires { Type::REDUCE_SCATTER_TENSOR_COALESCED; }) {
        return Type::REDUCE_SCATTER_TENSOR_COALESCED;
    } else {
        return Type::COALESCED;
    }
}

}  // namespace

WorkPtr ProcessGroupTutti::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
    if (Staging::needed(tensors))
        return on_host(tensors, [&](auto& copies) { return allreduce_coalesced(copies, options); });
    if (tensors.empty()) refuse("allreduce_coalesced", "requires non-empty tensor list");
    const ReduceOp op = operator_of(options.reduceOp, "all_reduce_coalesced");
    for (const at::Tensor& tensor : tensors) {
        if (tensor.layout() != at::kStrided) refuse("allreduce_coalesced", "tensors must all be dense");
        if (tensor.scalar_type() != tensors[0].scalar_type())
            refuse("allreduce_coalesced", "tensors must all have the same type");
        check_supported(op, tensor, "all_reduce_coalesced");
    }
    const TensorList views = views_of(tensors, "all_reduce_coalesced", "tensors", Use::combined);
    const AllReduceOptions ours{.op = op, .group = group(), .timeout = timeout_of(options.timeout)};
    return run(functions::all_reduce_coalesced.as(c10d::OpType::ALLREDUCE_COALESCED), options, ours,
               keep(tensors, tensors), views);
}

WorkPtr ProcessGroupTutti::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                               const c10d::AllgatherOptions& options) {
    if (Staging::needed(outputs, inputs))
        return on_host(outputs, inputs, [&](auto& to, auto& from) { return allgather_coalesced(to, from, options); });
    if (inputs.empty()) refuse("allgather_coalesced", "requires non-empty input tensor list");
    if (outputs.size() != static_cast<std::size_t>(size_)) {
        refuse("allgather_coalesced", "output lists should be equal to world size");
    }
    std::vector<TensorList> views;
    for (std::size_t rank = 0; rank < outputs.size(); ++rank) {
        if (outputs[rank].size() != inputs.size()) {
            refuse("allgather_coalesced", c10::str("invalid output size: (expected length ", inputs.size(), ", got ",
                                                   outputs[rank].size(), ")"));
        }
        for (std::size_t i = 0; i < inputs.size(); ++i) {
            const at::Tensor& output = outputs[rank][i];
            if (output.sizes() != inputs[i].sizes()) {
                refuse("allgather_coalesced",
                       c10::str("invalid size of output tensor at index ", i, " (expected length ",
                                c10d::toString(inputs[i].sizes()), ", got ", c10d::toString(output.sizes()), ")"));
            }
            if (output.scalar_type() != inputs[i].scalar_type()) {
                refuse("allgather_coalesced", c10::str("invalid tensor type at index ", i, " (expected ",
                                                       inputs[i].toString(), ", got ", output.toString(), ")"));
            }
        }
        views.push_back(views_of(outputs[rank], "all_gather_coalesced", "output_tensor_lists"));
    }
    const ConstTensorList from = const_views_of(inputs, "all_gather_coalesced", "input_tensor_list");
    const CollectiveOptions ours{.group = group(), .timeout = timeout_of(options.timeout)};
    return run(functions::all_gather_coalesced.as(c10d::OpType::ALLGATHER_COALESCED), options, ours,
               keep(outputs, inputs), views, from);
}

WorkPtr ProcessGroupTutti::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                           const c10d::AllgatherOptions& options) {
    if (Staging::needed(outputs, inputs))
        return on_host(outputs, inputs,
                       [&](auto& to, auto& from) { return allgather_into_tensor_coalesced(to, from, options); });
    if (outputs.size() != inputs.size()) {
        refuse("allgather_into_tensor_coalesced", "requires input/output tensor lists to have the same length");
    }
    const TensorList to = views_of(outputs, "all_gather_into_tensor_coalesced", "outputs");
    const ConstTensorList from = const_views_of(inputs, "all_gather_into_tensor_coalesced", "inputs");
    const CollectiveOptions ours{.group = group(), .timeout = timeout_of(options.timeout)};
    return run(functions::all_gather_into_tensor_coalesced.as(all_gather_into_tensor_type<c10d::OpType>()), options,
               ours, keep(outputs, inputs), to, from);
}

WorkPtr ProcessGroupTutti::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                           const c10d::ReduceScatterOptions& options) {
    if (Staging::needed(outputs, inputs))
        return on_host(outputs, inputs,
                       [&](auto& to, auto& from) { return reduce_scatter_tensor_coalesced(to, from, options); });
    if (outputs.size() != inputs.size()) {
        refuse("reduce_scatter_tensor_coalesced", "requires input/output tensor lists to have the same length");
    }
    const ReduceOp op = operator_of(options.reduceOp, "reduce_scatter_tensor_coalesced");
    for (const at::Tensor& tensor : outputs) check_supported(op, tensor, "reduce_scatter_tensor_coalesced");
    const TensorList to = views_of(outputs, "reduce_scatter_tensor_coalesced", "outputs", Use::combined);
    const ConstTensorList from = const_views_of(inputs, "reduce_scatter_tensor_coalesced", "inputs", Use::combined);
    const tutti::ReduceScatterOptions ours{.op = op, .group = group(), .timeout = timeout_of(options.timeout)};
    return run(functions::reduce_scatter_tensor_coalesced.as(reduce_scatter_tensor_type<c10d::OpType>()), options, ours,
               keep(outputs, inputs), to, from);
}

void ProcessGroupTutti::replay(const std::string& program, Tensors written, Tensors read) {
    check_not_coalesced("replay_");
    for (const at::Tensor& tensor : written) {
        if (!tensor.is_contiguous()) refuse("replay_", "requires tensors in one piece to be written");
    }
    sequence_.fetch_add(1, std::memory_order_relaxed);
    const CallSiteScope site(python::call_site());
    const Call call{"coalesced", c10d::OpType::COALESCED, false, std::chrono::milliseconds::zero()};
    std::optional<std::uint64_t> recorded;
    if (Recorder::is_on()) recorded = record(call, facts_of(call), {{written}, read});
    const auto end = [&](Recorder::End how) {
        if (recorded) Recorder::get().end(*recorded, how);
    };
    try {
        const std::shared_ptr<Pieces> pieces = pieces_;
        pieces->replay(group(), program, written, read);
        end(Recorder::End::well);
    } catch (const InvalidArgument&) {
        end(Recorder::End::failed);
        std::rethrow_exception(translated(std::current_exception(), {rank_, "replay_"}));
    } catch (const DistError&) {
        end(Recorder::End::failed);
        failures_.note(std::current_exception());
        std::rethrow_exception(translated(std::current_exception(), {rank_, "replay_"}));
    }
}

}  // namespace tutti::torch
