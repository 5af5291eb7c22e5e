// The checks of the environment variables that affect every group, before anything is sent.
//
// Threads: as core/env.hpp.
#pragma once

namespace tutti::api {

/// Throws InvalidArgument for the first TUTTI_* variable whose value is invalid, with its name, its value and the
/// expected form. If all ranks have the same invalid value, all throw; none waits for a store whose server has thrown.
/// Does not check the files that TUTTI_TUNE names: only rank 0 reads them.
void check_environment();

}  // namespace tutti::api
