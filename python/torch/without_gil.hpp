// While it lives, this thread does not hold the GIL; if it did before, it takes it again at the end.
//
// Threads of the world may need the GIL, for a store that is written in Python, while this one waits for them.
#pragma once

#include <Python.h>

namespace tutti::torch {

class WithoutGil {
 public:
    WithoutGil() : state_(Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : nullptr) {}
    ~WithoutGil() {
        if (state_) PyEval_RestoreThread(state_);
    }
    WithoutGil(const WithoutGil&) = delete;
    WithoutGil& operator=(const WithoutGil&) = delete;

 private:
    PyThreadState* state_;
};

}  // namespace tutti::torch
