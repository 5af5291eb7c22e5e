// The collectives, in both forms. The functions are made from the table (tutti/collectives.def); the macros say how C
// passes what the table names: a function's tensors and its options.
#include "capi/common.hpp"
#include "capi/failure.hpp"
#include "capi/handles.hpp"
#include "core/assert.hpp"

#include <tutti/quantized.hpp>

#include <vector>

namespace tutti::capi {
namespace {

template <class Call>
tutti_status blocking(const char* function, const tutti_options* options, Call&& call) noexcept {
    TUTTI_ASSERT(function != nullptr);
    return guarded(function, [&](const char* f) { call(Common(f, options)); });
}

template <class Start>
tutti_status starting(const char* function, const tutti_options* options, tutti_work** work, Start&& start) noexcept {
    return guarded(function, [&](const char* f) {
        tutti_work*& result = out(f, "work", work);
        result = works().add(start(Common(f, options)));
    });
}

CollectiveOptions plain_options(const Common& o) {
    return {.group = o.group, .timeout = o.timeout};
}
AllReduceOptions reducing_options(const Common& o, int op) {
    return {.op = o.op(op), .group = o.group, .timeout = o.timeout};
}
BroadcastOptions broadcast_options(const Common& o, int src) {
    return {.src = o.global(src), .group = o.group, .group_src = o.in_group(src), .timeout = o.timeout};
}
ReduceOptions reduce_options(const Common& o, int dst, int op) {
    return {.dst = o.global(dst), .op = o.op(op), .group = o.group, .group_dst = o.in_group(dst), .timeout = o.timeout};
}
GatherOptions gather_options(const Common& o, int dst) {
    return {.dst = o.global(dst), .group = o.group, .group_dst = o.in_group(dst), .timeout = o.timeout};
}
ScatterOptions scatter_options(const Common& o, int src) {
    return {.src = o.global(src), .group = o.group, .group_src = o.in_group(src), .timeout = o.timeout};
}
// One number for each rank; NULL: none.
std::vector<std::int64_t> by_rank(const Common& o, const std::int64_t* numbers) {
    if (numbers == nullptr) return {};
    return {numbers, numbers + get_world_size(o.group)};
}
AllGatherVOptions gathering_options(const Common& o, const std::int64_t* output_splits,
                                    const std::int64_t* output_offsets) {
    return {.output_split_sizes = by_rank(o, output_splits),
            .output_offsets = by_rank(o, output_offsets),
            .group = o.group,
            .timeout = o.timeout};
}
GatherVOptions to_root_options(const Common& o, const std::int64_t* counts, const std::int64_t* offsets, int dst) {
    return {.receive_counts = by_rank(o, counts),
            .receive_offsets = by_rank(o, offsets),
            .dst = o.global(dst),
            .group = o.group,
            .group_dst = o.in_group(dst),
            .timeout = o.timeout};
}
ScatterVOptions of_root_options(const Common& o, const std::int64_t* counts, const std::int64_t* offsets, int src) {
    return {.send_counts = by_rank(o, counts),
            .send_offsets = by_rank(o, offsets),
            .src = o.global(src),
            .group = o.group,
            .group_src = o.in_group(src),
            .timeout = o.timeout};
}
// NULL: an empty one.
TensorView tensor_or_none(const char* function, const char* argument, const tutti_tensor* tensor) {
    return tensor == nullptr ? TensorView() : tensor_of(function, argument, tensor);
}
ReduceScatterVOptions scattering_options(const Common& o, int op, const std::int64_t* input_splits) {
    return {.input_split_sizes = by_rank(o, input_splits), .op = o.op(op), .group = o.group, .timeout = o.timeout};
}
AllToAllSingleOptions splits_options(const Common& o, const std::int64_t* output_splits,
                                     const std::int64_t* input_splits) {
    return {.output_split_sizes = by_rank(o, output_splits),
            .input_split_sizes = by_rank(o, input_splits),
            .group = o.group,
            .timeout = o.timeout};
}
AllToAllVOptions blocks_options(const Common& o, const std::int64_t* send_counts, const std::int64_t* send_offsets,
                                const std::int64_t* receive_counts, const std::int64_t* receive_offsets) {
    return {.send_counts = by_rank(o, send_counts),
            .send_offsets = by_rank(o, send_offsets),
            .receive_counts = by_rank(o, receive_counts),
            .receive_offsets = by_rank(o, receive_offsets),
            .group = o.group,
            .timeout = o.timeout};
}
BarrierOptions barrier_options(const Common& o) {
    return {.group = o.group, .timeout = o.timeout};
}
QuantizedOptions quantized_options(const Common& o, int op, const tutti_quantized_options* given) {
    const tutti_quantized_options q =
        options_of(o.function, "tutti_quantized_options", given, TUTTI_QUANTIZED_OPTIONS_INIT);
    const auto number = [&](const char* member, std::int32_t value, int max) {
        return number_of(o.function, member, value, 0, max);
    };
    QuantizedOptions options;
    options.type = static_cast<QuantizedType>(number("quantized.type", q.type, TUTTI_QUANTIZED_E5M2));
    options.block = q.block;
    options.scales = static_cast<QuantizedScales>(number("quantized.scales", q.scales, TUTTI_SCALES_SHARED));
    if (q.scale != 0) options.scale = q.scale;
    options.quantize_results = number("quantized.quantize_results", q.quantize_results, 1) == 1;
    options.rounding = static_cast<QuantizedRounding>(number("quantized.rounding", q.rounding, TUTTI_ROUND_STOCHASTIC));
    options.seed = q.seed;
    options.op = o.op(op);
    options.counts = by_rank(o, q.counts);
    options.group = o.group;
    options.timeout = o.timeout;
    return options;
}

}  // namespace
}  // namespace tutti::capi

using namespace tutti;
using namespace tutti::capi;

// The tensors: C's parameters, each with a comma behind it, and the C++ arguments made of them.
#define PARAMETERS_TensorInPlace const tutti_tensor *tensor,
#define TENSORS_TensorInPlace tensor_of(o.function, "tensor", tensor),

#define PARAMETERS_TensorAndRoot PARAMETERS_TensorInPlace
#define TENSORS_TensorAndRoot TENSORS_TensorInPlace

#define PARAMETERS_TensorFromTensor const tutti_tensor *output, const tutti_tensor *input,
#define TENSORS_TensorFromTensor tensor_of(o.function, "output", output), tensor_of(o.function, "input", input),

#define PARAMETERS_TensorFromList const tutti_tensor *output, const tutti_tensor *inputs, size_t count,
#define TENSORS_TensorFromList \
    tensor_of(o.function, "output", output), const_tensors_of(o.function, "inputs", inputs, count),

#define PARAMETERS_TensorFromRoot PARAMETERS_TensorFromList
#define TENSORS_TensorFromRoot TENSORS_TensorFromList

#define PARAMETERS_TensorToRoot const tutti_tensor *input, const tutti_tensor *output,
#define TENSORS_TensorToRoot tensor_of(o.function, "input", input), tensor_or_none(o.function, "output", output),

#define PARAMETERS_TensorOfRoot PARAMETERS_TensorFromTensor
#define TENSORS_TensorOfRoot tensor_of(o.function, "output", output), tensor_or_none(o.function, "input", input),

#define PARAMETERS_ListFromTensor const tutti_tensor *outputs, size_t count, const tutti_tensor *input,
#define TENSORS_ListFromTensor tensors_of(o.function, "outputs", outputs, count), tensor_of(o.function, "input", input),

#define PARAMETERS_ListToRoot const tutti_tensor *input, const tutti_tensor *outputs, size_t count,
#define TENSORS_ListToRoot tensor_of(o.function, "input", input), tensors_of(o.function, "outputs", outputs, count),

#define PARAMETERS_ListFromList const tutti_tensor *outputs, const tutti_tensor *inputs, size_t count,
#define TENSORS_ListFromList \
    tensors_of(o.function, "outputs", outputs, count), const_tensors_of(o.function, "inputs", inputs, count),

#define PARAMETERS_NoTensors
#define TENSORS_NoTensors

// The options: C's parameters beside tutti_options, likewise, and C++'s options made of both.
#define PARAMETERS_CollectiveOptions
#define OPTIONS_CollectiveOptions plain_options(o)

#define PARAMETERS_AllReduceOptions int op,
#define OPTIONS_AllReduceOptions reducing_options(o, op)

#define PARAMETERS_BroadcastOptions int src,
#define OPTIONS_BroadcastOptions broadcast_options(o, src)

#define PARAMETERS_ReduceOptions int dst, int op,
#define OPTIONS_ReduceOptions reduce_options(o, dst, op)

#define PARAMETERS_GatherOptions int dst,
#define OPTIONS_GatherOptions gather_options(o, dst)

#define PARAMETERS_ScatterOptions int src,
#define OPTIONS_ScatterOptions scatter_options(o, src)

#define PARAMETERS_AllGatherVOptions const int64_t *output_splits, const int64_t *output_offsets,
#define OPTIONS_AllGatherVOptions gathering_options(o, output_splits, output_offsets)

#define PARAMETERS_ReduceScatterVOptions int op, const int64_t *input_splits,
#define OPTIONS_ReduceScatterVOptions scattering_options(o, op, input_splits)

#define PARAMETERS_GatherVOptions const int64_t *receive_counts, const int64_t *receive_offsets, int dst,
#define OPTIONS_GatherVOptions to_root_options(o, receive_counts, receive_offsets, dst)

#define PARAMETERS_ScatterVOptions const int64_t *send_counts, const int64_t *send_offsets, int src,
#define OPTIONS_ScatterVOptions of_root_options(o, send_counts, send_offsets, src)

#define PARAMETERS_AllToAllSingleOptions const int64_t *output_splits, const int64_t *input_splits,
#define OPTIONS_AllToAllSingleOptions splits_options(o, output_splits, input_splits)

#define PARAMETERS_AllToAllVOptions                                                         \
    const int64_t *send_counts, const int64_t *send_offsets, const int64_t *receive_counts, \
        const int64_t *receive_offsets,
#define OPTIONS_AllToAllVOptions blocks_options(o, send_counts, send_offsets, receive_counts, receive_offsets)

#define PARAMETERS_BarrierOptions
#define OPTIONS_BarrierOptions barrier_options(o)

// Those of quantised collectives: an operator where they combine (the table's true and false).
#define PARAMETERS_QUANTIZED_true int op,
#define OPERATOR_true op
#define PARAMETERS_QUANTIZED_false
#define OPERATOR_false TUTTI_SUM

extern "C" {

#define TUTTI_COLLECTIVE_FUNCTION(name, collective, tensors, cpp_options, ...)                                       \
    tutti_status tutti_##name(PARAMETERS_##tensors PARAMETERS_##cpp_options const tutti_options* options) {          \
        return blocking(__func__, options, [&](const Common& o) { name(TENSORS_##tensors OPTIONS_##cpp_options); }); \
    }                                                                                                                \
    tutti_status tutti_##name##_async(PARAMETERS_##tensors PARAMETERS_##cpp_options const tutti_options* options,    \
                                      tutti_work** work) {                                                           \
        return starting(__func__, options, work,                                                                     \
                        [&](const Common& o) { return async::name(TENSORS_##tensors OPTIONS_##cpp_options); });      \
    }
#define TUTTI_QUANTIZED_FUNCTION(name, number, collective, combines, ...)                                      \
    tutti_status tutti_##name(                                                                                 \
        PARAMETERS_TensorFromTensor PARAMETERS_QUANTIZED_##combines const tutti_quantized_options* quantized,  \
        const tutti_options* options) {                                                                        \
        return blocking(__func__, options, [&](const Common& o) {                                              \
            name(TENSORS_TensorFromTensor quantized_options(o, OPERATOR_##combines, quantized));               \
        });                                                                                                    \
    }                                                                                                          \
    tutti_status tutti_##name##_async(                                                                         \
        PARAMETERS_TensorFromTensor PARAMETERS_QUANTIZED_##combines const tutti_quantized_options* quantized,  \
        const tutti_options* options, tutti_work** work) {                                                     \
        return starting(__func__, options, work, [&](const Common& o) {                                        \
            return async::name(TENSORS_TensorFromTensor quantized_options(o, OPERATOR_##combines, quantized)); \
        });                                                                                                    \
    }
#include <tutti/collectives.def>

// The former names.
tutti_status tutti_all_gather_into_tensor_uneven(const tutti_tensor* output, const tutti_tensor* input,
                                                 const int64_t* output_splits, const tutti_options* options) {
    return tutti_all_gather_v(output, input, output_splits, nullptr, options);
}
tutti_status tutti_all_gather_into_tensor_uneven_async(const tutti_tensor* output, const tutti_tensor* input,
                                                       const int64_t* output_splits, const tutti_options* options,
                                                       tutti_work** work) {
    return tutti_all_gather_v_async(output, input, output_splits, nullptr, options, work);
}
tutti_status tutti_reduce_scatter_tensor_uneven(const tutti_tensor* output, const tutti_tensor* input, int op,
                                                const int64_t* input_splits, const tutti_options* options) {
    return tutti_reduce_scatter_v(output, input, op, input_splits, options);
}
tutti_status tutti_reduce_scatter_tensor_uneven_async(const tutti_tensor* output, const tutti_tensor* input, int op,
                                                      const int64_t* input_splits, const tutti_options* options,
                                                      tutti_work** work) {
    return tutti_reduce_scatter_v_async(output, input, op, input_splits, options, work);
}

tutti_status tutti_monitored_barrier(int wait_all_ranks, const tutti_options* options) {
    return blocking(__func__, options, [&](const Common& o) {
        const bool all = number_of(o.function, "wait_all_ranks", wait_all_ranks, 0, 1) == 1;
        monitored_barrier({.group = o.group, .timeout = o.timeout, .wait_all_ranks = all});
    });
}

}  // extern "C"
