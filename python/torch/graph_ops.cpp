// The operators tutti_graph::*, for compiled graphs: operations that torch.ops._c10d_functional lacks, or has only in
// asynchronous form. These are done when they return, so that no Work is kept and nothing waits. tutti.graph gives them
// their shapes, gradients and lowerings.
//
// Groups are given by the names under which PyTorch has registered them; any backend of theirs serves.
#include "process_group.hpp"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <array>
#include <string_view>

namespace tutti::torch {
namespace {

c10d::ReduceOp reduce_op_of(std::string_view name) {
    using Kind = c10d::ReduceOp::RedOpType;
    static constexpr std::array<std::pair<std::string_view, Kind>, 8> kinds{{{"sum", Kind::SUM},
                                                                             {"avg", Kind::AVG},
                                                                             {"product", Kind::PRODUCT},
                                                                             {"min", Kind::MIN},
                                                                             {"max", Kind::MAX},
                                                                             {"band", Kind::BAND},
                                                                             {"bor", Kind::BOR},
                                                                             {"bxor", Kind::BXOR}}};
    for (const auto& [known, kind] : kinds) {
        if (known == name) return kind;
    }
    TORCH_CHECK_VALUE(false, "tutti_graph: reduce_op \"", name,
                      "\"; expected sum, avg, product, min, max, band, bor or bxor");
}

c10::intrusive_ptr<c10d::Backend> backend_of(const std::string& group, const at::Tensor& tensor) {
    return c10d::resolve_process_group(group)->getBackend(tensor.device().type());
}
void finish(const WorkPtr& work) {
    if (work) work->wait();
}
template <class Options>
Options blocking(Options options = {}) {
    options.asyncOp = false;
    return options;
}
c10d::AllreduceOptions reducing(std::string_view op) {
    c10d::AllreduceOptions options = blocking<c10d::AllreduceOptions>();
    options.reduceOp = reduce_op_of(op);
    return options;
}
c10d::ReduceScatterOptions scattering(std::string_view op) {
    c10d::ReduceScatterOptions options = blocking<c10d::ReduceScatterOptions>();
    options.reduceOp = reduce_op_of(op);
    return options;
}

/// As many rows as `factor` times those of `tensor`, or a part of them; a scalar counts as a row.
at::Tensor with_rows(const at::Tensor& tensor, std::int64_t rows) {
    std::vector<std::int64_t> shape = tensor.sizes().vec();
    if (shape.empty()) shape.push_back(1);
    shape[0] = rows;
    return at::empty(shape, tensor.options().memory_format(at::MemoryFormat::Contiguous));
}
std::int64_t rows_of(const at::Tensor& tensor) {
    return tensor.dim() == 0 ? 1 : tensor.size(0);
}
at::Tensor token_for(const at::Tensor& tensor) {
    return at::empty({0}, tensor.options());
}

void all_reduce_(at::Tensor tensor, const std::string& op, const std::string& group) {
    Tensors tensors{std::move(tensor)};
    finish(backend_of(group, tensors[0])->allreduce(tensors, reducing(op)));
}

void all_reduce_coalesced_(const std::vector<at::Tensor>& given, const std::string& op, const std::string& group) {
    if (given.empty()) return;
    Tensors tensors = given;
    c10d::AllreduceCoalescedOptions options = blocking<c10d::AllreduceCoalescedOptions>();
    options.reduceOp = reduce_op_of(op);
    finish(backend_of(group, tensors[0])->allreduce_coalesced(tensors, options));
}

void broadcast_(at::Tensor tensor, std::int64_t root, const std::string& group) {
    Tensors tensors{std::move(tensor)};
    c10d::BroadcastOptions options = blocking<c10d::BroadcastOptions>();
    options.rootRank = root;
    finish(backend_of(group, tensors[0])->broadcast(tensors, options));
}

at::Tensor all_gather_into_tensor(const at::Tensor& input, std::int64_t group_size, const std::string& group) {
    at::Tensor output = with_rows(input, rows_of(input) * group_size), from = input.contiguous();
    finish(backend_of(group, input)->_allgather_base(output, from, blocking<c10d::AllgatherOptions>()));
    return output;
}

std::vector<at::Tensor> all_gather_into_tensor_coalesced(const std::vector<at::Tensor>& inputs, std::int64_t group_size,
                                                         const std::string& group) {
    Tensors outputs, from;
    for (const at::Tensor& input : inputs) {
        outputs.push_back(with_rows(input, rows_of(input) * group_size));
        from.push_back(input.contiguous());
    }
    if (inputs.empty()) return outputs;
    finish(
        backend_of(group, from[0])->allgather_into_tensor_coalesced(outputs, from, blocking<c10d::AllgatherOptions>()));
    return outputs;
}

at::Tensor reduce_scatter_tensor(const at::Tensor& input, const std::string& op, std::int64_t group_size,
                                 const std::string& group) {
    at::Tensor output = with_rows(input, rows_of(input) / group_size), from = input.contiguous();
    finish(backend_of(group, input)->_reduce_scatter_base(output, from, scattering(op)));
    return output;
}

std::vector<at::Tensor> reduce_scatter_tensor_coalesced(const std::vector<at::Tensor>& inputs, const std::string& op,
                                                        std::int64_t group_size, const std::string& group) {
    Tensors outputs, from;
    for (const at::Tensor& input : inputs) {
        outputs.push_back(with_rows(input, rows_of(input) / group_size));
        from.push_back(input.contiguous());
    }
    if (inputs.empty()) return outputs;
    finish(backend_of(group, from[0])->reduce_scatter_tensor_coalesced(outputs, from, scattering(op)));
    return outputs;
}

at::Tensor all_to_all_single(const at::Tensor& input, at::IntArrayRef output_sizes, at::IntArrayRef input_sizes,
                             const std::string& group) {
    std::vector<std::int64_t> received = output_sizes.vec(), sent = input_sizes.vec();
    std::int64_t rows = 0;
    for (const std::int64_t size : received) rows += size;
    at::Tensor output = with_rows(input, rows), from = input.contiguous();
    finish(backend_of(group, input)->alltoall_base(output, from, received, sent, blocking<c10d::AllToAllOptions>()));
    return output;
}

at::Tensor all_gather_into_tensor_uneven(const at::Tensor& input, at::IntArrayRef sizes, const std::string& group) {
    const auto backend = backend_of(group, input);
    std::int64_t rows = 0;
    for (const std::int64_t size : sizes) rows += size;
    at::Tensor output = with_rows(input, rows), from = input.contiguous();
    if (backend->getBackendName() == "gloo") {  // gloo gathers equal sizes only, but exchanges unequal ones
        std::vector<std::int64_t> repeats(static_cast<std::size_t>(std::max<std::int64_t>(from.dim(), 1)), 1);
        repeats[0] = backend->getSize();
        at::Tensor for_all = from.repeat(repeats);
        std::vector<std::int64_t> received = sizes.vec(), sent(sizes.size(), rows_of(from));
        finish(backend->alltoall_base(output, for_all, received, sent, blocking<c10d::AllToAllOptions>()));
        return output;
    }
    std::vector<Tensors> outputs{output.split_with_sizes(sizes)};
    Tensors inputs{from};
    finish(backend->allgather(outputs, inputs, blocking<c10d::AllgatherOptions>()));
    return output;
}

at::Tensor reduce_scatter_tensor_uneven(const at::Tensor& input, at::IntArrayRef sizes, const std::string& op,
                                        const std::string& group) {
    const auto backend = backend_of(group, input);
    TORCH_CHECK_VALUE(sizes.size() == static_cast<std::size_t>(backend->getSize()),
                      "reduce_scatter_tensor_uneven: input_split_sizes has ", sizes.size(), " entries; expected ",
                      backend->getSize());
    Tensors outputs{with_rows(input, sizes[static_cast<std::size_t>(backend->getRank())])};
    std::vector<Tensors> inputs{input.contiguous().split_with_sizes(sizes)};
    finish(backend->reduce_scatter(outputs, inputs, scattering(op)));
    return outputs[0];
}

at::Tensor reduce(const at::Tensor& tensor, const std::string& op, std::int64_t root, const std::string& group) {
    Tensors tensors{tensor.clone(at::MemoryFormat::Contiguous)};
    c10d::ReduceOptions options = blocking<c10d::ReduceOptions>();
    options.reduceOp = reduce_op_of(op);
    options.rootRank = root;
    finish(backend_of(group, tensor)->reduce(tensors, options));
    return tensors[0];
}

/// Empty but on the root.
at::Tensor gather(const at::Tensor& tensor, std::int64_t root, std::int64_t group_size, const std::string& group) {
    const auto backend = backend_of(group, tensor);
    Tensors inputs{tensor.contiguous()};
    std::vector<Tensors> outputs;
    at::Tensor all = with_rows(tensor, backend->getRank() == root ? rows_of(tensor) * group_size : 0);
    if (backend->getRank() == root) {
        outputs.emplace_back();
        for (std::int64_t r = 0; r < group_size; ++r)
            outputs[0].push_back(all.narrow(0, r * rows_of(tensor), rows_of(tensor)).view(tensor.sizes()));
    }
    c10d::GatherOptions options = blocking<c10d::GatherOptions>();
    options.rootRank = root;
    finish(backend->gather(outputs, inputs, options));
    return all;
}

at::Tensor scatter(const at::Tensor& like, const std::vector<at::Tensor>& given, std::int64_t root,
                   const std::string& group) {
    const auto backend = backend_of(group, like);
    Tensors outputs{at::empty_like(like, {}, at::MemoryFormat::Contiguous)};
    std::vector<Tensors> inputs;
    if (backend->getRank() == root) {
        inputs.emplace_back();
        for (const at::Tensor& tensor : given) inputs[0].push_back(tensor.contiguous());
    }
    c10d::ScatterOptions options = blocking<c10d::ScatterOptions>();
    options.rootRank = root;
    finish(backend->scatter(outputs, inputs, options));
    return outputs[0];
}

at::Tensor barrier(const at::Tensor& token, const std::string& group) {
    finish(backend_of(group, token)->barrier(blocking<c10d::BarrierOptions>()));
    return token_for(token);
}

at::Tensor send(const at::Tensor& tensor, std::int64_t to, std::int64_t tag, const std::string& group) {
    Tensors tensors{tensor.contiguous()};
    finish(backend_of(group, tensor)->send(tensors, static_cast<int>(to), static_cast<int>(tag)));
    return token_for(tensor);
}

WorkPtr receive(Tensors& tensors, std::int64_t from, std::int64_t tag, const std::string& group) {
    const auto backend = backend_of(group, tensors[0]);
    if (from < 0) return backend->recvAnysource(tensors, static_cast<int>(tag));
    return backend->recv(tensors, static_cast<int>(from), static_cast<int>(tag));
}

at::Tensor recv(const at::Tensor& like, std::int64_t from, std::int64_t tag, const std::string& group) {
    Tensors tensors{at::empty_like(like, {}, at::MemoryFormat::Contiguous)};
    finish(receive(tensors, from, tag, group));
    return tensors[0];
}

/// These two are asynchronous: _c10d_functional::wait_tensor of their results waits for them.
at::Tensor start_send(const at::Tensor& tensor, std::int64_t to, std::int64_t tag, const std::string& group) {
    Tensors tensors{tensor.clone(at::MemoryFormat::Contiguous)};
    c10d::register_work(tensors[0],
                        backend_of(group, tensor)->send(tensors, static_cast<int>(to), static_cast<int>(tag)));
    return tensors[0];
}

at::Tensor start_recv(const at::Tensor& like, std::int64_t from, std::int64_t tag, const std::string& group) {
    Tensors tensors{at::empty_like(like, {}, at::MemoryFormat::Contiguous)};
    c10d::register_work(tensors[0], receive(tensors, from, tag, group));
    return tensors[0];
}

/// Writes `written`, reads `read`: pieces.hpp.
void replay_(const std::vector<at::Tensor>& written, const std::vector<at::Tensor>& read, const std::string& program,
             const std::string& group) {
    const auto backend = c10d::resolve_process_group(group)->getBackend(at::kCPU);
    auto* const own = dynamic_cast<ProcessGroupTutti*>(backend.get());
    TORCH_CHECK_VALUE(own != nullptr, "tutti_graph::replay_: group ", group, " has the backend ",
                      backend->getBackendName(), "; expected tutti, as when the graph was compiled");
    Tensors from;
    for (const at::Tensor& tensor : read) from.push_back(tensor.contiguous());
    own->replay(program, written, std::move(from));
}

void define_graph_ops(::torch::Library& library) {
    const std::vector<at::Tag> tags{at::Tag::pt2_compliant_tag};
    for (const char* schema : {
             "all_reduce_(Tensor(a!) tensor, str reduce_op, str group_name) -> ()",
             "all_reduce_coalesced_(Tensor(a!)[] tensors, str reduce_op, str group_name) -> ()",
             "broadcast_(Tensor(a!) tensor, int root, str group_name) -> ()",
             "replay_(Tensor(a!)[] written, Tensor[] read, str program, str group_name) -> ()",
             "all_gather_into_tensor(Tensor input, int group_size, str group_name) -> Tensor",
             "all_gather_into_tensor_coalesced(Tensor[] inputs, int group_size, str group_name) -> Tensor[]",
             "reduce_scatter_tensor(Tensor input, str reduce_op, int group_size, str group_name) -> Tensor",
             "reduce_scatter_tensor_coalesced(Tensor[] inputs, str reduce_op, int group_size, str group_name) -> "
             "Tensor[]",
             "all_to_all_single(Tensor input, SymInt[] output_split_sizes, SymInt[] input_split_sizes, str group_name) "
             "-> Tensor",
             "all_gather_into_tensor_uneven(Tensor input, SymInt[] output_split_sizes, str group_name) -> Tensor",
             "reduce_scatter_tensor_uneven(Tensor input, SymInt[] input_split_sizes, str reduce_op, str group_name) -> "
             "Tensor",
             "reduce(Tensor tensor, str reduce_op, int root, str group_name) -> Tensor",
             "gather(Tensor tensor, int root, int group_size, str group_name) -> Tensor",
             "scatter(Tensor like, Tensor[] inputs, int root, str group_name) -> Tensor",
             "barrier(Tensor token, str group_name) -> Tensor",
             "send(Tensor tensor, int to, int tag, str group_name) -> Tensor",
             "recv(Tensor like, int source, int tag, str group_name) -> Tensor",
             "start_send(Tensor tensor, int to, int tag, str group_name) -> Tensor",
             "start_recv(Tensor like, int source, int tag, str group_name) -> Tensor",
         }) {
        library.def(schema, tags);
    }
}

void implement_graph_ops(::torch::Library& library) {
    library.impl("all_reduce_", &all_reduce_);
    library.impl("all_reduce_coalesced_", &all_reduce_coalesced_);
    library.impl("broadcast_", &broadcast_);
    library.impl("replay_", &replay_);
    library.impl("all_gather_into_tensor", &all_gather_into_tensor);
    library.impl("all_gather_into_tensor_coalesced", &all_gather_into_tensor_coalesced);
    library.impl("reduce_scatter_tensor", &reduce_scatter_tensor);
    library.impl("reduce_scatter_tensor_coalesced", &reduce_scatter_tensor_coalesced);
    library.impl("all_to_all_single", &all_to_all_single);
    library.impl("all_gather_into_tensor_uneven", &all_gather_into_tensor_uneven);
    library.impl("reduce_scatter_tensor_uneven", &reduce_scatter_tensor_uneven);
    library.impl("reduce", &reduce);
    library.impl("gather", &gather);
    library.impl("scatter", &scatter);
    library.impl("barrier", &barrier);
    library.impl("send", &send);
    library.impl("recv", &recv);
    library.impl("start_send", &start_send);
    library.impl("start_recv", &start_recv);
}
}  // namespace
}  // namespace tutti::torch

TORCH_LIBRARY(tutti_graph, library) {
    tutti::torch::define_graph_ops(library);
}
TORCH_LIBRARY_IMPL(tutti_graph, CPU, library) {
    tutti::torch::implement_graph_ops(library);
}
TORCH_LIBRARY_IMPL(tutti_graph, CUDA, library) {
    tutti::torch::implement_graph_ops(library);
}
