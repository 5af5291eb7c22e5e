// What the environment asks of every group, checked before anything is sent.
//
// Threads: as core/env.hpp.
#pragma once

namespace tutti::api {

/// Throws InvalidArgument for the first TUTTI_* variable whose value no group could take, with its name, its value and
/// what is expected. Where all ranks have the same wrong value, all refuse it, before any waits for a store that a rank
/// which has refused will never serve. What only rank 0 reads (the files that TUTTI_TUNE names) is left to it.
void check_environment();

}  // namespace tutti::api
