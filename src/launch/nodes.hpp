// Nodes: the messages between the launchers of a job on several nodes, over the job's store: each node's number of
// ranks; that all ranks of a node have succeeded, or which one failed; and before a restart, that all processes of a
// node have ended. The first failure that reaches the store becomes the job's. If a launcher's connection ends, or the
// launcher is silent for 15 s, its node has failed. The ranks may be restarted after that, since another launcher can
// take its place (places.hpp). The loss of the store, and thus of node 0, ends the job, unless the store has a standby
// (store_hosts.hpp): then that one's launcher does from there on what node 0's did.
//
// Where ranks are replaced, the loss of another node ends the job only if too few remain and none comes within the time
// to join. Each launcher writes what its ranks do (NodeState); the one that serves the store ends the attempt when none
// works any more.
//
// Keys below "launch/": those of places.hpp; A/done (how many nodes) and A/state/ID for each attempt A; left (one ID
// per line).
//
// Threads: the methods are for one thread, and may block until the store answers. A second thread watches the store.
#pragma once

#include "core/interrupt.hpp"
#include "core/socket.hpp"
#include "core/unique_fd.hpp"
#include "launch/held_port.hpp"
#include "launch/places.hpp"
#include "launch/store_hosts.hpp"

#include <tutti/error.hpp>
#include <tutti/store.hpp>

#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace tutti::launch {

/// How an attempt ended on all nodes together.
struct JobOutcome {
    bool good = true;
    bool again = false;  ///< a failure after which the ranks may be started again
    int status = 0;      ///< for the shell
    int node = 0;        ///< the node that reported it
    std::string text{};  ///< "rank 3 (pid 4711): exited with status 3"
    bool lost = false;   ///< the launcher of `node` has vanished
};

/// Of a node whose ranks are replaced, in an attempt.
struct NodeState {
    enum class Kind {
        works,  ///< a rank runs
        idle,   ///< its processes have not joined
        well,   ///< its ranks have ended well
        dead,   ///< its ranks have died, and nobody has taken their places yet
    } kind = Kind::idle;
    JobOutcome failure{};  ///< dead: the attempt's, if no node works any more
    bool operator==(const NodeState& other) const noexcept { return kind == other.kind; }
};

struct NodesOptions {
    std::string master_addr;
    std::uint16_t master_port = 0;
    std::optional<std::string> secret{};  ///< none: found as a TCPStore finds it
    int nodes = 1;
    int node_rank = 0;  ///< -1: any that is free
    int ranks = 1;      ///< of this node
    int max_restarts = 0;
    int least = 0;                          ///< as NodeCard
    bool standby = false;                   ///< as NodeCard
    store::TcpServer* server = nullptr;     ///< node 0's, where the store has a standby; it must outlive this object
    std::chrono::milliseconds last_call{};  ///< as Places
    std::string id{};                       ///< unique to this launcher
    std::string run_id{};                   ///< node 0's applies to all nodes
    std::uint16_t ranks_port = 0;           ///< MASTER_PORT of the ranks; node 0's applies to all nodes
    std::chrono::milliseconds patience{};   ///< until all nodes have joined
};

class Nodes {
 public:
    /// Starts to look for the other launchers.
    explicit Nodes(NodesOptions options);
    /// Leaves; the launcher that serves the store gives the others a moment to do so first, if the job has ended.
    ~Nodes();
    Nodes(const Nodes&) = delete;
    Nodes& operator=(const Nodes&) = delete;

    int node_rank() const noexcept { return node_; }
    /// Whether the job goes on when this launcher ends: it does not serve the store, or that has a standby.
    bool may_leave() const noexcept { return may_leave_; }
    /// Where the store is at the moment.
    StoreHosts::Servers servers();
    /// Where the job runs that this launcher belongs to, if that is not where it has looked: it has been started again
    /// as node 0, or has come to such a one. It is to join there.
    std::optional<net::Address> elsewhere();
    /// Readable when layout() or outcome() has changed; call clear() before them.
    int fd() const noexcept { return wake_.get(); }
    void clear();

    struct Layout {
        int attempt = 0;     ///< the attempt that it describes
        int first_rank = 0;  ///< of this node
        int world_size = 0;
        bool newcomers = false;              ///< the attempt runs already: this node's processes join it
        int group_rank = 0, group_size = 1;  ///< this node among those of the attempt
        std::string run_id;
        std::string secret;  ///< for the ranks; it has opened the store
        int ranks_port = 0;
    };
    /// The layout of this attempt or a later one; nothing until all nodes are ready for it.
    std::optional<Layout> layout(int attempt);
    /// The outcome on all nodes; nothing until the attempt has ended.
    std::optional<JobOutcome> outcome(int attempt);

    /// Tells the others that all of this node's ranks have succeeded.
    void done(int attempt);
    void failed(int attempt, JobOutcome outcome);
    /// Tells node 0 what this node's ranks do, where ranks are replaced.
    void tell(int attempt, const NodeState& state);
    /// Tells the others that nothing of a failed attempt is left on this node.
    void stopped(int attempt);

 private:
    using Moment = std::chrono::steady_clock::time_point;
    void watch();
    void take_part(Moment end);
    Store connect(Moment end);
    std::string secret_of_node_0(std::chrono::milliseconds limit) const;
    bool is_absence(const DistError& error) const;
    void tell_node_0(const std::string& why) const noexcept;
    std::string others() const;
    std::string in_vain() const;
    int come(Store& store, Moment end);
    bool form(Store& store, int attempt);
    bool join(Store& store, int attempt);
    bool watch_attempt(Store& store, int attempt);
    void leave(Store& store);
    bool wait_for(Store& store, const std::string& key, Moment end, std::optional<int> attempt = {});
    void beat(Store& store, std::optional<int> attempt);
    void watch_changes(Store& store, int attempt);
    void look_at_servers(Store& store);
    void take_over(Store& store);
    bool is_elsewhere(Store& store);
    void call_node_0();
    void conclude(int attempt, const JobOutcome& outcome);
    void lost_store(const DistError& error);
    void lost(int node, const std::string& why);
    template <class Call>
    void post(Call call);

    const NodesOptions options_;
    std::atomic<int> node_;
    UniqueFd wake_;
    std::mutex mutex_;  // guards the members until the next empty line
    Store store_;       // for the caller's thread
    std::optional<Layout> layout_;
    std::map<int, JobOutcome> outcomes_;          // by attempt
    std::optional<JobOutcome> lost_;              // why the watching thread has stopped
    std::optional<StoreHosts::Servers> servers_;  // where the store has a standby
    std::optional<net::Address> elsewhere_;

    std::string id_;  // written only before the first layout
    int connections_ = 0;
    std::string secret_;                  // this and the members below: for the watching thread
    std::optional<Places> places_;        // only of the launcher that serves the store
    std::optional<StoreHosts> hosts_;     // where the store has a standby
    std::optional<HeldPort> ranks_port_;  // after a takeover
    NodesRoster roster_;                  // of the current attempt
    std::string missing_;                 // the launchers that are waited for
    Moment enough_at_{};                  // the serving launcher's: when enough nodes were last there
    Moment next_call_{};                  // after a takeover: of node 0
    std::atomic<Moment> looked_at_{};
    std::atomic<bool> met_{false};
    std::atomic<bool> may_leave_;
    AbortFlag leaving_;
    std::thread thread_;
};

}  // namespace tutti::launch
