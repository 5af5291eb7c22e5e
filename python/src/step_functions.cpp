// Functions of Python's as steps of a schedule, over NumPy arrays.
#include <tutti/step_function.hpp>

#include <nanobind/stl/string.h>

#include <fmt/format.h>

#include <span>
#include <stdexcept>
#include <string>
#include <utility>

#include "device_arrays.hpp"
#include "errors.hpp"
#include "parts.hpp"
#include "work.hpp"

namespace tutti::python {
namespace {

// The arrays are views of the schedule's memory. With the interpreter's lock.
void call(PyObject* function, const TensorView& target, std::span<const ConstTensorView> sources) {
    nb::list arrays;
    for (const ConstTensorView& source : sources) {
        nb::object array = to_array(TensorView(const_cast<void*>(source.data()), source.shape(), source.dtype()));
        array.attr("setflags")(nb::arg("write") = false);
        arrays.append(array);
    }
    const nb::object result = nb::handle(function)(to_array(target), arrays);
    if (!result.is_none())
        throw std::runtime_error(
            fmt::format("it has returned {}: expected None, and the result in its first argument", class_name(result)));
}

void register_function(const std::string& name, nb::object function) {
    // As long as the process.
    PyObject* const kept = function.release().ptr();
    auto run = [kept](const TensorView& target, std::span<const ConstTensorView> sources) {
        std::string failure;
        const bool ran = with_gil([&] {
            try {
                call(kept, target, sources);
            } catch (const nb::python_error& error) {  // which goes with the lock
                failure = words_of(error);
            }
        });
        if (!ran) throw std::runtime_error("the interpreter has ended");
        if (!failure.empty()) throw std::runtime_error(failure);
    };
    try {
        register_step_function(name, std::move(run));
    } catch (...) {
        Py_DECREF(kept);
        throw;
    }
}

}  // namespace

void bind_step_functions(nb::module_& m) {
    m.def("register_step_function", &register_function);
}

}  // namespace tutti::python
