#include "group/backend_request.hpp"

#include "core/assert.hpp"
#include "operation/channel.hpp"

namespace tutti::detail {
namespace {

BackendCall call_of(const Operation& operation) {
    if (!operation.is_collective) return operation.is_receive ? BackendCall::receive : BackendCall::send;
    return static_cast<BackendCall>(operation.call.collective);
}

}  // namespace

BackendRequest request_of(const Operation& operation, const Ranks& ranks, Determinism determinism) {
    BackendRequest r;
    TUTTI_ASSERT(operation.run.sequence > 0 || !operation.is_collective);
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
        TUTTI_ASSERT(t.bytes % size_of(r.dtype) == 0);
        r.root = t.peer < 0 ? t.peer : ranks.rank_of(t.peer);
        r.tag = Channel::number(t.channel);
        r.input = t.source;
        r.output = t.target;
        r.count = t.bytes / size_of(r.dtype);
        return r;
    }
    const engine::CollectiveCall& call = operation.call;
    r.dtype = call.dtype;
    r.op = operation.on_device.premultiplied.value_or(ReduceOp(call.op));
    r.in_rank_order = determinism == Determinism::layout_invariant;
    r.root = recorded_root(call.collective, call.root);
    r.input = call.collective == Collective::broadcast ? nullptr : call.input;
    r.output = call.output;
    const CollectiveTraits& traits = traits_of(call.collective);
    TUTTI_ASSERT(!traits.is_rooted() || (call.root >= 0 && call.root < ranks.size()));
    if (traits.input == CollectiveTraits::Extent::whole || (traits.is_rooted() && !traits.exchanges()))
        r.count = call.count;
    engine::write_blocks(r, call, ranks.rank(), ranks.size());
    return r;
}

}  // namespace tutti::detail
