// PendingWork: a Work with the arrays that its operation uses.
#pragma once

#include "arrays.hpp"

#include <tutti/work.hpp>

#include <functional>
#include <memory>
#include <vector>

namespace tutti::python {

/// The class that Python calls Work. Dropping it does not cancel the operation, whose arrays stay alive until it is
/// complete.
/// Threads: those that hold the interpreter's lock.
class PendingWork {
 public:
    PendingWork(Work work, std::vector<Array> arrays, nb::object outputs, nb::object owner, StreamSource source)
        : work_(std::move(work)),
          arrays_(std::move(arrays)),
          outputs_(std::move(outputs)),
          owner_(std::move(owner)),
          source_(std::move(source)) {}
    PendingWork(PendingWork&&) noexcept = default;
    PendingWork& operator=(PendingWork&&) = delete;
    ~PendingWork();

    static nb::object object(Work work, std::vector<Array> arrays, nb::object outputs);
    /// `owner` keeps the arrays if they are not here; `source` gives their stream.
    static nb::object object(Work work, nb::object outputs, nb::object owner, StreamSource source);

    const Work& work() const noexcept { return work_; }
    const StreamSource& source() const noexcept { return source_; }
    /// On a device the current stream of the arrays' library waits.
    bool wait(std::chrono::milliseconds timeout);
    nb::object result() const;

 private:
    friend void keep_until_complete(PendingWork work);
    void let_stream_wait() noexcept;
    Work work_;
    std::vector<Array> arrays_;
    nb::object outputs_;  // a list, in the order of Work::result()
    nb::object owner_;
    StreamSource source_;
    bool waited_ = false;
};

/// Releases arrays of operations that have completed since.
void release_completed();

/// Calls a Python function without arguments when the operation is complete: at once, or on a thread of tutti's.
/// Prints errors of the function. Calls nothing any more once the interpreter ends.
void call_when_complete(const Work& work, nb::object function);

/// Runs `call` with the interpreter's lock, on any thread. False, and it is not run: the interpreter ends.
bool with_gil(const std::function<void()>& call);

void bind_work(nb::module_& m);

}  // namespace tutti::python
