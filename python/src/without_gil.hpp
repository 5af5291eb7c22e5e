// WithoutGil: while it lives, its thread does not hold the interpreter's lock.
#pragma once

#include "python.hpp"

namespace tutti::python {

/// One thread makes and destroys it, and holds the lock before and after. If the interpreter ends meanwhile, the
/// destructor does not return.
class WithoutGil {
 public:
    WithoutGil() : state_(PyEval_SaveThread()) {}
    ~WithoutGil();
    WithoutGil(const WithoutGil&) = delete;
    WithoutGil& operator=(const WithoutGil&) = delete;

 private:
    PyThreadState* state_;
};

}  // namespace tutti::python
