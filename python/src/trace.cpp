// Counters, dumps of the flight recorder, and hooks around operations.
#include "calls.hpp"
#include "parts.hpp"

#include <tutti/trace.hpp>

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string_view>
#include <utility>

namespace tutti::python {
namespace {

// Python functions around every call, until it is closed. Their exceptions are printed.
class OperationHookObject {
 public:
    OperationHookObject(nb::handle before, nb::handle after) {
        OperationHooks hooks;
        if (!before.is_none()) {
            hooks.before = [function = kept(before, "before")](std::string_view operation) {
                call(function.get(), operation, std::nullopt);
            };
        }
        if (!after.is_none()) {
            hooks.after = [function = kept(after, "after")](std::string_view operation, bool failed) {
                call(function.get(), operation, failed);
            };
        }
        scope_ = std::make_unique<OperationHookScope>(std::move(hooks));
    }
    OperationHookObject(OperationHookObject&&) = default;
    OperationHookObject& operator=(OperationHookObject&&) = delete;
    ~OperationHookObject() { close(); }

    // Waits for hooks of other threads, which need the interpreter's lock.
    void close() {
        if (scope_) without_gil([scope = std::move(scope_)]() mutable { scope.reset(); });
    }

 private:
    static std::shared_ptr<PyObject> kept(nb::handle function, const char* argument) {
        if (!PyCallable_Check(function.ptr())) throw_type_error("operation_hooks", argument, function, "a function");
        return std::any_cast<std::shared_ptr<PyObject>>(shared_object(function));
    }
    static void call(nb::handle function, std::string_view operation, std::optional<bool> failed) {
        const nb::gil_scoped_acquire lock;
        try {
            const nb::str name(operation.data(), operation.size());
            if (failed)
                function(name, *failed);
            else
                function(name);
        } catch (nb::python_error& error) {
            error.discard_as_unraisable("a hook around an operation");
        }
    }

    std::unique_ptr<OperationHookScope> scope_;
};

}  // namespace

void bind_trace(nb::module_& m) {
    m.def(
        "dump_trace", &dump_trace, nb::arg("folder"), nb::arg("reason") = "asked for",
        "Writes the flight records of this process's groups to a folder, which is made if need be; returns the files'\n"
        "paths. InvalidArgument, with the file, when that cannot be done.");
    m.def("dump_flight_recorder", &dump_flight_recorder, nb::arg("folder"),
          "Writes what this process's groups did for PyTorch's torchfrtrace, one file for each rank of this process in "
          "each\n"
          "world, to a folder, which is made if need be; returns the files' paths. InvalidArgument as by dump_trace.");
    m.def("prometheus_text", &prometheus_text, "The counters of all groups in Prometheus' text format.");
    nb::class_<GroupCounters>(m, "GroupCounters", "What this rank has done in one group since the group was made.")
        .def_ro("issued", &GroupCounters::issued, "Operations that were begun.")
        .def_ro("completed", &GroupCounters::completed, "Operations that have finished well.")
        .def_ro("failed", &GroupCounters::failed, "Operations that have failed.")
        .def_ro("bytes", &GroupCounters::bytes, "That this rank put into collectives, sent or received.")
        .def_ro("seconds", &GroupCounters::seconds,
                "From call to completion, of all operations that were not over in a moment.")
        .def_ro("waited_s", &GroupCounters::waited_s,
                "By rank: seconds for which it was waited for, in waits of more than some 10 ms.")
        .def("__repr__", [](const GroupCounters& self) {
            return "<GroupCounters issued=" + std::to_string(self.issued) +
                   " completed=" + std::to_string(self.completed) + " failed=" + std::to_string(self.failed) +
                   " bytes=" + std::to_string(self.bytes) + ">";
        });
    m.def("group_counters", [](nb::handle group) { return group_counters(group_of(group, "group_counters")); });
    nb::class_<OperationHookObject>(m, "OperationHooks", "Hooks around every call; see operation_hooks.")
        .def(
            "__init__",
            [](OperationHookObject* self, nb::handle before, nb::handle after) {
                new (self) OperationHookObject(before, after);
            },
            nb::arg("before"), nb::arg("after"),
            nb::sig("def __init__(self, before: collections.abc.Callable[[str], object] | None, "
                    "after: collections.abc.Callable[[str, bool], object] | None) -> None"))
        .def("close", &OperationHookObject::close, nb::lock_self(), "The hooks are not called any more.");
}

}  // namespace tutti::python
