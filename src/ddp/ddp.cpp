// The public class: which threads may call, and the call site for the recorder.
#include "ddp/reducer.hpp"
#include "ddp/replicas.hpp"
#include "record/public_call.hpp"

#include <tutti/ddp.hpp>
#include <tutti/error.hpp>

#include <string>
#include <utility>

namespace tutti {

DistributedDataParallel::DistributedDataParallel(std::vector<NamedParameter> parameters,
                                                 DistributedDataParallelOptions options) {
    const record::PublicCall public_call("DistributedDataParallel");
    reducer_ = std::make_unique<detail::Reducer>(std::move(parameters), std::move(options));
}
DistributedDataParallel::DistributedDataParallel(DistributedDataParallel&& other) noexcept = default;
DistributedDataParallel& DistributedDataParallel::operator=(DistributedDataParallel&& other) noexcept = default;
DistributedDataParallel::~DistributedDataParallel() = default;

detail::Reducer& DistributedDataParallel::checked(const char* method) const {
    if (reducer_) return *reducer_;
    throw InvalidArgument(std::string("DistributedDataParallel.") + method +
                          ": it has been moved from: expected an object");
}

void DistributedDataParallel::forward() {
    detail::Reducer& reducer = checked("forward");
    const record::PublicCall public_call("DistributedDataParallel.forward");
    reducer.forward();
}
void DistributedDataParallel::prepare_for_backward(const std::vector<std::size_t>& unused) {
    detail::Reducer& reducer = checked("prepare_for_backward");
    const record::PublicCall public_call("DistributedDataParallel.prepare_for_backward");
    reducer.prepare_for_backward(unused);
}
void DistributedDataParallel::ready(std::size_t parameter) {
    detail::Reducer& reducer = checked("ready");
    const record::PublicCall public_call("DistributedDataParallel.ready");
    reducer.ready(reducer.checked_index("ready", parameter), nullptr);
}
void DistributedDataParallel::ready(std::string_view parameter) {
    detail::Reducer& reducer = checked("ready");
    const record::PublicCall public_call("DistributedDataParallel.ready");
    reducer.ready(reducer.index_of("ready", parameter), nullptr);
}
void DistributedDataParallel::ready(std::size_t parameter, TensorView gradient) {
    detail::Reducer& reducer = checked("ready");
    const record::PublicCall public_call("DistributedDataParallel.ready");
    reducer.ready(reducer.checked_index("ready", parameter), &gradient);
}
void DistributedDataParallel::ready(std::string_view parameter, TensorView gradient) {
    detail::Reducer& reducer = checked("ready");
    const record::PublicCall public_call("DistributedDataParallel.ready");
    reducer.ready(reducer.index_of("ready", parameter), &gradient);
}
void DistributedDataParallel::finish() {
    detail::Reducer& reducer = checked("finish");
    const record::PublicCall public_call("DistributedDataParallel.finish");
    reducer.finish();
}

DistributedDataParallel::NoSync DistributedDataParallel::no_sync() const {
    return NoSync(checked("no_sync").no_sync_scopes());
}
void DistributedDataParallel::register_comm_hook(ProcessGroup state, CommHook hook) {
    checked("register_comm_hook").register_comm_hook(std::move(state), std::move(hook));
}
TensorView DistributedDataParallel::gradient(std::size_t parameter) const {
    return checked("gradient").gradient(parameter);
}
TensorView DistributedDataParallel::gradient(std::string_view parameter) const {
    const detail::Reducer& reducer = checked("gradient");
    return reducer.gradient(reducer.index_of("gradient", parameter));
}
std::vector<std::vector<std::size_t>> DistributedDataParallel::buckets() const {
    return checked("buckets").buckets();
}
ProcessGroup DistributedDataParallel::group() const {
    return checked("group").group();
}

}  // namespace tutti
