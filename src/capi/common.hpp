// Common: the options that all operations have (tutti_options), checked and converted.
//
// Threads: a value.
#pragma once

#include <tutti/tutti.h>
#include <tutti/process_group.hpp>
#include <tutti/reduce_op.hpp>

#include <chrono>
#include <optional>

namespace tutti::capi {

/// tutti_options, converted.
struct Common {
    Common(const char* function, const tutti_options* options);
    ReduceOp op(int kind) const;
    /// C++ options take a root or peer as a rank of the world (global) or of the group (in_group).
    /// tutti_options.group_ranks says which of the two `rank` is; the other result is empty.
    std::optional<int> global(int rank) const { return group_ranks ? std::nullopt : std::optional(rank); }
    std::optional<int> in_group(int rank) const { return group_ranks ? std::optional(rank) : std::nullopt; }

    const char* function;
    ProcessGroup group;
    std::chrono::milliseconds timeout{0};
    bool group_ranks = false;
    int tag = 0;
    double factor = 1;
};

}  // namespace tutti::capi
