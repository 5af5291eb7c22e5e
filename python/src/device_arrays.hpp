// DeviceArray: a buffer on a device, as Python backends get it: any library takes it by DLPack.
//
// Threads: those that hold the interpreter's lock.
#pragma once

#include <tutti/tensor.hpp>

#include "python.hpp"

namespace tutti::python {

/// A NumPy array over a tensor in host memory; a DeviceArray over one on a device. Neither owns the memory.
nb::object to_array(const TensorView& view);

void bind_device_arrays(nb::module_& m);

}  // namespace tutti::python
