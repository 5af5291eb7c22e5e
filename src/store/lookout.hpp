// Lookout: keeps a server's loop from its sleep for a moment after each request, as long as the next one mostly comes
// in time and the active clients leave a core for it.
//
// Threads: the loop's.
#pragma once

#include "store/spin.hpp"

#include <uv.h>

#include <cstdint>

namespace tutti::store {

class Lookout {
 public:
    /// Of that loop. It has to be closed, and the loop to run, before it is destroyed.
    void open(uv_loop_t& loop);
    void close();
    /// A client has asked for something; `window` is its own mark (Crowd).
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
