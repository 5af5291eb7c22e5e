// Lanes: the ranks' connections, a full mesh over each network interface of GLOO_SOCKET_IFNAME.
//
// Threads: the functions any; connect_lanes() blocks.
#pragma once

#include "gloo/library.hpp"

#include <tutti/backend.hpp>

#include <memory>
#include <vector>

namespace tutti::backends::gloo {

/// One context for each interface; the same number on all ranks. Meets the others in the options' store.
/// Errors: DistBackendError if an interface does not exist or cannot be used, if the ranks list different numbers of
/// interfaces (on every rank, with the numbers), or if a rank cannot be reached; DistStoreError if a rank does not come
/// within the options' timeout.
std::vector<std::shared_ptr<::gloo::Context>> connect_lanes(const DistributedBackendOptions& options);

/// Breaks off all connections of a lane. Calls that wait on them end with an exception, but see GlooStream::stop().
/// Takes a millisecond.
void close_connections(const std::shared_ptr<::gloo::Context>& lane) noexcept;

/// Blocks SIGPIPE while it lives: Gloo writes to sockets that a peer may have closed.
class QuietPipes {
 public:
    QuietPipes();
    ~QuietPipes();
    QuietPipes(const QuietPipes&) = delete;
    QuietPipes& operator=(const QuietPipes&) = delete;

 private:
    bool was_blocked_ = false, was_pending_ = false;
};

}  // namespace tutti::backends::gloo
