// Backends: the list of them, and backends in Python.
#pragma once

#include "python.hpp"

#include <string>

namespace tutti::python {

/// Whether a Python program has registered it (Backend.register_backend).
bool is_from_python(const std::string& name);

void bind_backends(nanobind::module_& m);

}  // namespace tutti::python
