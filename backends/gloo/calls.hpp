// LaneCalls: Gloo's own collectives, which block, on a thread for each lane.
//
// One call has all lanes where its work can be cut in pieces; others take the lanes in turn.
//
// Threads: begin() one at a time.
#pragma once

#include "gloo/outcome.hpp"
#include "gloo/stream.hpp"

#include <tutti/backend.hpp>
#include <tutti/transport.hpp>

#include <memory>
#include <thread>
#include <vector>

namespace tutti::backends::gloo {

class LaneCalls {
 public:
    /// Throws std::system_error if the system gives no thread.
    explicit LaneCalls(const Lanes& lanes);
    /// Ends the threads. Where one stays in Gloo although its connections have been closed it goes on by itself, and
    /// touches nothing but what it holds.
    ~LaneCalls();
    LaneCalls(const LaneCalls&) = delete;
    LaneCalls& operator=(const LaneCalls&) = delete;

    /// transport::Streams::begin(). The request stays as long as the call.
    std::unique_ptr<transport::LibraryCall> begin(const BackendRequest& request);

 private:
    class Lane;
    struct Piece;

    std::vector<std::shared_ptr<Lane>> lanes_;
    std::size_t next_ = 0;
};

}  // namespace tutti::backends::gloo
