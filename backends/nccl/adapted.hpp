// Adapted: gives libraries whose calls wait for other ranks communicators like NCCL's non-blocking ones: a thread makes
// them, and their state says when they are ready.
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
    /// Returns 0, or the library's code. Once `given_up` is set, nobody wants the communicator any more.
    using Make = std::function<int(void** communicator, const std::atomic<bool>& given_up)>;
    using End = std::function<int(void* communicator)>;

    /// Returns in_progress.
    static Result start(Comm* comm, Make make, End end);
    /// The library's own communicator; null: not ready yet, or already ended.
    static void* own(Comm comm);
    /// success, in_progress, or foreign() of the result of `make`.
    static Result state(Comm comm);
    /// Ends it, and frees `comm`. If its thread is still making it, the thread ends it when it is ready.
    static Result destroy(Comm comm);
    /// Does nothing: destroy() does it all.
    static Result finalize(Comm comm);
    /// The meaning of a result that is not the library's; null: the library has the text.
    static const char* text(Result result);
};

/// Bytes of an element.
std::size_t size_of(Type type);

}  // namespace tutti::nccl
