// PendingConnections: a server's connections that have not proved the secret yet. Each is dropped when its time for the
// handshake is over. Their number is bounded: for a new one the oldest, which has had the longest time, is dropped.
//
// Threads: the loop's thread.
#pragma once

#include <uv.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>

namespace tutti::store {

struct ServerConnection;

class PendingConnections {
 public:
    /// Closes a connection; this function must call remove() for it.
    using Drop = std::function<void(ServerConnection&)>;

    /// The limit for this process: enough for a large job that starts at once, at most a quarter of the descriptors
    /// that the process may have.
    static std::size_t most_of_process();
    PendingConnections(std::size_t most, std::chrono::milliseconds time_to_prove);

    /// Throws DistNetworkError. Before destroying this object, call close() and run the loop.
    void open(uv_loop_t& loop, Drop drop);
    void close();

    /// The connection has just been accepted. An older one may be dropped during the call.
    void add(ServerConnection& connection);
    /// The connection has proved the secret, or is closed; no effect if it is not among the pending ones.
    void remove(const ServerConnection& connection);
    std::size_t size() const noexcept { return waiting_.size(); }

 private:
    struct Stranger {
        ServerConnection* connection;
        std::uint64_t due_ms;
    };
    void schedule_sweep();
    void drop_silent();

    const std::size_t most_;
    const std::uint64_t time_to_prove_ms_;
    Drop drop_;
    uv_timer_t sweep_{};
    bool is_sweeping_ = false;     // a sweep is scheduled
    std::list<Stranger> waiting_;  // in order of arrival
};

}  // namespace tutti::store
