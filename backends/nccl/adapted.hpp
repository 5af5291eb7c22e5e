// Adapted: communicators of libraries whose calls wait for other ranks, as NCCL's are that do not block: a thread makes
// them, and their state says when they are there.
//
// Threads: any.
#pragma once

#include "nccl/interface.hpp"

#include <atomic>
#include <cstddef>
#include <functional>

namespace tutti::nccl {

class Adapted {
 public:
    /// 0, or the library's code. Nobody wants it any more once it is `given_up`.
    using Make = std::function<int(void** communicator, const std::atomic<bool>& given_up)>;
    using End = std::function<int(void* communicator)>;

    /// Returns in_progress.
    static Result start(Comm* comm, Make make, End end);
    /// The library's own; null: it is not there yet, or not any more.
    static void* own(Comm comm);
    /// success, in_progress, or foreign() of what `make` returned.
    static Result state(Comm comm);
    /// Ends it, and frees `comm`. One that is still being made is ended by its thread, when it is there.
    static Result destroy(Comm comm);
    /// Nothing: destroy() does it all.
    static Result finalize(Comm comm);
    /// What a result that is no library's means; null: the library says it.
    static const char* text(Result result);
};

/// Bytes of an element.
std::size_t size_of(Type type);

}  // namespace tutti::nccl
