// Work, and operations.
#include "core/assert.hpp"
#include "group/group.hpp"
#include "operation/continuations.hpp"
#include "operation/operation.hpp"
#include "world/world.hpp"

#include <tutti/error.hpp>
#include <tutti/stream.hpp>
#include <tutti/work.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <utility>

namespace tutti {

namespace detail {

engine::Operands Operation::operands() const {
    TUTTI_ASSERT(is_collective);
    const engine::Coding* const coding = quantized ? &quantized->coding : nullptr;
    return {.input = call.in_place ? nullptr : const_cast<std::byte*>(call.input),
            .output = call.output,
            .dtype = call.dtype,
            .op = call.op,
            .user = call.user,
            .divisor = call.divisor,
            .channel = run.channel,
            .fingerprint = call.fingerprint,
            .coding = coding};
}

void Operation::set_call(const engine::CollectiveCall& from) {
    call = from;
    if (call.user != nullptr) user_ = OperatorHandle(call.user);
    const std::array lists{&call.counts, &call.send_counts, &call.receive_counts, &call.send_offsets,
                           &call.receive_offsets};
    std::vector<std::uint64_t> own;
    own.reserve(std::transform_reduce(lists.begin(), lists.end(), std::size_t{0}, std::plus{},
                                      [](const auto* list) { return list->size(); }));
    for (std::span<const std::uint64_t>* const list : lists) {
        const std::size_t first = own.size();
        own.insert(own.end(), list->begin(), list->end());
        *list = {own.data() + first, list->size()};
    }
    numbers_ = std::move(own);  // which stay where they are
}

std::shared_ptr<Operation> Operation::again() const {
    auto next = std::make_shared<Operation>();
    next->name = name;
    next->is_collective = is_collective;
    next->is_receive = is_receive;
    next->caller_goes_on = caller_goes_on;
    next->planned = planned;
    next->is_symmetric = is_symmetric;
    next->set_call(call);
    next->transfer = transfer;
    next->begin = begin;
    next->finish = finish;
    next->temporaries = temporaries;
    next->outputs = outputs;
    next->device = device;
    next->stream = stream;
    next->on_device = on_device;
    next->timeout = timeout;
    next->group = group;
    next->path = path;
    next->schedule = schedule;
    TUTTI_ASSERT(next->call.fingerprint == call.fingerprint && !next->done());
    return next;
}

void Operation::renew(const Operation& model) {
    TUTTI_ASSERT(done() && group == model.group);
    reopen();
    path = model.path;
    transfer = model.transfer;  // of any source: it became that of one
    run = {.done_execution = std::move(run.done_execution)};
    TUTTI_ASSERT(!done() && run.sequence == 0 && run.state == OperationState::queued);
}

void Operation::move_to(OperationState next) {
    if (!may_move(run.state, next))
        throw InternalError(fmt::format("{} #{}: state {} does not follow {}", name, run.sequence,
                                        static_cast<int>(next), static_cast<int>(run.state)));
    run.state = next;
}

}  // namespace detail

detail::Operation& Work::checked(const char* method) const {
    if (!operation_)
        throw InvalidArgument(std::string("Work.") + method + ": this Work is empty (the caller is not in the group)");
    if (operation_->when_awaited) {
        throw InvalidArgument(std::string("Work.") + method +
                              ": a graph has captured the call, which has not run: expected wait()");
    }
    TUTTI_ASSERT(operation_->done() || operation_->group != nullptr);
    return *operation_;
}

bool Work::is_completed() const {
    detail::Operation& operation = checked("is_completed");
    if (!operation.issued()) detail::group_of(operation).world().drive_for(operation, detail::World::Driving::one_turn);
    return operation.issued();
}

bool Work::wait(std::chrono::milliseconds timeout) {
    if (operation_ && operation_->when_awaited) [[unlikely]] {
        operation_->when_awaited();
        return true;
    }
    detail::Operation& operation = checked("wait");
    if (operation.device.type != Device::Type::cpu && timeout.count() == 0) {
        operation.group->wait_until_issued(operation);
        operation.make_wait(current_stream(operation.device.type));
    } else if (!operation.done()) {
        detail::group_of(operation).world().wait(operation,
                                                 timeout.count() > 0 ? Deadline::after(timeout) : Deadline::never());
    }
    if (const auto error = operation.error()) std::rethrow_exception(error);
    return true;
}

void Work::synchronize() {
    wait();
}
bool Work::is_success() const {
    return checked("is_success").issued() && !operation_->error();
}
std::exception_ptr Work::exception() const {
    return checked("exception").error();
}

std::vector<TensorView> Work::result() const {
    const detail::Operation& operation = checked("result");
    if (!operation.issued()) throw InvalidArgument("Work.result: the operation has not finished; call wait() first");
    if (const auto error = operation.error()) std::rethrow_exception(error);
    return operation.outputs;
}

int Work::source_rank() const {
    const detail::Operation& operation = checked("source_rank");
    if (!operation.is_receive) throw InvalidArgument("Work.source_rank: only a receive has a sender");
    if (!operation.issued()) throw InvalidArgument("Work.source_rank: the receive has not finished; call wait() first");
    TUTTI_ASSERT(operation.group != nullptr && operation.transfer.peer >= 0);
    return operation.group->ranks().rank_of(operation.transfer.peer);
}

namespace {

// A thread that waits for a future makes no progress.
void drive_for_future(detail::Operation& operation) {
    TUTTI_ASSERT(operation.done() || operation.group != nullptr);
    if (!operation.done()) detail::group_of(operation).world().drive_for(operation, detail::World::Driving::to_the_end);
}

}  // namespace

// Waiting threads wake at once; continuations run where the group's lock is not held. Those of an operation on a device
// have its call's stream as their current one.
template <class T>
void Work::complete(const Future<T>& future, const detail::Operation& operation,
                    std::optional<std::type_identity_t<T>> value, std::exception_ptr error) {
    TUTTI_ASSERT(operation.issued());
    auto continuations = future.resolve(std::move(value), std::move(error));
    if (continuations.empty()) return;
    detail::run_later(operation.group.get(), [future, device = operation.device.type, stream = operation.stream,
                                              continuations = std::move(continuations)] {
        const CurrentStream scope(device, stream);
        future.run(continuations);
    });
}

Future<std::vector<TensorView>> Work::get_future() const {
    detail::Operation& operation = checked("get_future");
    drive_for_future(operation);
    Future<std::vector<TensorView>> future;
    auto resolve = [future, self = operation_] {
        self->make_wait(self->stream);
        if (const auto error = self->error())
            complete(future, *self, std::nullopt, error);
        else
            complete(future, *self, self->outputs, nullptr);
    };
    if (operation.device.type == Device::Type::cpu)
        operation.on_completion(std::move(resolve));
    else
        operation.on_issue(std::move(resolve));
    return future;
}

Future<WorkResult> Work::get_future_result() const {
    detail::Operation& operation = checked("get_future_result");
    drive_for_future(operation);
    Future<WorkResult> future;
    operation.on_completion([future, self = operation_] {
        WorkResult result = WorkResult::success;
        try {
            if (const auto error = self->error()) std::rethrow_exception(error);
        } catch (const Timeout&) {
            result = WorkResult::timeout;
        } catch (const DistBackendError&) {
            result = WorkResult::comm_error;
        } catch (...) {
            result = WorkResult::unknown;
        }
        complete(future, *self, result, nullptr);
    });
    return future;
}

Work Work::unbox(const std::any& object) {
    if (const Work* work = std::any_cast<Work>(&object)) return *work;
    throw InvalidArgument("Work.unbox: the object does not hold a Work");
}

void wait_all(const std::vector<Work>& works) {
    std::exception_ptr first;
    for (Work work : works) {
        try {
            if (work) work.wait();
        } catch (...) {
            if (!first) first = std::current_exception();
        }
    }
    if (first) std::rethrow_exception(first);
}

}  // namespace tutti
