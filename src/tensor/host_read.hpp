// before_host_read: who wants to know that the library is about to read a tensor for the program.
//
// A graph's capture does: what it captured has not run, so there is nothing to read yet. Threads: each has its own.
#pragma once

#include <tutti/tensor.hpp>

namespace tutti {

/// May throw. `site`: the return address of the reader; null: that of the public function that is being called.
using HostReadCheck = void (*)(const ConstTensorView& tensor, const char* reader, const void* site);
/// Null: nobody.
inline constinit thread_local HostReadCheck before_host_read = nullptr;

}  // namespace tutti
