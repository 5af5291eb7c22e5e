// BusyPoll: makes a server's event loop poll briefly after each request instead of sleeping, as long as the next
// request mostly arrives in that time and the active clients leave a core for the loop.
//
// Threads: the loop's thread.
#pragma once

#include "store/spin.hpp"

#include <uv.h>

#include <cstdint>

namespace tutti::store {

class BusyPoll {
 public:
    /// Attaches this object to the loop. Before destroying it, call close() and run the loop.
    void open(uv_loop_t& loop);
    void close();
    /// A client has sent a request. `window`: a variable kept for this client, which Crowd::heard() updates.
    void heard(std::uint64_t& window);

 private:
    void stop();
    void look();

    uv_idle_t idle_{};
    const int cores_ = usable_cores();
    Crowd crowd_;
    Spin policy_;
    bool looking_ = false;
    std::uint64_t until_ns_ = 0;
};

}  // namespace tutti::store
