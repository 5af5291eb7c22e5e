// PendingConnections: a server's connections that have not proved the secret yet. Each is dropped when its time for the
// handshake is over, and their number is bounded: the oldest, which has had the longest time, is dropped for a new one.
//
// Threads: the loop's.
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
    /// Closes a connection; the function calls remove() for it.
    using Drop = std::function<void(ServerConnection&)>;

    /// Enough for a large job that starts at once, and never more than a quarter of the descriptors that this process
    /// may have.
    static std::size_t most_of_process();
    PendingConnections(std::size_t most, std::chrono::milliseconds time_to_prove);

    /// Throws DistNetworkError. Before it is destroyed, call close() and run the loop.
    void open(uv_loop_t& loop, Drop drop);
    void close();

    /// The connection has just been accepted. An older one may be dropped at once.
    void add(ServerConnection& connection);
    /// The connection has proved the secret, or is closed; nothing happens if it is not among them.
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
    bool is_sweeping_ = false;     // a sweep is to come
    std::list<Stranger> waiting_;  // in the order of their arrival
};

}  // namespace tutti::store
