// What a thread has collected between ncclGroupStart and ncclGroupEnd, which nest. A call outside of a group is a group
// of its own. At the end the new communicators are made first (and others ended), side by side where they are not of
// one communicator, then operations are launched together.
//
// Threads: one each has its own.
#pragma once

#include "communicator.hpp"
#include "launch.hpp"
#include "operations.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tutti::nccl_library {

/// Something that takes time and is no operation: a communicator that is made, ended or suspended, a window.
struct Job {
    std::vector<std::shared_ptr<Communicator>> communicators;  ///< whose ncclCommGetAsyncError tells about it
    bool blocking = true;
    std::function<void()> run;           ///< throws what went wrong
    std::function<void()> undo = [] {};  ///< after it has failed in a call that has waited for it
};

class GroupCall {
 public:
    static GroupCall& of_this_thread();
    ~GroupCall();

    void start() noexcept { ++depth_; }
    ncclResult_t end();
    /// As end(), but operations are not carried out: their predicted time, in microseconds. Throws Failure where the
    /// group has something else, or is not the outermost.
    double simulate_end();

    /// Collects it, or carries it out where no group is open.
    ncclResult_t add(Job job);
    ncclResult_t add(const std::shared_ptr<Communicator>& communicator, const Operation& operation);
    bool is_open() const noexcept { return depth_ > 0; }
    /// A call of this group has failed: the group's end returns that, and does nothing else. Nothing outside of a
    /// group.
    void note(const Failure& failure);

 private:
    std::vector<Batch> collected();  // checked
    ncclResult_t finish();
    static ncclResult_t run(std::vector<Job> jobs);
    void drop() noexcept;  // what was collected is not to be done
    void clear() noexcept;

    int depth_ = 0;
    std::optional<Failure> failure_;
    std::vector<Job> jobs_;
    std::vector<std::pair<std::shared_ptr<Communicator>, Operation>> operations_;
};

/// guarded() for what may stand in a group.
template <class Function>
ncclResult_t collected(const char* name, Function function) noexcept {
    return guarded(name, [&] {
        try {
            return function();
        } catch (...) {
            GroupCall::of_this_thread().note(named(name, as_failure(std::current_exception())));
            throw;
        }
    });
}

}  // namespace tutti::nccl_library
