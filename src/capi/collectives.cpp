// The collectives, in both forms.
#include "capi/failure.hpp"
#include "capi/handles.hpp"

#include <tutti/quantized.hpp>

#include <vector>

namespace tutti::capi {
namespace {

template <class Call>
tutti_status blocking(const char* function, const tutti_options* options, Call&& call) noexcept {
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
AllGatherUnevenOptions gathering_options(const Common& o, const std::int64_t* output_splits) {
    return {.output_split_sizes = by_rank(o, output_splits), .group = o.group, .timeout = o.timeout};
}
ReduceScatterUnevenOptions scattering_options(const Common& o, int op, const std::int64_t* input_splits) {
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

extern "C" {

tutti_status tutti_broadcast(const tutti_tensor* tensor, int src, const tutti_options* options) {
    return blocking(__func__, options, [&](const Common& o) {
        broadcast(tensor_of(o.function, "tensor", tensor), broadcast_options(o, src));
    });
}
tutti_status tutti_broadcast_async(const tutti_tensor* tensor, int src, const tutti_options* options,
                                   tutti_work** work) {
    return starting(__func__, options, work, [&](const Common& o) {
        return async::broadcast(tensor_of(o.function, "tensor", tensor), broadcast_options(o, src));
    });
}

tutti_status tutti_all_reduce(const tutti_tensor* tensor, int op, const tutti_options* options) {
    return blocking(__func__, options, [&](const Common& o) {
        all_reduce(tensor_of(o.function, "tensor", tensor), reducing_options(o, op));
    });
}
tutti_status tutti_all_reduce_async(const tutti_tensor* tensor, int op, const tutti_options* options,
                                    tutti_work** work) {
    return starting(__func__, options, work, [&](const Common& o) {
        return async::all_reduce(tensor_of(o.function, "tensor", tensor), reducing_options(o, op));
    });
}

tutti_status tutti_reduce(const tutti_tensor* tensor, int dst, int op, const tutti_options* options) {
    return blocking(__func__, options, [&](const Common& o) {
        reduce(tensor_of(o.function, "tensor", tensor), reduce_options(o, dst, op));
    });
}
tutti_status tutti_reduce_async(const tutti_tensor* tensor, int dst, int op, const tutti_options* options,
                                tutti_work** work) {
    return starting(__func__, options, work, [&](const Common& o) {
        return async::reduce(tensor_of(o.function, "tensor", tensor), reduce_options(o, dst, op));
    });
}

tutti_status tutti_all_gather(const tutti_tensor* outputs, size_t count, const tutti_tensor* input,
                              const tutti_options* options) {
    return blocking(__func__, options, [&](const Common& o) {
        all_gather(tensors_of(o.function, "outputs", outputs, count), tensor_of(o.function, "input", input),
                   plain_options(o));
    });
}
tutti_status tutti_all_gather_async(const tutti_tensor* outputs, size_t count, const tutti_tensor* input,
                                    const tutti_options* options, tutti_work** work) {
    return starting(__func__, options, work, [&](const Common& o) {
        return async::all_gather(tensors_of(o.function, "outputs", outputs, count),
                                 tensor_of(o.function, "input", input), plain_options(o));
    });
}

tutti_status tutti_all_gather_into_tensor(const tutti_tensor* output, const tutti_tensor* input,
                                          const tutti_options* options) {
    return blocking(__func__, options, [&](const Common& o) {
        all_gather_into_tensor(tensor_of(o.function, "output", output), tensor_of(o.function, "input", input),
                               plain_options(o));
    });
}
tutti_status tutti_all_gather_into_tensor_async(const tutti_tensor* output, const tutti_tensor* input,
                                                const tutti_options* options, tutti_work** work) {
    return starting(__func__, options, work, [&](const Common& o) {
        return async::all_gather_into_tensor(tensor_of(o.function, "output", output),
                                             tensor_of(o.function, "input", input), plain_options(o));
    });
}

tutti_status tutti_gather(const tutti_tensor* input, const tutti_tensor* outputs, size_t count, int dst,
                          const tutti_options* options) {
    return blocking(__func__, options, [&](const Common& o) {
        gather(tensor_of(o.function, "input", input), tensors_of(o.function, "outputs", outputs, count),
               gather_options(o, dst));
    });
}
tutti_status tutti_gather_async(const tutti_tensor* input, const tutti_tensor* outputs, size_t count, int dst,
                                const tutti_options* options, tutti_work** work) {
    return starting(__func__, options, work, [&](const Common& o) {
        return async::gather(tensor_of(o.function, "input", input), tensors_of(o.function, "outputs", outputs, count),
                             gather_options(o, dst));
    });
}

tutti_status tutti_scatter(const tutti_tensor* output, const tutti_tensor* inputs, size_t count, int src,
                           const tutti_options* options) {
    return blocking(__func__, options, [&](const Common& o) {
        scatter(tensor_of(o.function, "output", output), const_tensors_of(o.function, "inputs", inputs, count),
                scatter_options(o, src));
    });
}
tutti_status tutti_scatter_async(const tutti_tensor* output, const tutti_tensor* inputs, size_t count, int src,
                                 const tutti_options* options, tutti_work** work) {
    return starting(__func__, options, work, [&](const Common& o) {
        return async::scatter(tensor_of(o.function, "output", output),
                              const_tensors_of(o.function, "inputs", inputs, count), scatter_options(o, src));
    });
}

tutti_status tutti_reduce_scatter(const tutti_tensor* output, const tutti_tensor* inputs, size_t count, int op,
                                  const tutti_options* options) {
    return blocking(__func__, options, [&](const Common& o) {
        reduce_scatter(tensor_of(o.function, "output", output), const_tensors_of(o.function, "inputs", inputs, count),
                       reducing_options(o, op));
    });
}
tutti_status tutti_reduce_scatter_async(const tutti_tensor* output, const tutti_tensor* inputs, size_t count, int op,
                                        const tutti_options* options, tutti_work** work) {
    return starting(__func__, options, work, [&](const Common& o) {
        return async::reduce_scatter(tensor_of(o.function, "output", output),
                                     const_tensors_of(o.function, "inputs", inputs, count), reducing_options(o, op));
    });
}

tutti_status tutti_reduce_scatter_tensor(const tutti_tensor* output, const tutti_tensor* input, int op,
                                         const tutti_options* options) {
    return blocking(__func__, options, [&](const Common& o) {
        reduce_scatter_tensor(tensor_of(o.function, "output", output), tensor_of(o.function, "input", input),
                              reducing_options(o, op));
    });
}
tutti_status tutti_reduce_scatter_tensor_async(const tutti_tensor* output, const tutti_tensor* input, int op,
                                               const tutti_options* options, tutti_work** work) {
    return starting(__func__, options, work, [&](const Common& o) {
        return async::reduce_scatter_tensor(tensor_of(o.function, "output", output),
                                            tensor_of(o.function, "input", input), reducing_options(o, op));
    });
}

tutti_status tutti_all_gather_into_tensor_uneven(const tutti_tensor* output, const tutti_tensor* input,
                                                 const int64_t* output_splits, const tutti_options* options) {
    return blocking(__func__, options, [&](const Common& o) {
        all_gather_into_tensor_uneven(tensor_of(o.function, "output", output), tensor_of(o.function, "input", input),
                                      gathering_options(o, output_splits));
    });
}
tutti_status tutti_all_gather_into_tensor_uneven_async(const tutti_tensor* output, const tutti_tensor* input,
                                                       const int64_t* output_splits, const tutti_options* options,
                                                       tutti_work** work) {
    return starting(__func__, options, work, [&](const Common& o) {
        return async::all_gather_into_tensor_uneven(tensor_of(o.function, "output", output),
                                                    tensor_of(o.function, "input", input),
                                                    gathering_options(o, output_splits));
    });
}

tutti_status tutti_reduce_scatter_tensor_uneven(const tutti_tensor* output, const tutti_tensor* input, int op,
                                                const int64_t* input_splits, const tutti_options* options) {
    return blocking(__func__, options, [&](const Common& o) {
        reduce_scatter_tensor_uneven(tensor_of(o.function, "output", output), tensor_of(o.function, "input", input),
                                     scattering_options(o, op, input_splits));
    });
}
tutti_status tutti_reduce_scatter_tensor_uneven_async(const tutti_tensor* output, const tutti_tensor* input, int op,
                                                      const int64_t* input_splits, const tutti_options* options,
                                                      tutti_work** work) {
    return starting(__func__, options, work, [&](const Common& o) {
        return async::reduce_scatter_tensor_uneven(tensor_of(o.function, "output", output),
                                                   tensor_of(o.function, "input", input),
                                                   scattering_options(o, op, input_splits));
    });
}

tutti_status tutti_all_to_all(const tutti_tensor* outputs, const tutti_tensor* inputs, size_t count,
                              const tutti_options* options) {
    return blocking(__func__, options, [&](const Common& o) {
        all_to_all(tensors_of(o.function, "outputs", outputs, count),
                   const_tensors_of(o.function, "inputs", inputs, count), plain_options(o));
    });
}
tutti_status tutti_all_to_all_async(const tutti_tensor* outputs, const tutti_tensor* inputs, size_t count,
                                    const tutti_options* options, tutti_work** work) {
    return starting(__func__, options, work, [&](const Common& o) {
        return async::all_to_all(tensors_of(o.function, "outputs", outputs, count),
                                 const_tensors_of(o.function, "inputs", inputs, count), plain_options(o));
    });
}

tutti_status tutti_all_to_all_single(const tutti_tensor* output, const tutti_tensor* input,
                                     const int64_t* output_splits, const int64_t* input_splits,
                                     const tutti_options* options) {
    return blocking(__func__, options, [&](const Common& o) {
        all_to_all_single(tensor_of(o.function, "output", output), tensor_of(o.function, "input", input),
                          splits_options(o, output_splits, input_splits));
    });
}
tutti_status tutti_all_to_all_single_async(const tutti_tensor* output, const tutti_tensor* input,
                                           const int64_t* output_splits, const int64_t* input_splits,
                                           const tutti_options* options, tutti_work** work) {
    return starting(__func__, options, work, [&](const Common& o) {
        return async::all_to_all_single(tensor_of(o.function, "output", output), tensor_of(o.function, "input", input),
                                        splits_options(o, output_splits, input_splits));
    });
}

tutti_status tutti_all_to_all_v(const tutti_tensor* output, const tutti_tensor* input, const int64_t* send_counts,
                                const int64_t* send_offsets, const int64_t* receive_counts,
                                const int64_t* receive_offsets, const tutti_options* options) {
    return blocking(__func__, options, [&](const Common& o) {
        all_to_all_v(tensor_of(o.function, "output", output), tensor_of(o.function, "input", input),
                     blocks_options(o, send_counts, send_offsets, receive_counts, receive_offsets));
    });
}
tutti_status tutti_all_to_all_v_async(const tutti_tensor* output, const tutti_tensor* input, const int64_t* send_counts,
                                      const int64_t* send_offsets, const int64_t* receive_counts,
                                      const int64_t* receive_offsets, const tutti_options* options, tutti_work** work) {
    return starting(__func__, options, work, [&](const Common& o) {
        return async::all_to_all_v(tensor_of(o.function, "output", output), tensor_of(o.function, "input", input),
                                   blocks_options(o, send_counts, send_offsets, receive_counts, receive_offsets));
    });
}

tutti_status tutti_barrier(const tutti_options* options) {
    return blocking(__func__, options, [](const Common& o) { barrier({.group = o.group, .timeout = o.timeout}); });
}
tutti_status tutti_barrier_async(const tutti_options* options, tutti_work** work) {
    return starting(__func__, options, work,
                    [](const Common& o) { return async::barrier({.group = o.group, .timeout = o.timeout}); });
}

tutti_status tutti_monitored_barrier(int wait_all_ranks, const tutti_options* options) {
    return blocking(__func__, options, [&](const Common& o) {
        const bool all = number_of(o.function, "wait_all_ranks", wait_all_ranks, 0, 1) == 1;
        monitored_barrier({.group = o.group, .timeout = o.timeout, .wait_all_ranks = all});
    });
}

tutti_status tutti_quantized_all_reduce(const tutti_tensor* output, const tutti_tensor* input, int op,
                                        const tutti_quantized_options* quantized, const tutti_options* options) {
    return blocking(__func__, options, [&](const Common& o) {
        quantized_all_reduce(tensor_of(o.function, "output", output), tensor_of(o.function, "input", input),
                             quantized_options(o, op, quantized));
    });
}
tutti_status tutti_quantized_all_reduce_async(const tutti_tensor* output, const tutti_tensor* input, int op,
                                              const tutti_quantized_options* quantized, const tutti_options* options,
                                              tutti_work** work) {
    return starting(__func__, options, work, [&](const Common& o) {
        return async::quantized_all_reduce(tensor_of(o.function, "output", output),
                                           tensor_of(o.function, "input", input), quantized_options(o, op, quantized));
    });
}

tutti_status tutti_quantized_reduce_scatter(const tutti_tensor* output, const tutti_tensor* input, int op,
                                            const tutti_quantized_options* quantized, const tutti_options* options) {
    return blocking(__func__, options, [&](const Common& o) {
        quantized_reduce_scatter(tensor_of(o.function, "output", output), tensor_of(o.function, "input", input),
                                 quantized_options(o, op, quantized));
    });
}
tutti_status tutti_quantized_reduce_scatter_async(const tutti_tensor* output, const tutti_tensor* input, int op,
                                                  const tutti_quantized_options* quantized,
                                                  const tutti_options* options, tutti_work** work) {
    return starting(__func__, options, work, [&](const Common& o) {
        return async::quantized_reduce_scatter(tensor_of(o.function, "output", output),
                                               tensor_of(o.function, "input", input),
                                               quantized_options(o, op, quantized));
    });
}

tutti_status tutti_quantized_all_gather(const tutti_tensor* output, const tutti_tensor* input,
                                        const tutti_quantized_options* quantized, const tutti_options* options) {
    return blocking(__func__, options, [&](const Common& o) {
        quantized_all_gather(tensor_of(o.function, "output", output), tensor_of(o.function, "input", input),
                             quantized_options(o, TUTTI_SUM, quantized));
    });
}
tutti_status tutti_quantized_all_gather_async(const tutti_tensor* output, const tutti_tensor* input,
                                              const tutti_quantized_options* quantized, const tutti_options* options,
                                              tutti_work** work) {
    return starting(__func__, options, work, [&](const Common& o) {
        return async::quantized_all_gather(tensor_of(o.function, "output", output),
                                           tensor_of(o.function, "input", input),
                                           quantized_options(o, TUTTI_SUM, quantized));
    });
}
}  // extern "C"
