// The public collectives: blocking and asynchronous.
#include "api/arguments.hpp"
#include "api/call.hpp"
#include "api/coalescing_internal.hpp"
#include "api/detail.hpp"
#include "core/assert.hpp"
#include "record/public_call.hpp"

namespace tutti {
namespace {

namespace describe = api::describe;
using api::Call;

// In the slots of the ranks of one host, where the call is short and this thread's group is at rest. False: nothing has
// been done.
bool run_short(const Call& call) {
    TUTTI_ASSERT(call.group != nullptr && call.direct);
    detail::Group& group = *call.group;
    return group.planner().fits_in_slots(call) &&
           group.run_short(call,
                           {[](const void* from) { return api::prepare(*static_cast<const Call*>(from)); }, &call});
}

// Apart, so that a short call has none of its instructions.
[[gnu::noinline]] void run_as_operation(const Call& call) {
    TUTTI_ASSERT(call.group != nullptr && call.fingerprint != 0);
    const api::PreparedOperation operation = api::prepare(call);
    if (!api::collect(operation)) detail::group_of(*operation).run(operation);
}

template <auto fill_in, class... Arguments>
void run(const Arguments&... arguments) {
    Call call;
    fill_in(call, arguments...);
    TUTTI_ASSERT(call.group != nullptr && call.fingerprint != 0);
    if (api::in_detail()) [[unlikely]]
        api::verify(call);
    const bool collected = api::open_scopes > 0 && api::is_collected(*call.group);
    if (!call.direct || collected || !run_short(call)) run_as_operation(call);
}

template <auto fill_in, class... Arguments>
Work start(const Arguments&... arguments) {
    Call call;
    fill_in(call, arguments...);
    if (api::in_detail()) api::verify(call);
    api::PreparedOperation operation = api::prepare(call);
    TUTTI_ASSERT(operation->group.get() == call.group);
    if (api::call_recorder != nullptr) return api::call_recorder->start(operation);
    detail::group_of(*operation).submit(operation, true);
    return Work(std::move(operation));
}

// Where no sizes are given: asks all ranks for theirs, and goes on with those. A collected call cannot wait for them.
template <auto fill_in, class Options>
void run_with_sizes_of_all(const char* name, std::vector<std::int64_t> Options::*sizes, const ConstTensorView& own,
                           const TensorView& output, const ConstTensorView& input, const Options& options) {
    const std::shared_ptr<detail::Group> group = api::group_of(options.group, name);
    if (!(options.*sizes).empty() || api::is_collected(*group)) return run<fill_in>(output, input, options);
    Options complete = options;
    std::vector<std::int64_t>& all = complete.*sizes;
    all.resize(static_cast<std::size_t>(group->size()));
    const std::vector<std::int64_t> rows{api::rows_of(own)};
    TUTTI_ASSERT(all.size() == static_cast<std::size_t>(group->size()));
    all_gather_into_tensor(all, rows, {.group = options.group, .timeout = options.timeout});
    run<fill_in>(output, input, complete);
}

// The blocking form; options with sizes that all ranks can be asked for have overloads.
template <auto fill_in, class... Arguments>
void run_blocking(const char*, const Arguments&... arguments) {
    run<fill_in>(arguments...);
}
template <auto fill_in>
void run_blocking(const char* name, const TensorView& output, const ConstTensorView& input,
                  const AllGatherVOptions& options) {
    run_with_sizes_of_all<fill_in>(name, &AllGatherVOptions::output_split_sizes, input, output, input, options);
}
template <auto fill_in>
void run_blocking(const char* name, const TensorView& output, const ConstTensorView& input,
                  const ReduceScatterVOptions& options) {
    run_with_sizes_of_all<fill_in>(name, &ReduceScatterVOptions::input_split_sizes, output, output, input, options);
}

}  // namespace

// Each function of the table, in both forms, from its one description in api/call.
#define TUTTI_OR_NONE
#define TUTTI_COLLECTIVE_FUNCTION(name, collective, tensors, Options, ...)       \
    void name(TUTTI_PARAMETERS_##tensors(Options)) {                             \
        if (api::is_outside(options.group, #name)) return;                       \
        const record::PublicCall public_call(#name);                             \
        run_blocking<describe::name>(#name, TUTTI_ARGUMENTS_##tensors(options)); \
    }                                                                            \
    Work async::name(TUTTI_PARAMETERS_##tensors(Options)) {                      \
        if (api::is_outside(options.group, #name)) return {};                    \
        const record::PublicCall public_call(#name);                             \
        return start<describe::name>(TUTTI_ARGUMENTS_##tensors(options));        \
    }
#include <tutti/collectives.def>
#undef TUTTI_OR_NONE

}  // namespace tutti
