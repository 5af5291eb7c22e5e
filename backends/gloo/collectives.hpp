// The collectives that Gloo has.
//
// Threads: each context is one thread's at a time. Blocks.
#pragma once

#include "gloo/library.hpp"

#include <tutti/backend.hpp>

#include <memory>

namespace tutti::backends::gloo {

/// transport::Streams::offers(). Gloo lacks reduce_scatter; avg, whose sum tutti divides; types that are rounded once
/// at the end, which Gloo would round at every step; the order of ranks. The answer is the same on all ranks.
bool has_collective(const BackendRequest& request);
/// Runs a request that Gloo has to its end. The calling thread has blocked SIGPIPE.
/// Throws DistBackendError if a connection breaks.
void run_collective(const BackendRequest& request, const std::shared_ptr<::gloo::Context>& context);

}  // namespace tutti::backends::gloo
