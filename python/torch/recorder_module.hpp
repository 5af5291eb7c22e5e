// The flight recorder for Python.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace tutti::torch {

/// recording(), recorded_entries(stacks, only_active) and recorded_groups(): see python/tutti/torch/flight.py.
void bind_recorder(py::module_& module);

}  // namespace tutti::torch
