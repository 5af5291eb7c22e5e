// Backends: which there are, and those that are written in Python.
#pragma once

#include "python.hpp"

namespace tutti::python {

void bind_backends(nanobind::module_& m);

}  // namespace tutti::python
