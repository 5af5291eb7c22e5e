#include "group/backend_request.hpp"

#include "group/channel.hpp"

namespace tutti::detail {
namespace {

BackendCall call_of(const Operation& operation) {
    if (!operation.is_collective) return operation.is_receive ? BackendCall::receive : BackendCall::send;
    return static_cast<BackendCall>(operation.request.collective);
}

}  // namespace

BackendRequest request_of(const Operation& operation, const Ranks& ranks, Determinism determinism) {
    BackendRequest r;
    r.call = call_of(operation);
    r.name = operation.name;
    r.sequence = operation.run.sequence;
    r.device = operation.device;
    r.timeout = operation.timeout;
    r.stream = operation.stream;
    r.inputs = operation.on_device.input_blocks;
    r.outputs = operation.on_device.output_blocks;
    if (!operation.is_collective) {
        const transport::Transfer& t = operation.transfer;
        r.dtype = operation.outputs.empty() ? DType::uint8 : operation.outputs.front().dtype();
        r.root = t.peer < 0 ? t.peer : ranks.rank_of(t.peer);
        r.tag = Channel::number(t.channel);
        r.input = t.source;
        r.output = t.target;
        r.count = t.bytes / size_of(r.dtype);
        return r;
    }
    const algorithm::Request& request = operation.request;
    r.dtype = operation.call.dtype;
    r.op = operation.on_device.premultiplied.value_or(ReduceOp(operation.call.op));
    r.in_rank_order = determinism == Determinism::layout_invariant;
    r.root = recorded_root(request.collective, request.root);
    r.input = request.collective == Collective::broadcast ? nullptr : operation.call.input;
    r.output = operation.call.output;
    r.count = request.count;
    r.counts = request.counts;
    if (request.collective == Collective::gather || request.collective == Collective::scatter)
        r.count = request.counts.empty() ? 0 : request.counts.front();
    r.send_counts = request.send_counts;
    r.send_offsets = request.send_offsets;
    r.receive_counts = request.receive_counts;
    r.receive_offsets = request.receive_offsets;
    return r;
}

}  // namespace tutti::detail
