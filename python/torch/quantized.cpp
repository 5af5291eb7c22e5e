// The quantised collectives of tutti.torch, and their memory of losses.
#include "quantized.hpp"

#include "failure.hpp"
#include "issue.hpp"

#include <ATen/ATen.h>

#include <utility>

namespace tutti::torch {
namespace {

struct Kind {
    const char* name;
    c10d::OpType type;
    void (*blocking)(TensorView, ConstTensorView, const QuantizedOptions&);
    Work (*asynchronous)(TensorView, ConstTensorView, const QuantizedOptions&);
};

const Kind& kind_of(const std::string& name) {
    static const Kind kinds[] = {
#define TUTTI_QUANTIZED_FUNCTION(name, number, collective, combines, torch, ...) \
    {#name, c10d::OpType::torch, &tutti::name, &tutti::async::name},
#include <tutti/collectives.def>
    };
    for (const Kind& kind : kinds) {
        if (name == kind.name) return kind;
    }
    TORCH_CHECK_VALUE(false, "ProcessGroupTutti has no quantised collective ", name);
}

}  // namespace

QuantizedOptions options_of(const Quantization& how) {
    return translating([&] {
        QuantizedOptions o;
        o.type = quantized_type_from_string(how.type);
        o.block = how.block;
        o.scales = quantized_scales_from_string(how.scales);
        if (how.scale) o.scale = static_cast<float>(*how.scale);
        o.quantize_results = how.quantize_results;
        o.rounding = quantized_rounding_from_string(how.rounding);
        o.seed = how.seed;
        o.op = how.averages ? ReduceOp::avg : ReduceOp::sum;
        o.counts = how.counts;
        return o;
    });
}

WorkPtr ProcessGroupTutti::quantized(const std::string& operation, at::Tensor output, at::Tensor input,
                                     const Quantization& how, bool async_op) {
    const Kind& kind = kind_of(operation);
    check_not_coalesced(kind.name);
    if (Staging::needed(output, input))
        return on_host(output, input,
                       [&](auto& to, auto& from) { return quantized(operation, to, from, how, async_op); });
    QuantizedOptions options = options_of(how);
    options.group = group();
    const TensorView to = shaped_view_of(output, kind.name, "output");
    const ConstTensorView from = shaped_view_of(input, kind.name, "input");
    return issue(
        {kind.name, kind.type, async_op, options.timeout}, [&] { kind.blocking(to, from, options); },
        [&] { return kind.asynchronous(to, from, options); }, keep(output, input));
}

WorkPtr ProcessGroupTutti::quantized_by(TorchQuantizedReducer& reducer, at::Tensor tensor, std::int64_t bucket,
                                        bool async_op) {
    constexpr const char* name = "quantized_all_reduce";
    check_not_coalesced(name);
    TORCH_CHECK_VALUE(bucket >= 0, name, ": bucket is ", bucket, "; expected no negative number");
    if (Staging::needed(tensor))
        return on_host(tensor, [&](auto& copy) { return quantized_by(reducer, copy, bucket, async_op); });
    QuantizedReducer& ours = reducer.in(group());
    const TensorView view = shaped_view_of(tensor, name, "tensor");
    const auto index = static_cast<std::size_t>(bucket);
    return issue(
        {name, c10d::OpType::ALLREDUCE, async_op, std::chrono::milliseconds(0)}, [&] { ours.all_reduce(view, index); },
        [&] { return ours.start_all_reduce(view, index); }, keep(tensor, tensor));
}

QuantizedReducer& TorchQuantizedReducer::in(const ProcessGroup& group) {
    if (!reducer_) {
        options_.group = group;
        reducer_.emplace(options_);
    }
    TORCH_CHECK_VALUE(reducer_->options().group == group,
                      "QuantizedReducer: it has been used with another group; expected one group");
    return *reducer_;
}

at::Tensor TorchQuantizedReducer::residual(std::int64_t bucket) const {
    if (!reducer_ || bucket < 0) return at::empty({0}, at::kFloat);
    const tutti::Tensor found = reducer_->residual(static_cast<std::size_t>(bucket));
    at::Tensor copied = at::empty({found.element_count()}, at::kFloat);
    if (found.element_count() > 0) std::memcpy(copied.data_ptr(), found.raw_data(), found.byte_count());
    return copied;
}

}  // namespace tutti::torch
