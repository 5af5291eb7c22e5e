// c10d::Work over tutti::Work.
#pragma once

#include "failure.hpp"
#include "tensors.hpp"

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <tutti/work.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>

namespace tutti::torch {

/// The value of an operation's future: a list of tensors, or a list of lists where it has several.
c10::IValue value_of(const std::vector<Tensors>& outputs);
c10::TypePtr type_of(const std::vector<Tensors>& outputs);

/// The facts of a Work.
struct WorkFacts {
    c10d::OpType type = c10d::OpType::UNKNOWN;
    int rank = -1;
    std::uint64_t sequence = 0;
    std::chrono::milliseconds timeout{0};
    const char* operation = nullptr;          ///< tutti's name of it
    const char* title = nullptr;              ///< of the profiler's event; null: nobody profiles
    std::optional<std::uint64_t> recorded{};  ///< the flight recorder's number of the operation
};

/// The handle of one operation, or of several that were coalesced. Keeps inputs and outputs alive until the operation
/// is complete, also when the handle is dropped before. All methods are thread-safe and are called without the GIL.
class TorchWork : public c10d::Work {
 public:
    /// `outputs`: one list for most operations, a list of lists where several tensors are gathered from each rank.
    TorchWork(const WorkFacts& facts, tutti::Work work, std::vector<Tensors> outputs, Tensors inputs);
    /// Returns when no thread is going to complete a future any more, or at `end`. Call it without the GIL.
    static void wait_until_all_is_told(std::chrono::steady_clock::time_point end);
    /// For an operation that has ended well already.
    TorchWork(const WorkFacts& facts, std::vector<Tensors> outputs);
    ~TorchWork() override;

    bool isCompleted() override;
    bool isSuccess() const override;
    std::exception_ptr exception() const override;
    int sourceRank() const override;
    std::vector<at::Tensor> result() override;
    void synchronize() override;
    bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
    void blockCurrentStream() override { synchronize(); }
    /// Gives up the wait; the operation itself can only be ended with its group (ProcessGroup.abort).
    void abort() override;
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
    c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
    const std::vector<Tensors>& outputs() const noexcept { return state_->outputs; }
    std::uint64_t getSequencenumber() const override { return facts_.sequence; }
    // Virtual in the base since 2.14; before that nothing calls it.
    std::chrono::milliseconds getTimeout() const { return facts_.timeout; }

 private:
    /// The state that outlives the handle: the tensors, and the futures to complete.
    struct State {
        std::vector<Tensors> outputs;
        Tensors inputs;
        std::mutex mutex;
        c10::intrusive_ptr<c10::ivalue::Future> future;
        c10::intrusive_ptr<c10::ivalue::Future> result_future;
        std::function<void()> end_of_profile;
        std::optional<std::uint64_t> recorded;
        Place place;
        bool from_any_source = false;  ///< a receive whose source is known when it is over
        bool future_told = false;
        bool result_told = false;
        void tell(const tutti::Work& work);
        void settle(const tutti::Work& work);
    };
    void tell_when_done();
    c10::intrusive_ptr<c10::ivalue::Future> future_in(c10::intrusive_ptr<c10::ivalue::Future> State::*place,
                                                      const c10::TypePtr& type);

    WorkFacts facts_;
    tutti::Work work_;
    std::shared_ptr<State> state_;
    std::atomic<bool> listening_{false};
};

}  // namespace tutti::torch
