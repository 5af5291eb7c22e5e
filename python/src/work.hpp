// PendingWork: a Work with the arrays that its operation uses.
#pragma once

#include "arrays.hpp"

#include <tutti/work.hpp>

#include <memory>
#include <vector>

namespace tutti::python {

/// What Python calls Work. Dropping it does not cancel the operation, whose arrays stay alive until it is complete.
/// Threads: those that hold the interpreter's lock.
class PendingWork {
 public:
    PendingWork(Work work, std::vector<Array> arrays, nb::object outputs, nb::object owner)
        : work_(std::move(work)), arrays_(std::move(arrays)), outputs_(std::move(outputs)), owner_(std::move(owner)) {}
    PendingWork(PendingWork&&) noexcept = default;
    PendingWork& operator=(PendingWork&&) = delete;
    ~PendingWork();

    /// `owner`: of the arrays, where they are not here.
    static nb::object object(Work work, std::vector<Array> arrays, nb::object outputs, nb::object owner = {});

    const Work& work() const noexcept { return work_; }
    bool wait(std::chrono::milliseconds timeout);
    nb::object result() const;

 private:
    friend void keep_until_complete(PendingWork work);
    Work work_;
    std::vector<Array> arrays_;
    nb::object outputs_;  // a list, in the order of Work::result()
    nb::object owner_;
};

/// Lets go of arrays whose operations have completed since.
void release_completed();

/// Calls a Python function without arguments when the operation is complete: at once, or on a thread of tutti's.
/// Errors of the function are printed. Nothing is called any more once the interpreter ends.
void call_when_complete(const Work& work, nb::object function);

void bind_work(nb::module_& m);

}  // namespace tutti::python
