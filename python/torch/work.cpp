#include "work.hpp"

#include "failure.hpp"
#include "recorder.hpp"

#include <ATen/ThreadLocalState.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <condition_variable>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

namespace tutti::torch {

c10::IValue value_of(const std::vector<Tensors>& outputs) {
    if (outputs.size() > 1) return c10::IValue(outputs);
    return c10::IValue(outputs.empty() ? Tensors() : outputs.front());
}
c10::TypePtr type_of(const std::vector<Tensors>& outputs) {
    c10::TypePtr list = c10::ListType::create(c10::TensorType::get());
    return outputs.size() > 1 ? c10::ListType::create(list) : list;
}

namespace {

c10d::WorkResult result_of(const std::exception_ptr& error) {
    if (!error) return c10d::WorkResult::SUCCESS;
    try {
        std::rethrow_exception(error);
    } catch (const Timeout&) {
        return c10d::WorkResult::TIMEOUT;
    } catch (const DistBackendError&) {
        return c10d::WorkResult::COMM_ERROR;
    } catch (...) {
        return c10d::WorkResult::UNKNOWN;
    }
}

/// While it lives this thread runs continuations.
class InContinuation {
 public:
    InContinuation() : outer_(std::exchange(here_, true)) {}
    ~InContinuation() { here_ = outer_; }
    InContinuation(const InContinuation&) = delete;
    InContinuation& operator=(const InContinuation&) = delete;
    static bool here() noexcept { return here_; }

 private:
    static inline thread_local bool here_ = false;
    bool outer_;
};

// Operations whose completion other threads will report. Reports may run Python, or free Python's objects: they have to
// be over before the interpreter ends, which stops any thread that asks for it later.
struct Tellings {
    std::mutex mutex;
    std::condition_variable none;
    int count = 0;
};
Tellings& tellings() {
    static Tellings& all = *new Tellings;
    return all;
}
class Telling {
 public:
    Telling() {
        const std::lock_guard lock(tellings().mutex);
        ++tellings().count;
    }
    ~Telling() { end(); }
    Telling(const Telling&) = delete;
    Telling& operator=(const Telling&) = delete;
    void end() {
        if (std::exchange(ended_, true)) return;
        const std::lock_guard lock(tellings().mutex);
        if (--tellings().count == 0) tellings().none.notify_all();
    }

 private:
    bool ended_ = false;
};

}  // namespace

TorchWork::TorchWork(const WorkFacts& facts, tutti::Work work, std::vector<Tensors> outputs, Tensors inputs)
    : c10d::Work(facts.rank, facts.type, facts.title,
                 facts.title ? std::optional<Tensors>(inputs) : std::optional<Tensors>()),
      facts_(facts),
      work_(std::move(work)),
      state_(std::make_shared<State>()) {
    state_->outputs = std::move(outputs);
    state_->inputs = std::move(inputs);
    state_->recorded = facts.recorded;
    state_->from_any_source = facts.type == c10d::OpType::RECVANYSOURCE;
    state_->place = {facts.rank, facts.operation};
    if (recordFunctionEndCallback_) state_->end_of_profile = std::move(recordFunctionEndCallback_);
    if (state_->end_of_profile || state_->recorded) tell_when_done();
}

TorchWork::TorchWork(const WorkFacts& facts, std::vector<Tensors> outputs)
    : TorchWork(facts, tutti::Work(), std::move(outputs), {}) {}

TorchWork::~TorchWork() {
    if (!work_ || work_.is_completed()) return;
    try {  // the buffers must live as long as the operation
        work_.get_future().add_done_callback(
            [telling = std::make_shared<Telling>(), state = state_](const auto&) mutable {
                state.reset();
                telling->end();
            });
    } catch (...) {
        new std::shared_ptr<State>(state_);  // out of memory: leaks buffers that the operation may still write
    }
}

// Completes the futures, ends the profile and the record, once; a second caller finds it done.
void TorchWork::State::tell(const tutti::Work& work) {
    c10::intrusive_ptr<c10::ivalue::Future> done;
    c10::intrusive_ptr<c10::ivalue::Future> done_result;
    std::function<void()> end;
    std::optional<std::uint64_t> number;
    {
        const std::lock_guard lock(mutex);
        if (!std::exchange(future_told, future != nullptr)) done = future;
        if (!std::exchange(result_told, result_future != nullptr)) done_result = result_future;
        end.swap(end_of_profile);
        number.swap(recorded);
    }
    const std::exception_ptr error = work ? work.exception() : nullptr;
    if (end) end();
    if (number) {
        Recorder::get().end(*number, error ? Recorder::End::failed : Recorder::End::well,
                            work && !error && from_any_source ? work.source_rank() : -1);
    }
    if (done) {
        if (error) {
            done->setErrorIfNeeded(translated(error, place));
        } else {
            done->markCompleted(value_of(outputs));
        }
    }
    if (done_result) done_result->markCompleted(c10::IValue(static_cast<std::int64_t>(result_of(error))));
}

// When wait() returns the futures are complete too: the thread that completes them sets their values first.
void TorchWork::State::settle(const tutti::Work& work) {
    tell(work);
    std::unique_lock lock(mutex);
    const auto last = future;
    lock.unlock();
    if (last) last->wait();
}

// A continuation may start an operation and wait for its future, as PowerSGD's hook does. A thread of its own completes
// that one: the group's thread, which completes the others, is busy with the continuation.
void TorchWork::tell_when_done() {
    if (!work_) return state_->tell(work_);
    if (listening_.exchange(true)) return;
    auto complete = [telling = std::make_shared<Telling>(), state = state_, work = work_,
                     tls = at::ThreadLocalState()]() mutable {
        {
            const at::ThreadLocalStateGuard guard(tls);
            const InContinuation mark;
            state->tell(work);
            state.reset();
        }
        telling->end();
    };
    const auto wait_on_own_thread = [&] {
        try {
            std::thread([complete, work = work_]() mutable {
                try {
                    work.wait();
                } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): the future tells it
                }
                complete();
            }).detach();
            return true;
        } catch (const std::system_error&) {  // no thread left: the group's has to do it
            return false;
        }
    };
    if (!InContinuation::here() || !wait_on_own_thread()) {
        work_.get_future().add_done_callback([complete = std::move(complete)](const auto&) mutable { complete(); });
    }
}

void TorchWork::wait_until_all_is_told(std::chrono::steady_clock::time_point end) {
    std::unique_lock lock(tellings().mutex);
    tellings().none.wait_until(lock, end, [] { return tellings().count == 0; });
}

bool TorchWork::isCompleted() {
    return !work_ || work_.is_completed();
}
bool TorchWork::isSuccess() const {
    return !work_ || work_.is_success();
}
std::exception_ptr TorchWork::exception() const {
    const std::exception_ptr error = work_ ? work_.exception() : nullptr;
    return error ? translated(error, state_->place) : nullptr;
}
int TorchWork::sourceRank() const {
    return translating([&] {
        if (!work_) throw InvalidArgument("Work.sourceRank: the operation is no receive; only receives have a source");
        return work_.source_rank();
    });
}
std::vector<at::Tensor> TorchWork::result() {
    TORCH_CHECK(isCompleted(),
                "Work needs to be completed before calling result(). Should call wait() before result().");
    TORCH_CHECK(state_->outputs.size() <= 1,
                "work result does not support list of lists, use .getFuture() and value()");
    return state_->outputs.empty() ? Tensors() : state_->outputs.front();
}
void TorchWork::synchronize() {
    wait();
}
bool TorchWork::wait(std::chrono::milliseconds timeout) {
    if (work_) {
        try {
            work_.wait(std::max(timeout, kNoTimeout));
        } catch (...) {
            const std::exception_ptr error = translated(std::current_exception(), state_->place);
            if (work_.is_completed()) state_->settle(work_);
            std::rethrow_exception(error);
        }
    }
    state_->settle(work_);
    return true;
}
void TorchWork::abort() {
    TORCH_CHECK(isCompleted(),
                "Work.abort: one operation cannot be ended alone, because other ranks take part in it; "
                "abort its group (torch.distributed.distributed_c10d._abort_process_group)");
}
// Completes the future at once if the operation is complete. Otherwise the group's thread does, or an earlier waiter
// for the Work.
c10::intrusive_ptr<c10::ivalue::Future> TorchWork::future_in(c10::intrusive_ptr<c10::ivalue::Future> State::*place,
                                                             const c10::TypePtr& type) {
    {
        const std::lock_guard lock(state_->mutex);
        auto& future = (*state_).*place;
        if (future) return future;
        future = c10::make_intrusive<c10::ivalue::Future>(type);
    }
    if (isCompleted()) {
        state_->settle(work_);
    } else {
        tell_when_done();
    }
    return (*state_).*place;
}
c10::intrusive_ptr<c10::ivalue::Future> TorchWork::getFuture() {
    return future_in(&State::future, type_of(state_->outputs));
}
c10::intrusive_ptr<c10::ivalue::Future> TorchWork::getFutureResult() {
    return future_in(&State::result_future, c10::IntType::get());
}

}  // namespace tutti::torch
