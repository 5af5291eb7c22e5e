// launch(): starts the ranks of a job on this host, hosts their store, passes their output on, and ends them all when
// one fails. What `tutti run` does.
//
// Threads: call it from the main thread of a process that has no other threads yet, once at a time; it handles SIGINT,
// SIGTERM, SIGHUP and SIGCHLD while it runs. The store's server is a thread of its own.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace tutti::launch {

struct Options {
    std::vector<std::string> command;  ///< the program and its arguments
    int ranks = 1;
    bool prefix = true;  ///< "[rank 2] " before each line
    bool colour = false;
    std::vector<std::string> environment;              ///< NAME=value, besides the job's own
    std::optional<std::chrono::milliseconds> timeout;  ///< of the whole job
    /// How long the others may take to notice a failure and report it themselves, before SIGTERM.
    std::chrono::milliseconds report_time{1500};
    std::chrono::milliseconds grace{3000};  ///< between SIGTERM and SIGKILL
};

/// Every rank gets RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, GROUP_RANK, MASTER_ADDR, MASTER_PORT,
/// TORCHELASTIC_RUN_ID, TORCHELASTIC_USE_AGENT_STORE and TUTTI_JOB_SECRET. Standard input goes to rank 0 unless it is
/// a terminal. Returns the exit status for the shell: 0 when all ranks succeeded, the first failing rank's, 128 +
/// signal when it or the launcher was ended by one, 124 after `timeout`. When it returns no process of the job is left,
/// grandchildren included. Throws std::system_error when processes or descriptors cannot be had, InvalidArgument for
/// bad options.
int launch(const Options& options);

}  // namespace tutti::launch
