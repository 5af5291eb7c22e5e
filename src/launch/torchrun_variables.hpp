// TorchrunVariables: the variables PET_* by which platforms (Kubeflow's PyTorchJob and Trainer) give torchrun its
// arguments. `tutti run` takes those that mean something here, where no flag says otherwise, and names the rest: a
// setting that is ignored in silence is a job that does not do what it was told.
//
// Threads: any; functions of their arguments.
#pragma once

#include "launch/placement.hpp"

#include <span>
#include <string>

namespace tutti::launch {

/// The flag's value where it has one, else that of a variable, whose name is PET_ and the flag's: of "--max-restarts",
/// PET_MAX_RESTARTS; but that of "--run-id" is PET_RDZV_ID.
Given flag_or_torchrun(const std::string& value, const std::string& flag, const Pod& pod);

/// A sentence about the variables PET_* of `environment` (NAME=value) that tutti run does not read; empty: there are
/// none.
std::string unread_torchrun_variables(std::span<const char* const> environment);

}  // namespace tutti::launch
