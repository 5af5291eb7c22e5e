// The public collectives: blocking and asynchronous.
#include "api/arguments.hpp"
#include "api/call.hpp"
#include "api/coalescing_internal.hpp"
#include "api/detail.hpp"
#include "record/public_call.hpp"

namespace tutti {
namespace {

namespace describe = api::describe;
using api::Call;

// In the slots of the ranks of one host, where the call is short and this thread's group is at rest. False: nothing has
// been done.
bool run_short(const Call& call) {
    detail::Group& group = *call.group;
    const detail::Collectives& collectives = group.collectives();
    const bool fits = call.collective == Collective::all_to_all
                          ? collectives.blocks_fit(call)
                          : collectives.is_short(call.collective, call.block_bytes);
    return fits && group.run_short(
                       call, {[](const void* from) { return api::prepare(*static_cast<const Call*>(from)); }, &call});
}

// Apart, so that a short call has none of its instructions.
[[gnu::noinline]] void run_as_operation(const Call& call) {
    const api::PreparedOperation operation = api::prepare(call);
    if (!api::collect(operation)) operation->group->run(operation);
}

template <auto fill_in, class... Arguments>
void run(const Arguments&... arguments) {
    Call call;
    fill_in(call, arguments...);
    const bool collected = api::open_scopes > 0 && api::is_collected(*call.group);
    if (!call.direct || collected || !run_short(call)) run_as_operation(call);
}

template <auto fill_in, class... Arguments>
Work start(const Arguments&... arguments) {
    Call call;
    fill_in(call, arguments...);
    api::PreparedOperation operation = api::prepare(call);
    if (api::call_recorder != nullptr) return api::call_recorder->start(operation);
    operation->group->submit(operation, true);
    return Work(std::move(operation));
}

// Where no sizes are given: asks all ranks for theirs, and goes on with those. A collected call cannot wait for them.
template <auto fill_in, class Options>
void run_with_sizes_of_all(const char* name, std::vector<std::int64_t> Options::*sizes, const Options& options,
                           const ConstTensorView& own, const TensorView& output, const ConstTensorView& input) {
    const std::shared_ptr<detail::Group> group = api::group_of(options.group, name);
    if (!(options.*sizes).empty() || api::is_collected(*group)) return run<fill_in>(output, input, options);
    Options complete = options;
    std::vector<std::int64_t>& all = complete.*sizes;
    all.resize(static_cast<std::size_t>(group->size()));
    const std::vector<std::int64_t> rows{api::rows_of(own)};
    all_gather_into_tensor(all, rows, {.group = options.group, .timeout = options.timeout});
    run<fill_in>(output, input, complete);
}
void gather_by_sizes_of_all(const TensorView& output, const ConstTensorView& input,
                            const AllGatherUnevenOptions& options) {
    run_with_sizes_of_all<describe::all_gather_into_tensor_uneven>(
        "all_gather_into_tensor_uneven", &AllGatherUnevenOptions::output_split_sizes, options, input, output, input);
}
void scatter_by_sizes_of_all(const TensorView& output, const ConstTensorView& input,
                             const ReduceScatterUnevenOptions& options) {
    run_with_sizes_of_all<describe::reduce_scatter_tensor_uneven>(
        "reduce_scatter_tensor_uneven", &ReduceScatterUnevenOptions::input_split_sizes, options, output, output, input);
}

}  // namespace

// Each collective, in both forms, from its one description in api/call. `run_by` runs the blocking one.
#define TUTTI_COLLECTIVE_BY(name, run_by, PARAMETERS, arguments)           \
    void name PARAMETERS {                                                 \
        if (options.group.is_non_member()) return;                         \
        const record::PublicCall public_call(#name);                       \
        if (api::in_detail()) api::verify(#name, api::compared arguments); \
        run_by arguments;                                                  \
    }                                                                      \
    namespace async {                                                      \
    Work name PARAMETERS {                                                 \
        if (options.group.is_non_member()) return {};                      \
        const record::PublicCall public_call(#name);                       \
        if (api::in_detail()) api::verify(#name, api::compared arguments); \
        return start<describe::name> arguments;                            \
    }                                                                      \
    }
#define TUTTI_COLLECTIVE(name, PARAMETERS, arguments) \
    TUTTI_COLLECTIVE_BY(name, run<describe::name>, PARAMETERS, arguments)

TUTTI_COLLECTIVE(broadcast, (TensorView tensor, const BroadcastOptions& options), (tensor, options))
TUTTI_COLLECTIVE(all_reduce, (TensorView tensor, const AllReduceOptions& options), (tensor, options))
TUTTI_COLLECTIVE(reduce, (TensorView tensor, const ReduceOptions& options), (tensor, options))
TUTTI_COLLECTIVE(all_gather, (const TensorList& output_list, ConstTensorView tensor, const CollectiveOptions& options),
                 (output_list, tensor, options))
TUTTI_COLLECTIVE(all_gather_into_tensor, (TensorView output, ConstTensorView input, const CollectiveOptions& options),
                 (output, input, options))
TUTTI_COLLECTIVE(gather, (ConstTensorView tensor, const TensorList& gather_list, const GatherOptions& options),
                 (tensor, gather_list, options))
TUTTI_COLLECTIVE(scatter, (TensorView tensor, const ConstTensorList& scatter_list, const ScatterOptions& options),
                 (tensor, scatter_list, options))
TUTTI_COLLECTIVE(reduce_scatter,
                 (TensorView output, const ConstTensorList& input_list, const ReduceScatterOptions& options),
                 (output, input_list, options))
TUTTI_COLLECTIVE(reduce_scatter_tensor, (TensorView output, ConstTensorView input, const ReduceScatterOptions& options),
                 (output, input, options))
TUTTI_COLLECTIVE_BY(all_gather_into_tensor_uneven, gather_by_sizes_of_all,
                    (TensorView output, ConstTensorView input, const AllGatherUnevenOptions& options),
                    (output, input, options))
TUTTI_COLLECTIVE_BY(reduce_scatter_tensor_uneven, scatter_by_sizes_of_all,
                    (TensorView output, ConstTensorView input, const ReduceScatterUnevenOptions& options),
                    (output, input, options))
TUTTI_COLLECTIVE(all_to_all_single, (TensorView output, ConstTensorView input, const AllToAllSingleOptions& options),
                 (output, input, options))
TUTTI_COLLECTIVE(all_to_all,
                 (const TensorList& output_list, const ConstTensorList& input_list, const CollectiveOptions& options),
                 (output_list, input_list, options))
TUTTI_COLLECTIVE(all_to_all_v, (TensorView output, ConstTensorView input, const AllToAllVOptions& options),
                 (output, input, options))
TUTTI_COLLECTIVE(barrier, (const BarrierOptions& options), (options))

#undef TUTTI_COLLECTIVE
#undef TUTTI_COLLECTIVE_BY

}  // namespace tutti
