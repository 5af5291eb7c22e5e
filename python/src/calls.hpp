// Calls: the common part of all bindings of collectives and messages: groups and times from Python's objects, and calls
// without the interpreter's lock.
#pragma once

#include "arrays.hpp"
#include "call_site/call_site.hpp"
#include "captures.hpp"
#include "errors.hpp"
#include "without_gil.hpp"
#include "work.hpp"

#include <tutti/distributed.hpp>
#include <tutti/trace.hpp>

#include <nanobind/stl/optional.h>
#include <nanobind/typing.h>

#include <any>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

namespace tutti::python {

/// Only for type hints: the result of a call that may be asynchronous, and groups.
using OptionalWork = nb::typed<nb::object, std::optional<PendingWork>>;
using GroupObject = nb::typed<nb::object, ProcessGroup>;
using GroupList = nb::typed<nb::list, ProcessGroup>;
using GroupAndList = nb::typed<nb::tuple, ProcessGroup, GroupList>;

constexpr auto reads = Array::Access::read;
constexpr auto writes = Array::Access::write;

inline nb::list one(nb::handle object) {
    nb::list list;
    list.append(object);
    return list;
}

/// The group from None (the default group), a ProcessGroup or a DeviceMesh of one dimension.
ProcessGroup group_of(nb::handle group, const char* operation);
/// Whether this rank is outside of the group: a call of that function has nothing to do, and warns (UserWarning).
bool is_outside(const ProcessGroup& group, const char* operation);
/// A rank that may be missing; InvalidArgument for an object that is no integer.
std::optional<int> rank_of(nb::handle rank, const char* operation, const char* argument);
/// A required integer; InvalidArgument for anything else.
int integer_of(nb::handle value, const char* operation, const char* argument);
/// A shape from an integer, or a list or tuple of integers; TypeError for anything else.
Extents shape_of(nb::handle shape, const char* operation);
/// True or False; InvalidArgument for anything else.
bool flag_of(nb::handle flag, const char* operation, const char* argument);
/// A ReduceOp, or one of its kinds.
ReduceOp op_of(nb::handle op, const char* operation);
/// A timedelta; None: nullopt.
std::optional<milliseconds> duration_of(nb::handle timeout, const char* operation, const char* argument);
/// The same where zero stands for the group's.
inline milliseconds timeout_of(nb::handle timeout, const char* operation) {
    return duration_of(timeout, operation, "timeout").value_or(milliseconds(0));
}

nb::object timedelta(milliseconds time);
/// A Python object in a std::any, as a std::shared_ptr<PyObject>.
std::any shared_object(nb::handle object);

/// Keeps the arrays to the end of the coalescing scope that collects this thread's calls, if there is one.
void keep_if_collected(std::vector<Array>& arrays);

template <class... A>
std::vector<Array> list_of(A&&... array) {
    std::vector<Array> arrays;
    arrays.reserve(sizeof...(A));
    (arrays.push_back(std::forward<A>(array)), ...);
    return arrays;
}

/// Runs a call without the interpreter's lock; records give the current place in the program's Python code as its call
/// site.
template <class F>
auto without_gil(F call) {
    const CallSiteScope site(call_site());
    const WithoutGil without;
    return call();
}

/// Runs a blocking call that uses the arrays, without the interpreter's lock.
template <class F>
auto block(std::vector<Array>& arrays, F call) {
    const InStream in_stream(source_of(arrays));
    keep_if_collected(arrays);
    keep_if_captured(arrays);
    return without_gil(std::move(call));
}

/// Begins a call that uses the arrays; None where the caller is not in the group. `outputs`: Work.result().
template <class F>
OptionalWork begin(std::vector<Array> arrays, nb::object outputs, F call) {
    const InStream in_stream(source_of(arrays));
    Work work = without_gil(std::move(call));
    if (!work) return OptionalWork(nb::none());
    return OptionalWork(PendingWork::object(std::move(work), std::move(arrays), std::move(outputs)));
}

}  // namespace tutti::python
