// The settings of the environment for every group, checked before anything is sent.
//
// Threads: as core/env.hpp.
#pragma once

namespace tutti::api {

/// Throws InvalidArgument for the first TUTTI_* variable whose value no group could take, with its name, its value and
/// the expected form. Where all ranks have the same wrong value, all refuse it, before any waits for a store that a
/// rank which has refused will never serve. It leaves the files that only rank 0 reads (those that TUTTI_TUNE names) to
/// that rank.
void check_environment();

}  // namespace tutti::api
