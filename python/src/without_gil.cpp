#include "without_gil.hpp"

#include <cxxabi.h>
#include <unistd.h>

namespace tutti::python {

// An ending interpreter ends a daemon thread that asks for its lock by pthread_exit, which unwinds the thread's frames
// (up to Python 3.13). The frames between here and the interpreter must not be unwound: destructors, and functions that
// throw nothing. So the thread stays here until the process has ended, as it would inside of Python 3.14.
WithoutGil::~WithoutGil() {
    try {
        PyEval_RestoreThread(state_);
    } catch (abi::__forced_unwind&) {
        for (;;) ::pause();
    }
}

}  // namespace tutti::python
