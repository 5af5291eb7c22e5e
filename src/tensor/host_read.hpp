// before_host_read: a hook that runs before the library reads the elements of a tensor on behalf of the program.
//
// The capture of a graph sets it: captured operations have not run, so their results cannot be read yet. Threads: each
// thread has its own hook.
#pragma once

#include <tutti/tensor.hpp>

namespace tutti {

/// May throw. `site`: the return address of the reader; null: that of the public function that is being called.
using HostReadCheck = void (*)(const ConstTensorView& tensor, const char* reader, const void* site);
/// Null: no hook.
inline constinit thread_local HostReadCheck before_host_read = nullptr;

}  // namespace tutti
