// Membership: a rank's part in a world: it joins, can be reached by the others, watches its neighbours and hears of all
// that happens, until it leaves.
//
// Joining gives it the Roster (joining.hpp). Then every rank connects to its parent in a binomial tree (at most log2 n
// connections a rank). These lifelines stay open: one that closes without a goodbye is a death, and the rank that sees
// it floods the news over the tree. Lifelines decides (lifelines.hpp); this class has its sockets, its clock and its
// thread.
//
// Between two processes of one host a lifeline is a Unix socket. The kernel tells each end which process has the other
// one, so nothing has to be proved, and joining does not wait until the parent has looked. Across hosts, and where
// that fails, it is a TCP connection that both ends have proved before it counts. The kernel's probes detect a host
// that is gone without a word.
//
// Threads: one service thread per membership accepts connections, watches lifelines and calls the callbacks; others
// make connections for it; any thread may call the methods.
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
    /// Joins. Throws, on all ranks that came: a DistStoreError (timeout) that lists the missing; PeerLost that names
    /// the rank that could not join, and why; InvalidArgument for ranks that contradict each other.
    explicit Membership(MembershipOptions options);
    /// Leaves.
    ~Membership();
    Membership(const Membership&) = delete;
    Membership& operator=(const Membership&) = delete;

    const std::vector<Card>& cards() const noexcept { return roster_.cards; }
    /// Rank 0's decision; empty without MembershipOptions::decide.
    const std::string& decision() const noexcept { return roster_.decision; }
    /// Unique to this world, equal on all ranks.
    std::uint64_t world_id() const noexcept { return roster_.world; }
    const security::Secret& secret() const noexcept { return roster_.secret; }
    /// A fresh, authenticated connection on which we send to a rank.
    security::Connection connect(int rank, const Deadline& deadline, const AbortFlag* abort) const;
    /// A connection to a rank of this host, for MembershipOptions::on_memory_request. DistNetworkError if there is no
    /// way to it.
    UniqueFd request_memory(int rank, const Deadline& deadline, const AbortFlag* abort) const;
    bool has_incoming() const noexcept { return has_incoming_.load(std::memory_order_acquire); }
    /// Connections on which others send to us, since the last call.
    std::vector<std::pair<int, security::Connection>> take_incoming();
    /// The number of a round of accepting that begins after this call.
    std::uint64_t next_round() const noexcept;
    /// Whether that round is over: every connection made to this rank before is among the incoming ones. Hurries it.
    bool is_through(std::uint64_t round) const noexcept;
    /// Readable when there are incoming connections or a verdict.
    int wake_fd() const noexcept { return owner_wakeup_.get(); }
    /// Tells every rank. Returns once the neighbours' sockets have it. False, and tells none, if it is known already,
    /// or an accusation that counts more is.
    bool flood(const Verdict& verdict);
    /// All ranks that can be reached have this one's flooded verdicts (on_verdict has returned there), and the
    /// unreachable ranks are known.
    bool settled();
    /// Says goodbye, also on connections that have come unseen, waits (at most a second) until ranks that counted on
    /// this one have another parent, and closes. For a program that ends without destroying what it has; by one thread.
    void leave();
    /// Whether the calling thread is the service thread of a membership: it cannot wait for its own end.
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
    bool lacks_threads_ = false;  // service thread: the log says so
    Mutex mutex_;
    std::condition_variable_any changed_;
    Lifelines lifelines_ TUTTI_GUARDED_BY(mutex_);
    std::map<LineId, std::unique_ptr<LifelineSocket>> sockets_ TUTTI_GUARDED_BY(mutex_);  // service thread: erasing
    std::vector<Effect> follow_ups_ TUTTI_GUARDED_BY(mutex_);  // of the service thread, without the lock
    std::vector<std::pair<int, security::Connection>> incoming_ TUTTI_GUARDED_BY(mutex_);
    std::atomic<bool> leaving_{false}, stopping_{false}, has_incoming_{false};
    std::atomic<std::uint64_t> rounds_{0};  // looks at newcomers that are over
    std::thread thread_;
};

}  // namespace tutti::rendezvous
