// launch(): starts the ranks of a job on this node, hosts the store (on node 0), passes on their output, ends them all
// when one fails, and restarts them if the options say so. `tutti run` calls it; launch_on_hosts() does the same on
// other hosts over ssh.
//
// Threads: call these from the main thread of a process without other threads, one call at a time; they handle signals
// while they run, see signals.hpp. They raise this process's soft limit of descriptors to the hard limit, but start
// ranks with the original soft limit. The store's server and the watch over other nodes have threads of their own.
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
    std::size_t program_words = 1;     ///< words of `command` before the program's own arguments
    int ranks = 1;                     ///< on this node
    bool prefix = true;                ///< "[rank 2] " before each line; false: every byte is passed on unchanged
    bool colour = false;
    std::vector<std::string> environment;              ///< NAME=value, besides the job's own
    std::optional<std::chrono::milliseconds> timeout;  ///< of the whole job
    /// How long other ranks may take to notice a failure and report it themselves, before SIGTERM.
    std::chrono::milliseconds report_time{1500};
    std::chrono::milliseconds grace{3000};  ///< between SIGTERM and SIGKILL

    int nodes = 1;
    int least_nodes = 0;  ///< with `replace`: so many are enough to begin and to go on; 0: all
    /// How long the others are waited for when so many are there.
    std::chrono::milliseconds last_call{std::chrono::seconds(30)};
    int node_rank = 0;
    /// This node's processes join a job that runs, as any node that is free; node_rank does not count. With `replace`.
    bool join = false;
    std::string master_addr;  ///< of node 0; may be empty for one node: 127.0.0.1
    /// With several nodes: the port at which node 0's launcher serves the job's store; the ranks' MASTER_PORT is a
    /// different one. With one node: MASTER_PORT; 0: any free port.
    std::uint16_t master_port = 0;
    std::chrono::milliseconds join_timeout{std::chrono::minutes(10)};  ///< until all nodes have joined
    int max_restarts = 0;  ///< how often all ranks are started again after one failed; equal on all nodes
    /// A rank that fails is replaced by another process, which joins the others (newcomers.hpp), as often as
    /// `max_restarts` says (restarts.hpp); all are started again only where no rank is left to take it in.
    bool replace = false;
    int spares = 0;        ///< processes on this node that wait to take a rank's place; with `replace`
    bool standby = false;  ///< a second node keeps the store too, so that node 0 may be lost; with `replace`
    std::string run_id;    ///< empty: a random one; node 0's applies to all nodes
    bool local_rank_argument = false;  ///< pass --local-rank=N before the program's own arguments
    bool lifeline = false;             ///< standard input is a Lifeline (signals.hpp): its end ends the job

    /// Files: log_dir/RUN_ID/attempt_A/RANK/stdout.log and stderr.log. Streams in `redirects` go only there; streams in
    /// `tee` also to their usual destination. If both are empty, all streams count as `tee`.
    std::string log_dir;
    Streams redirects, tee;
};

/// Every rank gets RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, GROUP_RANK, GROUP_WORLD_SIZE, ROLE_NAME, ROLE_RANK,
/// ROLE_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, TORCHELASTIC_RUN_ID, TORCHELASTIC_RESTART_COUNT,
/// TORCHELASTIC_MAX_RESTARTS, TORCHELASTIC_USE_AGENT_STORE=False (at MASTER_PORT, which is free, rank 0 serves a store
/// of PyTorch's), TUTTI_STORE_PORT (the launcher's store, for tutti's programs), TUTTI_LAUNCHER_MASTER_PORT and
/// TUTTI_JOB_SECRET; with `standby` TUTTI_STORE_STANDBY. With `replace` it gets TUTTI_REPLACES=1; spares, and processes
/// that come later, get TUTTI_NEWCOMER=1 in place of RANK, WORLD_SIZE, ROLE_RANK and ROLE_WORLD_SIZE. Rank 0 gets
/// standard input; from a terminal, the lines typed while the launcher is in its foreground. Returns the exit status
/// for the shell: 0 if all ranks succeeded, else the first failing rank's, 128 + signal if one ended it or the
/// launcher, 124 after `timeout`, 126 or 127 if the program cannot be executed or does not exist. When it returns, no
/// process of the job is left on this node, grandchildren included. Throws std::system_error if processes or
/// descriptors run out, InvalidArgument for bad options, DistNetworkError if it cannot listen on the store's address,
/// or the nodes of a job do not meet within `join_timeout`.
int launch(const Options& options);

struct SshOptions {
    std::vector<std::string> arguments;  ///< for ssh, before the launcher's own arguments for it
    std::vector<std::string> forwarded;  ///< options of `tutti run` for the launcher on each host
};
/// Starts `tutti run` on each host over ssh as one job, with this program's executable and working directory: host k is
/// node k with one rank per slot. Only these of the `options` count: command, environment, prefix, colour, timeout,
/// grace, master_addr (empty: the first host) and master_port (0: 29500); `forwarded` carries the others. The variables
/// TUTTI_*, PYTHON* and LD_LIBRARY_PATH are passed on. The job's secret travels through ssh's standard input; when this
/// process ends in any way, that closes, and the remote launcher ends its ranks. Returns and throws as launch().
int launch_on_hosts(const Options& options, const std::vector<Host>& hosts, const SshOptions& ssh);

}  // namespace tutti::launch
