// Captures: what the calls that a graph captures keep alive, since its replays use it.
//
// Threads: those that hold the interpreter's lock; each thread has its own capture.
#pragma once

#include "arrays.hpp"

#include <vector>

namespace tutti::python {

/// While this thread captures a graph: the graph takes the arrays.
void keep_if_captured(std::vector<Array>& arrays);
/// The same of an object that holds what a call uses, such as a plan. False: this thread captures nothing.
bool keep_if_captured(nb::handle owner);

}  // namespace tutti::python
