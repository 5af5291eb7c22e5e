// WithoutLock: while it lives, its thread does not hold the interpreter's lock.
#pragma once

#include "python.hpp"

namespace tutti::python {

/// Made and destroyed by the same thread, which holds the lock before and after. Where the interpreter ends meanwhile,
/// its destructor does not return.
class WithoutLock {
 public:
    WithoutLock() : state_(PyEval_SaveThread()) {}
    ~WithoutLock();
    WithoutLock(const WithoutLock&) = delete;
    WithoutLock& operator=(const WithoutLock&) = delete;

 private:
    PyThreadState* state_;
};

}  // namespace tutti::python
