// Membership: a rank's part in a world: it joins, accepts connections from the others, watches its neighbours in a tree
// of all ranks, and receives all news (the verdicts of other ranks, verdict.hpp), until it leaves.
//
// Joining yields the Roster (joining.hpp). Then every rank connects to its parent in a binomial tree (at most log2 n
// connections per rank). These connections, the lifelines, stay open: if one closes without a goodbye its rank has
// died, and the rank that sees it floods the news over the tree. Lifelines (lifelines.hpp) makes the decisions; this
// class provides its sockets, clock and thread.
//
// Between two processes of one host a lifeline is a Unix socket: the kernel tells each end which process holds the
// other, so no proof is needed, and joining does not wait until the parent accepts. Across hosts, and if the Unix
// socket fails, it is a TCP connection, which counts only once both ends have proved the secret. The kernel's
// keep-alive probes detect a host that has vanished.
//
// Threads: one service thread per membership accepts connections, watches lifelines and calls the callbacks; further
// threads make connections for it; any thread may call the methods.
#pragma once

#include "core/interrupt.hpp"
#include "core/thread_safety.hpp"
#include "core/unique_fd.hpp"
#include "rendezvous/background_dials.hpp"
#include "rendezvous/dialer.hpp"
#include "rendezvous/endpoint.hpp"
#include "rendezvous/lifeline_socket.hpp"
#include "rendezvous/lifelines.hpp"
#include "rendezvous/membership_options.hpp"
#include "rendezvous/reception.hpp"
#include "rendezvous/roster.hpp"
#include "rendezvous/verdict.hpp"
#include "security/wire.hpp"

#include <tutti/store.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace tutti::rendezvous {

class Membership {
 public:
    /// Joins. Throws, on all ranks that came: DistStoreError (timeout), which lists the missing ranks; PeerLost, which
    /// names the rank that could not join, and why; InvalidArgument if ranks contradict each other.
    explicit Membership(MembershipOptions options);
    /// Leaves.
    ~Membership();
    Membership(const Membership&) = delete;
    Membership& operator=(const Membership&) = delete;

    const std::vector<Card>& cards() const noexcept { return *roster_.cards; }
    /// Rank 0's decision; empty without MembershipOptions::decide.
    const std::string& decision() const noexcept { return roster_.decision; }
    /// Unique to this world, equal on all ranks.
    std::uint64_t world_id() const noexcept { return roster_.world; }
    const security::Secret& secret() const noexcept { return roster_.secret; }
    /// A new authenticated connection on which this rank sends data to rank `rank`.
    security::Connection connect(int rank, const Deadline& deadline, const AbortFlag* abort) const;
    /// A connection to a rank of this host, for MembershipOptions::on_memory_request. Throws DistNetworkError if the
    /// rank cannot be reached.
    UniqueFd request_memory(int rank, const Deadline& deadline, const AbortFlag* abort) const;
    bool has_incoming() const noexcept { return has_incoming_.load(std::memory_order_acquire); }
    /// The connections on which others send to this rank that have come since the last call.
    std::vector<std::pair<int, security::Connection>> take_incoming();
    /// The number of an accept round of the service thread that begins after this call.
    std::uint64_t next_round() const noexcept;
    /// Whether this round is over: all connections made before it are among the incoming ones. Speeds it up.
    bool is_through(std::uint64_t round) const noexcept;
    /// Readable when there are incoming connections or a verdict.
    int wake_fd() const noexcept { return owner_wakeup_.get(); }
    /// Tells every rank; returns once the bytes are in the neighbours' sockets. False, and sends nothing, if the
    /// verdict or an accusation that prevails over it is known already.
    bool flood(const Verdict& verdict);
    /// All reachable ranks have this rank's flooded verdicts (on_verdict has returned there), and the unreachable ranks
    /// are known.
    bool settled();
    /// Says goodbye, also on connections not accepted yet, waits (at most a second) until ranks that depended on this
    /// one have another parent, and closes. For a program that exits without destroying its objects. One thread.
    void leave();
    /// Whether the calling thread is a membership's service thread, which cannot wait for its own end.
    static bool on_own_thread() noexcept;

 private:
    void start_service();
    void attach_to_parent();
    void serve();
    int poll_ms() TUTTI_REQUIRES(mutex_);
    void accept();
    void attach(int rank, Role role, bool confirmed, security::Connection connection);
    LifelineSocket* socket_of(LineId line);
    void look_at(LineId line);
    bool receive(LineId line, LifelineSocket& socket);
    void end(LineId line, LifelineSocket& socket, LineEnd::How how);
    void perform() TUTTI_REQUIRES(mutex_);
    void follow_up();
    void dial(const Dial& wanted);
    void take_dials();
    void inform(const Inform& news);
    void linger();
    void stop();
    void wake_owner() const;
    void wake_service() const;

    MembershipOptions options_;
    const std::chrono::milliseconds silence_limit_;
    const UniqueFd owner_wakeup_, service_wakeup_;
    Endpoint endpoint_;
    const Roster roster_;
    const Dialer dialer_;
    Reception reception_;         // service thread
    BackgroundDials dials_;       // service thread
    bool lacks_threads_ = false;  // service thread: already logged
    Mutex mutex_;
    std::condition_variable_any changed_;
    Lifelines lifelines_ TUTTI_GUARDED_BY(mutex_);
    std::map<LineId, std::unique_ptr<LifelineSocket>> sockets_ TUTTI_GUARDED_BY(mutex_);  // service thread: erasing
    std::vector<Effect> follow_ups_ TUTTI_GUARDED_BY(mutex_);  // for the service thread, without the lock
    std::vector<std::pair<int, security::Connection>> incoming_ TUTTI_GUARDED_BY(mutex_);
    std::atomic<bool> leaving_{false}, stopping_{false}, has_incoming_{false};
    std::atomic<std::uint64_t> rounds_{0};  // accept rounds completed
    std::thread thread_;
};

}  // namespace tutti::rendezvous
