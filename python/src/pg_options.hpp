// pg_options: the options that Python programs give to the backends of a group.
//
// Threads: those that hold the interpreter's lock.
#pragma once

#include "python.hpp"

#include <any>
#include <string>

namespace tutti::python {

/// Options for a group of `backend` (a name, a map of devices, or "" for the existing ones): NcclOptions, from a
/// ProcessGroupNCCL.Options or PyTorch's, for NCCL's backend and its relatives; the object itself for backends that are
/// registered from Python. Throws ArgumentTypeError for options that NCCL's cannot take.
std::any pg_options_of(nb::handle options, const std::string& backend, const char* operation);

}  // namespace tutti::python
