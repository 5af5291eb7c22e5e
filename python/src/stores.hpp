// Stores as Python objects, and stores in Python.
#pragma once

#include <tutti/store.hpp>

#include "python.hpp"

namespace tutti::python {

/// A tutti.Store, or any object with a store's methods (set, get, add, wait, …), which tutti then calls.
Store store_of(nb::handle store, const char* operation);

void bind_stores(nb::module_& m);

}  // namespace tutti::python
