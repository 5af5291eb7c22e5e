// AllToAllVV2: tutti.atb gives these functions their names and defaults.
#include "calls.hpp"
#include "groups.hpp"
#include "parts.hpp"

#include <tutti/atb.hpp>

#include <fmt/format.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace tutti::python {
namespace {

constexpr const char* operation_name = "AllToAllVV2";

// One-dimensional counts or displacements: a list, a NumPy array, a PyTorch tensor on any device. None: not given.
std::vector<std::int64_t> numbers_of(nb::handle object, const char* name) {
    if (object.is_none()) return {};
    const nb::object values = nb::hasattr(object, "tolist") ? nb::object(object.attr("tolist")()) : nb::borrow(object);
    const auto refuse = [&](atb::ErrorType code, nb::handle what, const std::string& place, const char* expected) {
        throw atb::Error(code, fmt::format("{}: {}{} is {}: expected {}", operation_name, name, place,
                                           nb::repr(what).c_str(), expected));
    };
    if (!PyList_Check(values.ptr()) && !PyTuple_Check(values.ptr()))
        refuse(atb::ERROR_INVALID_TENSOR_DIM, values, "", "one dimension of integers");
    std::vector<std::int64_t> numbers;
    for (const nb::handle value : values) {
        const std::string place = fmt::format("[{}]", numbers.size());
        if (PyList_Check(value.ptr()) || PyTuple_Check(value.ptr()))
            refuse(atb::ERROR_INVALID_TENSOR_DIM, value, place, "one dimension of integers");
        if (!PyIndex_Check(value.ptr())) refuse(atb::ERROR_INVALID_TENSOR_DTYPE, value, place, "an integer (int64)");
        numbers.push_back(PyLong_AsLongLong(value.ptr()));
        if (numbers.back() == -1 && PyErr_Occurred() != nullptr) {
            PyErr_Clear();
            refuse(atb::ERROR_INVALID_PARAM, value, place, "an integer of 64 bits");
        }
    }
    return numbers;
}

// Of tensorForInferShape only the number of elements matters. None, or no elements: not given.
std::int64_t length_of(nb::handle shape) {
    if (shape.is_none()) return -1;
    std::int64_t elements = 1;
    if (nb::hasattr(shape, "shape")) {
        const nb::object sizes = shape.attr("shape");
        for (const nb::handle size : sizes) elements *= nb::cast<std::int64_t>(nb::int_(nb::borrow(size)));
    } else {
        elements = nb::cast<std::int64_t>(nb::int_(nb::len(shape)));
    }
    return elements > 0 ? elements : -1;
}

atb::AllToAllVV2Param param_of(nb::handle p) {
    atb::AllToAllVV2Param param;
    const auto integer = [&](const char* name) {
        const nb::object value = p.attr(name);
        return integer_of(value, "AllToAllVV2Param", name);
    };
    const auto text = [&](const char* name) {
        const nb::object value = p.attr(name);
        if (!PyUnicode_Check(value.ptr())) throw_type_error("AllToAllVV2Param", name, value, "a str");
        return nb::cast<std::string>(value);
    };
    param.rank = integer("rank");
    param.rankSize = integer("rankSize");
    param.rankRoot = integer("rankRoot");
    param.backend = text("backend");
    if (const nb::object group = p.attr("hcclComm"); !group.is_none())
        param.hcclComm = group_of(group, "AllToAllVV2Param: hcclComm");
    param.commMode = static_cast<atb::CommMode>(integer("commMode"));
    param.rankTableFile = text("rankTableFile");
    param.commDomain = text("commDomain");
    const nb::object reserved = p.attr("rsv");
    if (!PyBytes_Check(reserved.ptr()) || PyBytes_Size(reserved.ptr()) != sizeof param.rsv)
        throw_type_error("AllToAllVV2Param", "rsv", reserved, "64 bytes");
    std::copy_n(reinterpret_cast<const std::uint8_t*>(PyBytes_AsString(reserved.ptr())), sizeof param.rsv, param.rsv);
    return param;
}

constexpr std::size_t tensors_max = 6;  // x, four lists of numbers, and the one with the output's length

atb::AllToAllVV2Inputs inputs_of(const nb::list& tensors, nb::handle send_count) {
    const auto given = [&](std::size_t i) { return i < tensors.size() ? nb::object(tensors[i]) : nb::none(); };
    return {.sendCounts = numbers_of(given(1), "sendCounts"),
            .sdispls = numbers_of(given(2), "sdispls"),
            .recvCounts = numbers_of(given(3), "recvCounts"),
            .rdispls = numbers_of(given(4), "rdispls"),
            .inferShape = length_of(given(5)),
            .sendCount = numbers_of(send_count, "sendCount")};
}

// An error of this rank becomes an error of the same code on the other ranks.
void refuse(atb::OperationTorch& operation, const std::exception& error) {
    const auto* own = dynamic_cast<const atb::Error*>(&error);
    const atb::Error told(own != nullptr ? own->code() : atb::ERROR_INVALID_PARAM, error.what());
    without_gil([&] { operation.refuse(told); });
}

// `make_output(x, elements)` makes the array that the caller gets. An error before the call is an error on all ranks.
nb::object execute(atb::OperationTorch& operation, nb::handle in_tensors, nb::handle send_count,
                   nb::handle make_output) {
    const nb::list tensors(nb::borrow(in_tensors));
    if (tensors.size() == 0 || tensors.size() > tensors_max) {  // tells all ranks the expected number
        const std::vector<ConstTensorView> as_many(tensors.size());
        without_gil([&] { operation.execute(as_many); });
    }
    std::vector<Array> arrays;
    atb::AllToAllVV2Inputs inputs;
    nb::object output;
    try {
        arrays.emplace_back(nb::object(tensors[0]), reads, operation_name, "x");
        inputs = inputs_of(tensors, send_count);
        const ConstTensorView x = arrays[0].view();
        const std::int64_t elements = without_gil([&] { return operation.output_elements(x, inputs); });
        output = make_output(tensors[0], elements);
        arrays.emplace_back(output, writes, operation_name, "output");
    } catch (const std::exception& error) {
        refuse(operation, error);
        throw;
    }
    block(arrays, [&] { operation.execute(arrays[1].view(), arrays[0].view(), inputs); });
    return output;
}

}  // namespace

void bind_atb(nb::module_& m) {
    nb::class_<atb::OperationTorch>(m, "AtbOperation", "Private: see tutti.atb.")
        .def(nb::init<const std::string&>(), nb::arg("name"))
        .def_prop_ro("op_name", [](const atb::OperationTorch& self) { return self.op_name(); })
        .def_prop_ro(
            "group", [](const atb::OperationTorch& self) { return group_object(self.group()); },
            nb::sig("def group(self) -> ProcessGroup"))
        .def(
            "set_param",
            [](atb::OperationTorch& self, nb::handle param) {
                const atb::AllToAllVV2Param values = param_of(param);
                without_gil([&] { self.set_param(values); });
            },
            nb::arg("param"), nb::sig("def set_param(self, param: typing.Any) -> None"))
        .def(
            "set_param_text",
            [](atb::OperationTorch& self, const std::string& json) { without_gil([&] { self.set_param(json); }); },
            nb::arg("json"))
        .def("set_varaintpack_param", &atb::OperationTorch::set_varaintpack_param, nb::arg("json"))
        .def("execute", &execute, nb::arg("inTensors"), nb::arg("sendCount"), nb::arg("make_output"),
             nb::sig("def execute(self, inTensors: typing.Sequence[typing.Any], sendCount: typing.Any, "
                     "make_output: typing.Callable[[typing.Any, int], typing.Any]) -> typing.Any"));
}

}  // namespace tutti::python
