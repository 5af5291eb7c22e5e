// spawn(): runs a function on n ranks, as processes or as threads of this one.
//
//     tutti::spawn([](int rank) {
//         tutti::init_process_group();
//         …
//         tutti::destroy_process_group();
//     }, 4);
//
// Processes are forked: each begins with a copy of this process's memory, and of its threads only with the one that
// called spawn(). A lock that another thread held stays locked in the child for ever, so call spawn() before starting
// threads, and before joining a process group: an inherited group is of no use to a child. A TCPStore that this process
// serves is fine: the child closes its copy. spawn() first writes the output that waits in stdio's buffers. A child
// that returns from its function ends by the system call _exit(): no destructor of a static object and no atexit()
// handler runs twice. Children die with the thread that called spawn().
//
// In a spawned process, init_process_group without a rank takes the rank and world size of spawn(), whatever job the
// caller of spawn() belongs to. A rank, world_size, store or init_method that the program passes takes precedence: to
// make the ranks a part of a larger world, it passes all of them and sets MASTER_ADDR and MASTER_PORT.
//
// Ranks that are threads share the process's default group and environment: give each rank a ProcessGroup of its own,
// all from one HashStore.
//
// Follows torch.multiprocessing.spawn.
#pragma once

#include <tutti/error.hpp>
#include <tutti/export.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

namespace tutti {

/// A rank failed. code(): the code of the rank's own error if that was a DistError, otherwise peer_lost.
class TUTTI_API ProcessException : public DistError {
 public:
    ProcessException(ErrorCode code, const std::string& message, int rank, int pid);
    ~ProcessException() override;
    int rank() const noexcept { return context().peer; }
    int pid() const noexcept { return pid_; }  ///< of threads: this process's pid

 private:
    int pid_;
};

/// The rank's function threw an exception, whose message this one's contains. A thread's exception is nested in this
/// one (std::rethrow_if_nested).
class TUTTI_API ProcessRaisedException : public ProcessException {
 public:
    using ProcessException::ProcessException;
    ~ProcessRaisedException() override;
};

/// The rank's process ended without returning from its function.
class TUTTI_API ProcessExitedException : public ProcessException {
 public:
    ProcessExitedException(const std::string& message, int rank, int pid, int exit_code, std::string signal_name);
    ~ProcessExitedException() override;
    int exit_code() const noexcept { return exit_code_; }                     ///< negative: minus the signal
    const std::string& signal_name() const noexcept { return signal_name_; }  ///< "SIGKILL"; empty: none

 private:
    int exit_code_;
    std::string signal_name_;
};

enum class SpawnMethod { processes, threads };

struct SpawnOptions {
    SpawnMethod method = SpawnMethod::processes;
    bool join = true;                                                 ///< wait for all ranks before returning
    std::chrono::milliseconds grace_period{std::chrono::seconds(5)};  ///< between SIGTERM and SIGKILL
};

/// The running ranks. Threads: one at a time.
class TUTTI_API SpawnContext {
 public:
    class Ranks;
    explicit SpawnContext(std::unique_ptr<Ranks> ranks);
    /// Ends the ranks that still run: processes with SIGTERM, then SIGKILL; threads are asked to stop and waited for.
    ~SpawnContext();
    SpawnContext(SpawnContext&&) noexcept;
    SpawnContext& operator=(SpawnContext&&) noexcept;

    /// True: all ranks have returned. False: `timeout` passed first. When a rank fails, join() ends the others and
    /// throws ProcessRaisedException or ProcessExitedException for the first that failed; if several fail at about the
    /// same time, for a rank that was killed rather than for ranks that failed because of it. Threads cannot be ended
    /// from outside: join() asks them to stop and throws when they are gone. Later calls throw the same exception
    /// again.
    bool join(std::optional<std::chrono::milliseconds> timeout = std::nullopt);
    /// The process id of each rank; empty for threads.
    std::vector<int> pids() const;

 private:
    std::unique_ptr<Ranks> ranks_;
};

/// Calls fn(rank) on `nprocs` ranks, 0 to nprocs - 1. Throws InvalidArgument for bad arguments, DistBackendError when
/// the system has no processes left, and with options.join the errors of SpawnContext::join.
TUTTI_API SpawnContext spawn(std::function<void(int rank)> fn, int nprocs = 1, const SpawnOptions& options = {});
/// As above, for functions that can stop early: tutti requests a stop through `stop` when another rank has failed or
/// the context is destroyed. Processes get SIGTERM instead; their token never requests a stop.
TUTTI_API SpawnContext spawn(std::function<void(int rank, std::stop_token stop)> fn, int nprocs = 1,
                             const SpawnOptions& options = {});

/// For bindings that start the processes themselves: this process is rank `rank` of `nprocs`, which meet in a file.
TUTTI_API void become_spawned_rank(int rank, int nprocs, const std::string& meeting_file);

}  // namespace tutti
