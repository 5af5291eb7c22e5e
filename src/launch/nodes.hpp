// Nodes: the messages between the launchers of a job on several nodes, over the job's store: how many ranks each has,
// that all of a node's ranks have ended well, or which failed; before a restart, that all processes of a node have
// ended. The first failure that reaches the store is the job's. A launcher that is silent for 15 s is a failure too, of
// its node, and so is the loss of the store, of node 0.
//
// Keys, below "launch/": node/K, run_id, ranks_port, beat/K, and for each attempt A: A/end, A/done, A/stopped,
// A/all_stopped; left.
//
// Threads: the methods are for one thread and may block for as long as the store takes to answer. A second thread
// watches the store.
#pragma once

#include "core/unique_fd.hpp"

#include <tutti/error.hpp>
#include <tutti/store.hpp>

#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace tutti::launch {

/// How an attempt ended on all nodes together.
struct JobOutcome {
    bool good = true;
    bool again = false;  ///< a failure after which the ranks may be started again
    int status = 0;      ///< for the shell
    int node = 0;        ///< that said so
    std::string text{};  ///< "rank 3 (pid 4711): exited with status 3"
};

struct NodesOptions {
    std::string master_addr;
    std::uint16_t master_port = 0;
    std::optional<std::string> secret{};  ///< none: as a TCPStore finds it
    int nodes = 1;
    int node_rank = 0;
    int ranks = 1;  ///< of this node
    int max_restarts = 0;
    std::string id{};                      ///< of this launcher, no other's
    std::string run_id{};                  ///< node 0's counts
    std::uint16_t ranks_port = 0;          ///< MASTER_PORT of the ranks; node 0's counts
    std::chrono::milliseconds patience{};  ///< until all have come
};

class Nodes {
 public:
    /// Begins to look for the others.
    explicit Nodes(NodesOptions options);
    /// Leaves; node 0, whose launcher serves the store, gives the others a moment to do so first.
    ~Nodes();
    Nodes(const Nodes&) = delete;
    Nodes& operator=(const Nodes&) = delete;

    int node_rank() const noexcept { return options_.node_rank; }
    /// Readable when one of the answers below has changed; clear() before asking.
    int fd() const noexcept { return wake_.get(); }
    void clear();

    struct Layout {
        int first_rank = 0;  ///< of this node
        int world_size = 0;
        std::string run_id;
        std::string secret;  ///< for the ranks: the one that opened the store
        int ranks_port = 0;
    };
    /// When all have come.
    std::optional<Layout> layout();
    /// When the attempt has ended, on all nodes.
    std::optional<JobOutcome> outcome(int attempt);
    /// Whether nothing of a failed attempt is left on any node.
    bool all_stopped(int attempt);

    /// All of this node's ranks have ended well.
    void done(int attempt);
    void failed(int attempt, JobOutcome outcome);
    void stopped(int attempt);

 private:
    void watch();
    Store connect();
    bool is_absence(const DistError& error) const;
    void tell_node_0(const std::string& why) const noexcept;
    void meet(Store& store);
    bool watch_attempt(Store& store, int attempt);
    bool wait_for(Store& store, const std::string& key, int attempt);
    void beat(Store& store, int attempt);
    void conclude(int attempt, const JobOutcome& outcome);
    void lost_store(const DistError& error);
    void lost(int node, const std::string& why);
    template <class Call>
    void post(Call call);

    const NodesOptions options_;
    UniqueFd wake_;
    std::mutex mutex_;  // guards the members until the next empty line
    Store store_;       // of the caller's thread
    std::optional<Layout> layout_;
    std::vector<JobOutcome> outcomes_;  // by attempt
    int stopped_ = -1;                  // the last attempt of which nothing is left
    std::optional<JobOutcome> lost_;    // why no more news will come

    std::string secret_;              // the watching thread's, as the members below
    std::vector<std::string> heard_;  // the others' last signs of life, and when they came
    std::vector<std::chrono::steady_clock::time_point> heard_at_;
    std::atomic<std::chrono::steady_clock::time_point> looked_at_{};
    std::atomic<bool> met_{false};
    std::atomic<bool> leaving_{false};
    std::thread thread_;
};

}  // namespace tutti::launch
