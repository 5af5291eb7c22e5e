// Backends: which there are, and those that are written in Python.
#pragma once

#include "python.hpp"

#include <string>

namespace tutti::python {

/// Whether Backend.register_backend made it known.
bool is_from_python(const std::string& name);

void bind_backends(nanobind::module_& m);

}  // namespace tutti::python
