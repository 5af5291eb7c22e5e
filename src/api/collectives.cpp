// The public collectives: blocking and asynchronous.
#include "api/blocks.hpp"
#include "api/coalescing_internal.hpp"
#include "api/detail.hpp"
#include "api/quick.hpp"
#include "api/request.hpp"
#include "record/public_call.hpp"

namespace tutti {
namespace {

void run(api::Prepared operation) {
    if (api::collect(operation)) return;
    detail::Group& group = *operation->group;
    group.run(operation);
}
Work start(api::Prepared operation) {
    detail::Group& group = *operation->group;
    group.submit(operation, true);
    return Work(std::move(operation));
}

template <class... Arguments>
bool never(const Arguments&...) {
    return false;
}

// Where no sizes are given: asks all ranks for theirs, and goes on with those. A collected call cannot wait for them.
template <class Options>
bool with_sizes_of_all(const char* name, std::vector<std::int64_t> Options::*sizes, const Options& options,
                       const ConstTensorView& own,
                       api::Prepared (*prepare)(TensorView, ConstTensorView, const Options&), const TensorView& output,
                       const ConstTensorView& input) {
    if (!(options.*sizes).empty()) return false;
    const std::shared_ptr<detail::Group> group = api::group_of(options.group, name);
    if (api::is_collected(*group)) return false;
    Options complete = options;
    std::vector<std::int64_t>& all = complete.*sizes;
    all.resize(static_cast<std::size_t>(group->size()));
    const std::vector<std::int64_t> rows{api::rows_of(own)};
    all_gather_into_tensor(all, rows, {.group = options.group, .timeout = options.timeout});
    run(prepare(output, input, complete));
    return true;
}
bool gather_by_sizes_of_all(const TensorView& output, const ConstTensorView& input,
                            const AllGatherUnevenOptions& options) {
    return with_sizes_of_all("all_gather_into_tensor_uneven", &AllGatherUnevenOptions::output_split_sizes, options,
                             input, &api::all_gather_into_tensor_uneven, output, input);
}
bool scatter_by_sizes_of_all(const TensorView& output, const ConstTensorView& input,
                             const ReduceScatterUnevenOptions& options) {
    return with_sizes_of_all("reduce_scatter_tensor_uneven", &ReduceScatterUnevenOptions::input_split_sizes, options,
                             output, &api::reduce_scatter_tensor_uneven, output, input);
}

}  // namespace

// Each collective, in both forms, from its one description in api/request; a short one, by api/quick.
#define TUTTI_COLLECTIVE(name, quickly, PARAMETERS, arguments)             \
    void name PARAMETERS {                                                 \
        if (options.group.is_non_member()) return;                         \
        const record::PublicCall public_call(#name);                       \
        if (api::in_detail()) api::verify(#name, api::compared arguments); \
        if (quickly arguments) return;                                     \
        run(api::name arguments);                                          \
    }                                                                      \
    namespace async {                                                      \
    Work name PARAMETERS {                                                 \
        if (options.group.is_non_member()) return {};                      \
        const record::PublicCall public_call(#name);                       \
        if (api::in_detail()) api::verify(#name, api::compared arguments); \
        return start(api::name arguments);                                 \
    }                                                                      \
    }

TUTTI_COLLECTIVE(broadcast, api::quick::broadcast, (TensorView tensor, const BroadcastOptions& options),
                 (tensor, options))
TUTTI_COLLECTIVE(all_reduce, api::quick::all_reduce, (TensorView tensor, const AllReduceOptions& options),
                 (tensor, options))
TUTTI_COLLECTIVE(reduce, api::quick::reduce, (TensorView tensor, const ReduceOptions& options), (tensor, options))
TUTTI_COLLECTIVE(all_gather, never,
                 (const TensorList& output_list, ConstTensorView tensor, const CollectiveOptions& options),
                 (output_list, tensor, options))
TUTTI_COLLECTIVE(all_gather_into_tensor, api::quick::all_gather_into_tensor,
                 (TensorView output, ConstTensorView input, const CollectiveOptions& options), (output, input, options))
TUTTI_COLLECTIVE(gather, api::quick::gather,
                 (ConstTensorView tensor, const TensorList& gather_list, const GatherOptions& options),
                 (tensor, gather_list, options))
TUTTI_COLLECTIVE(scatter, api::quick::scatter,
                 (TensorView tensor, const ConstTensorList& scatter_list, const ScatterOptions& options),
                 (tensor, scatter_list, options))
TUTTI_COLLECTIVE(reduce_scatter, never,
                 (TensorView output, const ConstTensorList& input_list, const ReduceScatterOptions& options),
                 (output, input_list, options))
TUTTI_COLLECTIVE(reduce_scatter_tensor, api::quick::reduce_scatter_tensor,
                 (TensorView output, ConstTensorView input, const ReduceScatterOptions& options),
                 (output, input, options))
TUTTI_COLLECTIVE(all_gather_into_tensor_uneven, gather_by_sizes_of_all,
                 (TensorView output, ConstTensorView input, const AllGatherUnevenOptions& options),
                 (output, input, options))
TUTTI_COLLECTIVE(reduce_scatter_tensor_uneven, scatter_by_sizes_of_all,
                 (TensorView output, ConstTensorView input, const ReduceScatterUnevenOptions& options),
                 (output, input, options))
TUTTI_COLLECTIVE(all_to_all_single, api::quick::all_to_all_single,
                 (TensorView output, ConstTensorView input, const AllToAllSingleOptions& options),
                 (output, input, options))
TUTTI_COLLECTIVE(all_to_all, api::quick::all_to_all,
                 (const TensorList& output_list, const ConstTensorList& input_list, const CollectiveOptions& options),
                 (output_list, input_list, options))
TUTTI_COLLECTIVE(all_to_all_v, api::quick::all_to_all_v,
                 (TensorView output, ConstTensorView input, const AllToAllVOptions& options), (output, input, options))
TUTTI_COLLECTIVE(barrier, api::quick::barrier, (const BarrierOptions& options), (options))

#undef TUTTI_COLLECTIVE

}  // namespace tutti
