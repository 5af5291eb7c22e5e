#include "work.hpp"

#include "calls.hpp"
#include "errors.hpp"

#include <nanobind/stl/string.h>

#include <pthread.h>

#include <atomic>
#include <deque>
#include <thread>
#include <utility>

namespace tutti::python {
namespace {

// Arrays of operations whose Work was dropped while they ran. Never destroyed: operations may write to the memory until
// the end.
struct Dropped {
    nb::ft_mutex mutex;
    std::deque<PendingWork> works;
};
Dropped& dropped() {
    static auto* all = new Dropped();
    return *all;
}

// ---- Callbacks from threads of tutti's ----------------------------------------------------------------------------

// A thread that asks for the interpreter's lock when the interpreter is ending would never get it. close() sets
// `closed` before that, and waits for the threads inside.
std::atomic<bool> closed{false};
std::atomic<int> inside{0};

class Inside {
 public:
    Inside() { inside.fetch_add(1); }
    ~Inside() { inside.fetch_sub(1); }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;
    bool may_enter() const { return !closed.load(); }
};

// A forked child has none of the threads that were inside.
const int forks_begin_outside = ::pthread_atfork(nullptr, nullptr, [] { inside = 0; });

// The interpreter's end may free arrays: their sends are received before, or withdrawn.
void close() {
    end_daemon_threads();
    without_gil([] { leave_all_groups(std::chrono::seconds(2)); });
    closed = true;
    without_gil([] {
        for (int turn = 0; inside.load() > 0 && turn < 1000; ++turn) std::this_thread::sleep_for(milliseconds(1));
    });
}

std::shared_ptr<PyObject> shared_function(nb::object function) {
    return {function.release().ptr(), [](PyObject* object) { with_gil([object] { Py_DECREF(object); }); }};
}

void call_from_outside(PyObject* function) {
    with_gil([function] {
        PyObject* result = PyObject_CallNoArgs(function);
        if (result == nullptr)
            PyErr_WriteUnraisable(function);
        else
            Py_DECREF(result);
    });
}

}  // namespace

void release_completed() {
    auto& [mutex, works] = dropped();
    std::vector<PendingWork> done;  // ends after the lock: what it destroys may run code of the program's
    const nb::ft_lock_guard lock(mutex);
    if (works.empty()) return;
    std::deque<PendingWork> still;
    for (PendingWork& work : works) {
        if (work.work().is_completed())
            done.push_back(std::move(work));
        else
            still.push_back(std::move(work));
    }
    works = std::move(still);
}

void keep_until_complete(PendingWork work) {
    auto& [mutex, works] = dropped();
    const nb::ft_lock_guard lock(mutex);
    works.push_back(std::move(work));
}

// An operation on a device completes when it is in a stream, and uses the arrays for longer. Their library may re-use
// their memory for other work, which comes after the operation if the library's stream waits for it.
void PendingWork::let_stream_wait() noexcept {
    try {
        const nb::error_scope kept;
        const InStream in_stream(source_);
        without_gil([&] { Work(work_).wait(); });
    } catch (...) {  // the operation has failed, and nobody asks
    }
}

PendingWork::~PendingWork() {
    if (!work_ || (arrays_.empty() && !owner_.is_valid())) return;
    if (work_.is_completed()) {
        if (source_.device != Device::Type::cpu && !waited_) let_stream_wait();
        return;
    }
    keep_until_complete(
        PendingWork(std::move(work_), std::move(arrays_), std::move(outputs_), std::move(owner_), std::move(source_)));
}

nb::object PendingWork::object(Work work, std::vector<Array> arrays, nb::object outputs) {
    release_completed();
    StreamSource source = source_of(arrays);
    keep_if_captured(arrays);
    return nb::cast(PendingWork(std::move(work), std::move(arrays), std::move(outputs), {}, std::move(source)));
}

nb::object PendingWork::object(Work work, nb::object outputs, nb::object owner, StreamSource source) {
    release_completed();
    if (owner.is_valid() && keep_if_captured(owner)) owner = {};
    return nb::cast(PendingWork(std::move(work), {}, std::move(outputs), std::move(owner), std::move(source)));
}

bool PendingWork::wait(milliseconds timeout) {
    const InStream in_stream(source_);
    const bool done = without_gil([&] { return Work(work_).wait(timeout); });
    waited_ = true;
    arrays_.clear();
    return done;
}

nb::object PendingWork::result() const {
    (void)work_.result();
    return outputs_.is_valid() ? nb::borrow(outputs_) : nb::object(nb::list());
}

void call_when_complete(const Work& work, nb::object function) {
    const auto shared = shared_function(std::move(function));
    without_gil(
        [&] { work.get_future().add_done_callback([shared](const auto&) { call_from_outside(shared.get()); }); });
}

bool with_gil(const std::function<void()>& call) {
    const Inside here;
    if (!here.may_enter()) return false;
    const nb::gil_scoped_acquire lock;
    call();
    return true;
}

void bind_work(nb::module_& m) {
    nb::enum_<WorkResult>(m, "WorkResult", nb::is_arithmetic(), "How an operation ended.")
        .value("SUCCESS", WorkResult::success)
        .value("TIMEOUT", WorkResult::timeout)
        .value("COMM_ERROR", WorkResult::comm_error)
        .value("UNKNOWN", WorkResult::unknown);

    nb::class_<PendingWork>(
        m, "Work",
        "The handle of an asynchronous operation. All methods may be called from any thread.\n\n"
        "The arrays of the operation stay alive until it is complete; do not write to them, and do\n"
        "not read the outputs, before that. Dropping the handle does not cancel anything.\n\n"
        "Example:\n"
        "    >>> work = dist.all_reduce(np.ones(3), async_op=True)\n"
        "    >>> work.wait(), work.is_success(), work.result()\n"
        "    (True, True, [array([1., 1., 1.])])")
        .def(
            "is_completed", [](const PendingWork& self) { return self.work().is_completed(); },
            "Whether it has finished, well or not.")
        .def(
            "wait", [](PendingWork& self, nb::handle timeout) { return self.wait(timeout_of(timeout, "Work.wait")); },
            nb::lock_self(), nb::arg("timeout") = nb::none(),
            nb::sig("def wait(self, timeout: datetime.timedelta | None = None) -> bool"),
            "Blocks until it has finished; returns True. Raises what the operation failed with, and Timeout when a\n"
            "`timeout` other than zero passes first; the operation goes on then. On a device: the current stream of "
            "the\n"
            "arrays' library waits for it, not the caller, unless there is a `timeout`.")
        .def(
            "synchronize", [](PendingWork& self) { self.wait(milliseconds(0)); }, nb::lock_self(),
            "The same as wait() without a timeout; returns None.")
        .def(
            "is_success", [](const PendingWork& self) { return self.work().is_success(); },
            "Whether it has finished without an error.")
        .def(
            "exception", [](const PendingWork& self) { return exception_object(self.work().exception()); },
            nb::sig("def exception(self) -> BaseException | None"), "The error, or None.")
        .def("result", &PendingWork::result, nb::sig("def result(self) -> list[typing.Any]"),
             "The output arrays, in the order of the call's arguments; raises if it is not finished or has failed.")
        .def(
            "source_rank", [](const PendingWork& self) { return self.work().source_rank(); },
            "Rank in the group of the sender that a receive met.")
        .def(
            "get_future", [](nb::object self) { return nb::module_::import_("tutti.futures").attr("future_of")(self); },
            nb::sig("def get_future(self) -> Future[list[typing.Any]]"), "A future of result().")
        .def(
            "get_future_result",
            [](nb::object self) { return nb::module_::import_("tutti.futures").attr("future_result_of")(self); },
            nb::sig("def get_future_result(self) -> Future[WorkResult]"),
            "A future of how the operation ends; never of an exception.")
        .def(
            "boxed", [](nb::object self) { return self; }, nb::sig("def boxed(self) -> object"),
            "The work as a generic object.")
        .def_static(
            "unbox",
            [](nb::object object) {
                if (!nb::isinstance<PendingWork>(object)) {
                    throw_type_error("Work.unbox", "obj", object, "what Work.boxed() returns");
                }
                return object;
            },
            nb::arg("obj"), nb::sig("def unbox(obj: object) -> Work"), "The work of a generic object.")
        .def(
            "__await__", [](nb::object self) { return nb::module_::import_("tutti.futures").attr("await_work")(self); },
            nb::sig("def __await__(self) -> collections.abc.Generator[typing.Any, None, list[typing.Any]]"),
            "await work: result(), or the error is raised.")
        .def(
            "_when_complete",
            [](const PendingWork& self, nb::object function) { call_when_complete(self.work(), std::move(function)); },
            nb::arg("function"),
            nb::sig("def _when_complete(self, function: collections.abc.Callable[[], object]) -> None"))
        .def_prop_ro(
            "_stream_source",
            [](const PendingWork& self) {
                return self.source().current.is_valid() ? nb::borrow(self.source().current) : nb::object(nb::none());
            },
            nb::sig("def _stream_source(self) -> typing.Any"))
        .def_prop_ro("_is_on_device", [](const PendingWork& self) { return self.source().device != Device::Type::cpu; })
        .def("_how_it_ended", [](const PendingWork& self) {
            return without_gil([&] { return self.work().get_future_result().wait(); });
        });

    m.def("_close", &close,
          "Before the interpreter ends: all groups are left, and nothing is called from threads any more.");
}

}  // namespace tutti::python
