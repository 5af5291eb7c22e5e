// TorchrunVariables: the PET_* variables by which platforms (Kubeflow's PyTorchJob and Trainer) give torchrun its
// arguments. `tutti run` reads those that apply to it, unless a flag is given, and reports the others in a message: a
// setting must not be ignored silently.
//
// Threads: any; functions of their arguments.
#pragma once

#include "launch/placement.hpp"

#include <span>
#include <string>

namespace tutti::launch {

/// The flag's value if it has one, else that of its PET_ variable: PET_MAX_RESTARTS for "--max-restarts", and so on,
/// but PET_RDZV_ID for "--run-id".
Given flag_or_torchrun(const std::string& value, const std::string& flag, const Pod& pod);

/// A sentence about the variables PET_* of `environment` (NAME=value) that tutti run does not read; empty: there are
/// none.
std::string unread_torchrun_variables(std::span<const char* const> environment);

}  // namespace tutti::launch
