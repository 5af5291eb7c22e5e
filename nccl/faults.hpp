// TUTTI_NCCL_FAULTS: what this library does wrong on request, for tests of programs that use NCCL.
//
//   FAULTS = FAULT [ ";" FAULT ]…          FAULT = WORD "=" VALUE [ " " WORD "=" VALUE ]…
//   error=CODE [after=N] [rank=R]   the operation after N others (0) of a communicator does not end, and the
//   communicator
//                                   gets this asynchronous error. A call that would wait for the operation returns it.
//                                   CODE: a number from 1 to 6, or unhandled_cuda_error, system_error, internal_error,
//                                   invalid_argument, invalid_usage, remote_error.
//   hang=operation [after=N] [rank=R]   the operation after N others does not end until the communicator is aborted.
//   hang=init [rank=R]              the same of making a communicator.
//   version=X.Y.Z                   what ncclGetVersion says, also as a number (21703).
//   missing=NAME                    dlsym does not find this function (missing.hpp).
// R: of the communicator; without it, all ranks. A text that is none of these fails every way to make a communicator,
// and ncclGetVersion, with a sentence that says what is wrong with it.
//
// Read once. Threads: any.
#pragma once

#include "interface.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::nccl_library {

struct Fault {
    enum class Kind { error, hang_operation, hang_init };
    Kind kind = Kind::error;
    ncclResult_t code = ncclRemoteError;  ///< of an error
    std::uint64_t after = 0;              ///< operations that go well
    int rank = -1;                        ///< -1: all
};

struct Faults {
    std::vector<Fault> of_communicators;
    std::optional<int> version;
    std::vector<std::string> missing;

    /// The first that concerns the operation before which `begun` others began on this rank.
    const Fault* of_operation(std::uint64_t begun, int rank) const;
    bool hangs_init(int rank) const;
};

/// Throws Failure (invalid argument) that names the word.
Faults parse_faults(std::string_view text);

/// Those of the environment. Throws the same, each time.
const Faults& faults();

}  // namespace tutti::nccl_library
