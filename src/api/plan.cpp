// Plans: an Operation that is made once and issued again. A short call, and a short message, need not even be issued.
#include "api/call.hpp"
#include "api/coalescing_internal.hpp"
#include "api/detail.hpp"
#include "api/planned_call.hpp"
#include "core/assert.hpp"
#include "record/public_call.hpp"

#include <tutti/error.hpp>
#include <tutti/plan.hpp>

#include <fmt/format.h>

#include <utility>

namespace tutti {

namespace detail {

namespace {

class PlannedOperation final : public PlannedCall {
 public:
    PlannedOperation(api::PreparedOperation model, milliseconds timeout, Stream stream)
        : model_(std::move(model)), group_(group_of(*model_)), timeout_(timeout), stream_(stream) {
        TUTTI_ASSERT(model_->group != nullptr && !model_->done());
        model_->planned = true;
        if (model_->device.type != Device::Type::cpu) return;  // a backend's
        direct_ = !model_->begin && !model_->finish && model_->call.user == nullptr;
        if (model_->is_collective) group_.choose_way(*model_);
    }

    const char* name() const noexcept override { return model_->name; }

    void run() override {
        check_idle("run");
        if (api::call_recorder != nullptr) return api::call_recorder->run(model_->again());
        verify();
        if (direct_ && run_at_once()) return;
        issue(false);
        group_.world().wait_for_call(*last_);
        TUTTI_ASSERT(last_ != nullptr && last_->issued());
        source_ = last_->transfer.peer;
    }

    Work start() override {
        check_idle("start");
        if (api::call_recorder != nullptr) return api::call_recorder->start(model_->again());
        verify();
        const bool is_send = !model_->is_collective && !model_->is_receive;
        if (direct_ && is_send && run_message()) return Work(gone());
        issue(true);
        return Work(last_);
    }

    int source_rank() const override {
        if (!model_->is_receive) throw InvalidArgument("Plan.source_rank: this plan sends: expected a plan of recv");
        if (source_ < 0) throw InvalidArgument("Plan.source_rank: nothing has been received; call run() first");
        return group_.ranks().rank_of(source_);
    }

 private:
    void verify() const {
        if (model_->is_collective && api::in_detail()) api::verify(model_->name, {&model_, 1});
    }
    // Temporaries and buffers serve one call at a time.
    void check_idle(const char* method) const {
        if (last_ != nullptr && !last_->done()) {
            throw InvalidArgument(
                fmt::format("Plan.{}: the last {} has not finished; wait for its Work first", method, model_->name));
        }
    }

    // False: it has to begin as an operation. A call that takes longer, or an all_to_all where some rank's blocks do
    // not fit, goes on as one.
    bool run_at_once() {
        if (!model_->is_collective) return run_message();
        if (model_->schedule) return false;
        const auto begin = [](const void* plan) {
            return static_cast<PlannedOperation*>(const_cast<void*>(plan))->begin();
        };
        return group_.run_short(model_->call, {begin, this});
    }

    bool run_message() {
        const transport::Transfer& t = model_->transfer;
        if (t.peer < 0) return false;
        if (!model_->is_receive) return group_.send_now(t.peer, t.channel, t.fingerprint, {t.source, t.bytes});
        transport::Transfer receive = t;
        if (!group_.receive_now(receive)) return false;
        source_ = receive.peer;
        return true;
    }

    // The operation of all sends that were gone at once.
    const api::PreparedOperation& gone() {
        if (!gone_) {
            gone_ = model_->again();
            gone_->complete_unseen();
            TUTTI_ASSERT(gone_->done());
        }
        return gone_;
    }

    api::PreparedOperation next() const {
        api::PreparedOperation operation = model_->again();
        operation->timeout = timeout_.count() > 0 ? timeout_ : group_.timeout();
        TUTTI_ASSERT(operation->timeout.count() > 0 && !operation->done());
        if (stream_ == Stream{}) operation->stream = current_stream(operation->device.type);  // of now
        return operation;
    }

    // The last operation once more, if it is over for everybody: no Work refers to it, and its callbacks have returned.
    api::PreparedOperation renewed() {
        const bool alone = last_ != nullptr && last_.use_count() == 1;
        if (!alone || model_->device.type != Device::Type::cpu) return nullptr;
        TUTTI_ASSERT(last_->done());
        last_->renew(*model_);
        last_->timeout = timeout_.count() > 0 ? timeout_ : group_.timeout();
        return std::exchange(last_, nullptr);
    }

    // A refused operation has not begun: it is not the last.
    void issue(bool asynchronous) {
        api::PreparedOperation operation = renewed_or_next();
        TUTTI_ASSERT(operation != nullptr && !operation->done());
        group_.submit(operation, asynchronous);
        last_ = std::move(operation);
    }

    api::PreparedOperation renewed_or_next() {
        api::PreparedOperation operation = renewed();
        return operation ? operation : next();
    }

    // Of a call that has begun without one.
    const api::PreparedOperation& begin() {
        last_ = renewed_or_next();
        TUTTI_ASSERT(last_ != nullptr && !last_->done());
        return last_;
    }

    api::PreparedOperation model_;  // never issued
    Group& group_;
    milliseconds timeout_;
    Stream stream_;
    bool direct_ = false;  // on host memory, with nothing to copy before or after it
    api::PreparedOperation last_, gone_;
    int source_ = -1;  // a global rank
};

}  // namespace
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

Plan api::plan_of(PreparedOperation call) {
    TUTTI_ASSERT(call != nullptr && call->timeout.count() > 0);
    const milliseconds timeout = call->timeout;
    const Stream stream = call->stream;
    return Plan(std::make_unique<detail::PlannedOperation>(std::move(call), timeout, stream));
}

namespace plan {

// Each function of the table, from its one description in api/call.
#define TUTTI_PLAN(name, parameters, prepared)                                                              \
    Plan name parameters {                                                                                  \
        return Plan(std::make_unique<detail::PlannedOperation>(prepared, options.timeout, options.stream)); \
    }
#define TUTTI_OR_NONE
#define TUTTI_COLLECTIVE_FUNCTION(name, collective, tensors, Options, ...) \
    TUTTI_PLAN(name, (TUTTI_PARAMETERS_##tensors(Options)),                \
               api::prepare(api::describe::name, TUTTI_ARGUMENTS_##tensors(options)))
#include <tutti/collectives.def>
#undef TUTTI_OR_NONE

TUTTI_PLAN(send, (ConstTensorView tensor, int dst, const SendOptions& options), api::prepare_send(tensor, dst, options))
TUTTI_PLAN(recv, (TensorView tensor, const RecvOptions& options), api::prepare_recv(tensor, options))

#undef TUTTI_PLAN

}  // namespace plan

}  // namespace tutti
