// ProcessGroup: ranks that communicate.
//
// A handle: copies name the same group. A group is made by all of its ranks, from a store; several worlds can live in
// one process. Calls on one group from several threads are safe one by one, but collectives must be issued in the same
// order on all ranks, so use one thread per group or order them yourself.
#pragma once

#include <tutti/export.hpp>
#include <tutti/store.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tutti {

inline constexpr std::chrono::milliseconds default_timeout = std::chrono::minutes(30);

/// What stays fixed when results are compared bit by bit. all_reduce gives the same bits on all ranks at every level.
enum class Determinism {
    fast,              ///< any order of reduction; the algorithm may depend on what was measured (TUTTI_TUNE)
    run_to_run,        ///< the same layout and sizes give the same bits in every run: fixed limits choose algorithms
    layout_invariant,  ///< values are combined in the order of global ranks, however ranks are placed
};

/// What carries the data.
enum class TransportKind {
    automatic,  ///< shared memory between ranks of one host, TCP between hosts; memory between threads
    shm,        ///< shared memory only: all ranks must be on one host
    tcp,        ///< TCP only, also between ranks of one host
};

struct ProcessGroupOptions {
    Store store{};  ///< reachable from all ranks
    int rank = -1;  ///< 0 … world_size-1, unique
    int world_size = -1;
    std::chrono::milliseconds timeout = default_timeout;  ///< of every operation that gives none
    std::string name = "world";                           ///< in messages; groups from one store need different names
    TransportKind transport = TransportKind::automatic;   ///< automatic: TUTTI_TRANSPORT decides if set
    Determinism determinism = Determinism::fast;          ///< fast: TUTTI_DETERMINISM decides if set
    std::string listen_host{};  ///< address to listen on; empty: TUTTI_HOST, else the one that reaches the store
};

namespace detail {
class Group;
}

class TUTTI_API ProcessGroup {
 public:
    /// No group: as an option, the default group.
    ProcessGroup() = default;
    /// Joins; returns when all ranks have. Throws Timeout that lists the ranks that did not come.
    explicit ProcessGroup(const ProcessGroupOptions& options);
    explicit ProcessGroup(std::shared_ptr<detail::Group> group) : group_(std::move(group)) {}

    explicit operator bool() const noexcept { return group_ != nullptr; }
    int rank() const;
    int size() const;
    const std::string& name() const;
    std::chrono::milliseconds timeout() const;
    void set_timeout(std::chrono::milliseconds timeout);
    Determinism determinism() const;
    /// Host index of each rank: ranks with equal numbers share memory.
    std::vector<int> hosts() const;
    /// Ends every operation in flight, here and (soon) on the other ranks, with Aborted; the group is unusable then.
    void abort(const std::string& reason);
    /// Leaves the group: waits for this rank's operations, then closes. Others that still wait for this rank get
    /// PeerLost. The last handle's destructor does the same without waiting.
    /// Throws CollectiveMismatch, after it has left, when ranks of this host disagreed about a collective in which this
    /// rank waited for nobody.
    void destroy();

    friend bool operator==(const ProcessGroup&, const ProcessGroup&) = default;
    const std::shared_ptr<detail::Group>& impl() const noexcept { return group_; }

 private:
    std::shared_ptr<detail::Group> group_;
};

}  // namespace tutti
