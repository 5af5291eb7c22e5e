// Counters: numbers about what a rank has done in a group since the group was made.
//
// Threads: a value.
#pragma once

#include "record/statistics.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::record {

/// The counters of one rank in one group.
struct Counters {
    struct ByOperation {
        std::string operation;
        Statistics::Row numbers;
    };

    std::string group;
    int rank = 0, size = 1;
    int gone = 0;                           ///< ranks that are known to be dead, or have left
    const char* failure = nullptr;          ///< why the group has failed; null: it has not
    std::uint64_t open = 0;                 ///< operations that have not ended
    double oldest_s = 0;                    ///< for how long the oldest of them has been open
    std::vector<ByOperation> by_operation;  ///< empty unless Recorder::counts_operations()
    std::uint64_t issued = 0, completed = 0, failed = 0;
    std::uint64_t bytes = 0;
    double seconds = 0;            ///< from call to completion, of all operations but brief ones (record/ring.hpp)
    std::vector<double> waited_s;  ///< by peer: how long this rank waited for it, in waits over 10 ms
};

}  // namespace tutti::record
