// Where the program's Python code called: for the bindings' CallSiteScope, so that records, dumps and verdicts name a
// line.
//
// The innermost of this thread's frames that is not of a package counts. Nothing is locked, and no reference is taken:
// a thread's frames, and the code that they run, stay while the thread is in a call. A place that was found before is
// found again in some ten nanoseconds.
//
// Threads: any, with or without the interpreter's lock (with it, where the interpreter is newer than 3.13, or the
// module is one for the stable ABI: frames are looked at by public functions there).
#pragma once

#include <string>
#include <vector>

namespace tutti::python {

/// The folders of packages whose code is not the program's: tutti's own, PyTorch's. When the module is loaded.
void set_packages(std::vector<std::string> folders);

/// "/path/to/train.py:12 in step"; stays as long as the process. Null where this thread runs no Python code of the
/// program's.
const char* call_site() noexcept;

}  // namespace tutti::python
