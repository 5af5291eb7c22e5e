// launch(): starts the ranks of a job on this node, hosts the store (on node 0), passes their output on, ends them all
// when one fails, and starts them again if the options say so. `tutti run` calls it; launch_on_hosts() does the same on
// other hosts over ssh.
//
// Threads: call them from the main thread of a process that has no other threads yet, once at a time; they handle
// signals while they run, see signals.hpp. This process's soft limit of descriptors becomes the hard one; ranks get the
// former one. The store's server is a thread of its own, and so is the watch over other nodes.
#pragma once

#include "launch/hosts.hpp"
#include "launch/logs.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tutti::launch {

struct Options {
    std::vector<std::string> command;  ///< the program and its arguments
    std::size_t program_words = 1;     ///< of the command, before the program's own arguments
    int ranks = 1;                     ///< on this node
    bool prefix = true;                ///< "[rank 2] " before each line; without, every byte is passed on as it is
    bool colour = false;
    std::vector<std::string> environment;              ///< NAME=value, besides the job's own
    std::optional<std::chrono::milliseconds> timeout;  ///< of the whole job
    /// How long the others may take to notice a failure and report it themselves, before SIGTERM.
    std::chrono::milliseconds report_time{1500};
    std::chrono::milliseconds grace{3000};  ///< between SIGTERM and SIGKILL

    int nodes = 1;
    int node_rank = 0;
    std::string master_addr;  ///< of node 0; may be empty for one node: 127.0.0.1
    /// Of several nodes: where node 0's launcher serves the job's store; the ranks' MASTER_PORT is another one. Of one
    /// node: MASTER_PORT; 0: any that is free.
    std::uint16_t master_port = 0;
    std::chrono::milliseconds join_timeout{std::chrono::minutes(10)};  ///< until all nodes have come
    int max_restarts = 0;              ///< how often all ranks are started again after one failed; equal on all nodes
    std::string run_id;                ///< empty: a random one; node 0's counts
    bool local_rank_argument = false;  ///< --local-rank=N before the program's own arguments
    bool lifeline = false;             ///< standard input belongs to us, and its end ends the job

    /// log_dir/RUN_ID/attempt_A/RANK/stdout.log and stderr.log. Streams in `redirects` go there only, those in `tee`
    /// also where they would go without. Neither: all, as `tee`.
    std::string log_dir;
    Streams redirects, tee;
};

/// Every rank gets RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, GROUP_RANK, GROUP_WORLD_SIZE, ROLE_NAME, ROLE_RANK,
/// ROLE_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, TORCHELASTIC_RUN_ID, TORCHELASTIC_RESTART_COUNT,
/// TORCHELASTIC_MAX_RESTARTS, TORCHELASTIC_USE_AGENT_STORE=False (at MASTER_PORT, which is free, rank 0 serves a store
/// of PyTorch's), TUTTI_STORE_PORT (the launcher's store, for tutti's programs), TUTTI_LAUNCHER_MASTER_PORT and
/// TUTTI_JOB_SECRET. Standard input goes to rank 0; lines typed at a terminal, as long as the launcher is in its
/// foreground. Returns the exit status for the shell: 0 when all ranks succeeded, the first failing rank's, 128 +
/// signal when it or the launcher was ended by one, 124 after `timeout`, 126 or 127 when the program cannot be executed
/// or is not there. When it returns no process of the job is left on this node, grandchildren included. Throws
/// std::system_error when processes or descriptors cannot be had, InvalidArgument for bad options, DistNetworkError
/// when the store's address cannot be listened on, or the nodes of a job do not find each other within `join_timeout`.
int launch(const Options& options);

struct SshOptions {
    std::vector<std::string> arguments;  ///< for ssh, before its others
    std::vector<std::string> forwarded;  ///< of `tutti run`, for the launcher on each host
};
/// Starts `tutti run` on each host over ssh, this program's file in this program's folder, as one job: host k is node k
/// with a rank for each slot. Of `options`: command, environment, prefix, colour, timeout, grace, master_addr (empty:
/// the first host) and master_port (0: 29500) count; `forwarded` carries the rest. Variables TUTTI_*, PYTHON* and
/// LD_LIBRARY_PATH go along. The job's secret travels through ssh's standard input; when that closes, because this
/// process has ended in any way, the launcher there ends its ranks. Returns and throws as launch().
int launch_on_hosts(const Options& options, const std::vector<Host>& hosts, const SshOptions& ssh);

}  // namespace tutti::launch
