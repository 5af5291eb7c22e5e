#include "device_arrays.hpp"

#include "arrays.hpp"

#include <dlpack/dlpack.h>
#include <fmt/format.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <string>

namespace tutti::python {
namespace {

struct DeviceArray {
    Tensor tensor;
};

// A capsule deletes its tensor if no library has taken it.
nb::object capsule_of(const Tensor& tensor) {
    DLManagedTensor* managed = tensor.to_dlpack();
    PyObject* capsule = PyCapsule_New(managed, "dltensor", [](PyObject* self) {
        if (PyCapsule_IsValid(self, "dltensor") == 0) return;
        auto* unused = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(self, "dltensor"));
        unused->deleter(unused);
    });
    if (capsule == nullptr) {
        managed->deleter(managed);
        throw nb::python_error();
    }
    return nb::steal(capsule);
}

}  // namespace

nb::object to_array(const TensorView& view) {
    const Tensor tensor(view, nullptr);
    if (view.device().type == Device::Type::cpu) return to_numpy(tensor);
    return nb::cast(DeviceArray{tensor});
}

void bind_device_arrays(nb::module_& m) {
    nb::class_<DeviceArray>(m, "DeviceArray",
                            "A buffer on a device, of one dimension, in one piece: torch.from_dlpack(array) and\n"
                            "cupy.from_dlpack(array) are views of it. Work on it belongs in the request's stream.")
        .def_prop_ro(
            "data_ptr",
            [](const DeviceArray& self) { return reinterpret_cast<std::uintptr_t>(self.tensor.raw_data()); },
            "The address of its first element.")
        .def_prop_ro(
            "shape", [](const DeviceArray& self) { return nb::make_tuple(self.tensor.element_count()); },
            nb::sig("def shape(self) -> tuple[int]"))
        .def_prop_ro("dtype", [](const DeviceArray& self) { return std::string(to_string(self.tensor.dtype())); })
        .def_prop_ro("device", [](const DeviceArray& self) { return to_string(self.tensor.device()); })
        .def("__len__", [](const DeviceArray& self) { return self.tensor.element_count(); })
        .def(
            "__dlpack__", [](const DeviceArray& self, const nb::kwargs&) { return capsule_of(self.tensor); },
            nb::sig("def __dlpack__(self, **options: typing.Any) -> typing.Any"),
            "Waits for nothing: the request's stream says what it comes after.")
        .def(
            "__dlpack_device__",
            [](const DeviceArray& self) {
                return nb::make_tuple(static_cast<int>(self.tensor.device().type), self.tensor.device().index);
            },
            nb::sig("def __dlpack_device__(self) -> tuple[int, int]"))
        .def("__repr__", [](const DeviceArray& self) {
            return fmt::format("<DeviceArray {} on {}>", self.tensor.view().to_string(),
                               to_string(self.tensor.device()));
        });
}

}  // namespace tutti::python
