// Plans: an Operation that is made once and issued again; short ones need none.
#include "api/request.hpp"
#include "record/public_call.hpp"

#include <tutti/error.hpp>
#include <tutti/plan.hpp>

#include <fmt/format.h>

#include <utility>

namespace tutti {

namespace detail {

class PlannedCall {
 public:
    PlannedCall(api::Prepared model, milliseconds timeout, Stream stream)
        : model_(std::move(model)), group_(*model_->group), timeout_(timeout), stream_(stream) {
        if (model_->device.type != Device::Type::cpu) return;  // a backend's
        const bool direct = !model_->begin && !model_->finish;
        if (!model_->is_collective)
            quick_ = direct && model_->transfer.peer >= 0 ? Quick::message : Quick::none;
        else if (group_.choose_way(*model_) && direct)
            quick_ = Quick::slots;
    }

    const char* name() const noexcept { return model_->name; }

    void run() {
        check_idle("run");
        if (quick_ == Quick::slots && group_.run_short(model_->name, model_->slot_call, timeout_, ordinary())) return;
        if (quick_ == Quick::message && run_message()) return;
        issue(false);
        group_.world().wait_for_call(*last_);
        source_ = last_->transfer.peer;
    }

    Work start() {
        check_idle("start");
        if (quick_ == Quick::message && !model_->is_receive && run_message()) return Work(gone());
        issue(true);
        return Work(last_);
    }

    int source_rank() const {
        if (!model_->is_receive) throw InvalidArgument("Plan.source_rank: only a receive has a sender");
        if (source_ < 0) throw InvalidArgument("Plan.source_rank: nothing has been received; call run() first");
        return source_;
    }

 private:
    enum class Quick { none, slots, message };

    // A call that takes longer, or an all_to_all where some rank's blocks do not fit, goes on as an operation.
    OrdinaryCall ordinary() const {
        return {[](const void* given) { return static_cast<const Operation*>(given)->again(); }, model_.get()};
    }

    // Temporaries and buffers serve one call at a time.
    void check_idle(const char* method) const {
        if (last_ != nullptr && !last_->done()) {
            throw InvalidArgument(
                fmt::format("Plan.{}: the last {} has not finished; wait for its Work first", method, model_->name));
        }
    }

    bool run_message() {
        const transport::Transfer& t = model_->transfer;
        if (!model_->is_receive) return group_.send_now(t.peer, t.channel, t.fingerprint, {t.source, t.bytes});
        transport::Transfer receive = t;
        if (!group_.receive_now(receive)) return false;
        source_ = receive.peer;
        return true;
    }

    // The operation of all sends that were gone at once.
    const api::Prepared& gone() {
        if (!gone_) {
            gone_ = model_->again();
            gone_->complete_unseen();
        }
        return gone_;
    }

    // A refused operation has not begun: it is not the last.
    void issue(bool asynchronous) {
        api::Prepared next = model_->again();
        next->timeout = timeout_.count() > 0 ? timeout_ : group_.timeout();
        if (stream_ == Stream{}) next->stream = current_stream(next->device.type);  // of now
        group_.submit(next, asynchronous);
        last_ = std::move(next);
    }

    api::Prepared model_;  // never issued
    Group& group_;
    milliseconds timeout_;
    Stream stream_;
    Quick quick_ = Quick::none;
    api::Prepared last_, gone_;
    int source_ = -1;
};

}  // namespace detail

Plan::Plan() noexcept = default;
Plan::Plan(Plan&& other) noexcept = default;
Plan& Plan::operator=(Plan&& other) noexcept = default;
Plan::~Plan() = default;
Plan::Plan(std::unique_ptr<detail::PlannedCall> call) noexcept : call_(std::move(call)) {}

detail::PlannedCall& Plan::checked(const char* method) const {
    if (!call_) throw InvalidArgument(fmt::format("Plan.{}: this Plan is empty: expected one of tutti::plan", method));
    return *call_;
}

void Plan::run() {
    detail::PlannedCall& call = checked("run");
    const record::PublicCall public_call(call.name());
    call.run();
}
Work Plan::start() {
    detail::PlannedCall& call = checked("start");
    const record::PublicCall public_call(call.name());
    return call.start();
}
int Plan::source_rank() const {
    return checked("source_rank").source_rank();
}

namespace plan {

// Each call of distributed.hpp, from its one description in api/request.
#define TUTTI_PLAN(name, PARAMETERS, arguments)                                                                   \
    Plan name PARAMETERS {                                                                                        \
        return Plan(std::make_unique<detail::PlannedCall>(api::name arguments, options.timeout, options.stream)); \
    }

TUTTI_PLAN(broadcast, (TensorView tensor, const BroadcastOptions& options), (tensor, options))
TUTTI_PLAN(all_reduce, (TensorView tensor, const AllReduceOptions& options), (tensor, options))
TUTTI_PLAN(reduce, (TensorView tensor, const ReduceOptions& options), (tensor, options))
TUTTI_PLAN(all_gather, (const TensorList& output_list, ConstTensorView tensor, const CollectiveOptions& options),
           (output_list, tensor, options))
TUTTI_PLAN(all_gather_into_tensor, (TensorView output, ConstTensorView input, const CollectiveOptions& options),
           (output, input, options))
TUTTI_PLAN(gather, (ConstTensorView tensor, const TensorList& gather_list, const GatherOptions& options),
           (tensor, gather_list, options))
TUTTI_PLAN(scatter, (TensorView tensor, const ConstTensorList& scatter_list, const ScatterOptions& options),
           (tensor, scatter_list, options))
TUTTI_PLAN(reduce_scatter, (TensorView output, const ConstTensorList& input_list, const ReduceScatterOptions& options),
           (output, input_list, options))
TUTTI_PLAN(reduce_scatter_tensor, (TensorView output, ConstTensorView input, const ReduceScatterOptions& options),
           (output, input, options))
TUTTI_PLAN(all_gather_into_tensor_uneven,
           (TensorView output, ConstTensorView input, const AllGatherUnevenOptions& options), (output, input, options))
TUTTI_PLAN(reduce_scatter_tensor_uneven,
           (TensorView output, ConstTensorView input, const ReduceScatterUnevenOptions& options),
           (output, input, options))
TUTTI_PLAN(all_to_all_single, (TensorView output, ConstTensorView input, const AllToAllSingleOptions& options),
           (output, input, options))
TUTTI_PLAN(all_to_all,
           (const TensorList& output_list, const ConstTensorList& input_list, const CollectiveOptions& options),
           (output_list, input_list, options))
TUTTI_PLAN(all_to_all_v, (TensorView output, ConstTensorView input, const AllToAllVOptions& options),
           (output, input, options))
TUTTI_PLAN(barrier, (const BarrierOptions& options), (options))
TUTTI_PLAN(send, (ConstTensorView tensor, int dst, const SendOptions& options), (tensor, dst, options))
TUTTI_PLAN(recv, (TensorView tensor, const RecvOptions& options), (tensor, options))

#undef TUTTI_PLAN

}  // namespace plan

}  // namespace tutti
