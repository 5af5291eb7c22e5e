// spawn(), its exceptions, and ranks that are threads.
#include "launch/spawn.hpp"

#include "core/assert.hpp"
#include "rendezvous/spawned.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

namespace tutti {
namespace launch {
namespace {

// Whether a rank raises this error because another one has failed.
bool is_consequence(const std::exception_ptr& error) {
    try {
        std::rethrow_exception(error);
    } catch (const DistError& known) {
        return known.code() == ErrorCode::peer_lost || known.code() == ErrorCode::aborted;
    } catch (...) {
        return false;
    }
}

class ThreadRanks : public SpawnContext::Ranks {
 public:
    ThreadRanks(RankFunction fn, int count) : fn_(std::move(fn)), count_(count), running_(count) {
        TUTTI_ASSERT(count >= 1 && fn_ != nullptr);
        threads_.reserve(static_cast<std::size_t>(count));
        try {
            for (int rank = 0; rank < count; ++rank) threads_.emplace_back([this, rank] { run(rank); });
        } catch (const std::system_error& error) {
            end();
            throw DistBackendError(
                fmt::format("spawn: no thread to be had for rank {}: {}", threads_.size(), error.what()));
        }
    }
    ~ThreadRanks() override { end(); }

    bool join(Instant end) override {
        {
            std::unique_lock lock(mutex_);
            const auto all_ended = [&] { return running_ == 0; };
            if (end == Instant::max())
                ended_.wait(lock, all_ended);
            else if (!ended_.wait_until(lock, end, all_ended))
                return false;
        }
        if (error_) rethrow();
        return true;
    }

 private:
    void run(int rank) {
        TUTTI_ASSERT(rank >= 0 && rank < count_);
        std::exception_ptr error;
        const rendezvous::SpawnedThread spawned(rank, count_);
        try {
            fn_(rank, stop_.get_token());
        } catch (...) {
            error = std::current_exception();
        }
        if (error) stop_.request_stop();
        const std::lock_guard lock(mutex_);
        if (error && (!error_ || (is_consequence(error_) && !is_consequence(error)))) {
            error_ = error;
            failed_ = rank;
        }
        TUTTI_ASSERT(running_ > 0);
        if (--running_ == 0) ended_.notify_all();
    }

    [[noreturn]] void rethrow() const {
        TUTTI_ASSERT(error_ != nullptr && failed_ >= 0);
        const std::string rank = fmt::format("spawn: rank {} (a thread) ended with an error: ", failed_);
        try {
            std::rethrow_exception(error_);
        } catch (const DistError& error) {
            std::throw_with_nested(ProcessRaisedException(error.code(), rank + error.what(), failed_, ::getpid()));
        } catch (const std::exception& error) {
            std::throw_with_nested(
                ProcessRaisedException(ErrorCode::peer_lost, rank + error.what(), failed_, ::getpid()));
        } catch (...) {
            std::throw_with_nested(ProcessRaisedException(
                ErrorCode::peer_lost, rank + "something that is not a std::exception", failed_, ::getpid()));
        }
    }

    void end() {
        stop_.request_stop();
        for (std::thread& thread : threads_) {
            if (thread.joinable()) thread.join();
        }
    }

    const RankFunction fn_;
    const int count_;
    std::stop_source stop_;
    std::mutex mutex_;
    std::condition_variable ended_;
    int running_;
    std::exception_ptr error_;  // of the first that failed by itself
    int failed_ = -1;
    std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<SpawnContext::Ranks> spawn_threads(RankFunction fn, int count) {
    return std::make_unique<ThreadRanks>(std::move(fn), count);
}

}  // namespace launch

ProcessException::ProcessException(ErrorCode code, const std::string& message, int rank, int pid)
    : DistError(code, message, {.operation = "spawn", .peer = rank}), pid_(pid) {}
ProcessException::~ProcessException() = default;
ProcessRaisedException::~ProcessRaisedException() = default;
ProcessExitedException::ProcessExitedException(const std::string& message, int rank, int pid, int exit_code,
                                               std::string signal_name)
    : ProcessException(ErrorCode::peer_lost, message, rank, pid),
      exit_code_(exit_code),
      signal_name_(std::move(signal_name)) {}
ProcessExitedException::~ProcessExitedException() = default;

SpawnContext::SpawnContext(std::unique_ptr<Ranks> ranks) : ranks_(std::move(ranks)) {}
SpawnContext::~SpawnContext() = default;
SpawnContext::SpawnContext(SpawnContext&&) noexcept = default;
SpawnContext& SpawnContext::operator=(SpawnContext&&) noexcept = default;

bool SpawnContext::join(std::optional<std::chrono::milliseconds> timeout) {
    if (!ranks_) return true;  // moved from
    const auto now = std::chrono::steady_clock::now();
    const bool endless = !timeout || *timeout > std::chrono::hours(24 * 365);
    return ranks_->join(endless ? Ranks::Instant::max() : now + *timeout);
}

std::vector<int> SpawnContext::pids() const {
    return ranks_ ? ranks_->pids() : std::vector<int>{};
}

void become_spawned_rank(int rank, int nprocs, const std::string& meeting_file) {
    if (rank < 0 || rank >= nprocs)
        throw InvalidArgument(
            fmt::format("become_spawned_rank: rank {} of {}: expected 0 to {}", rank, nprocs, nprocs - 1));
    rendezvous::be_spawned({.rank = rank, .size = nprocs, .file = meeting_file});
}

SpawnContext spawn(std::function<void(int, std::stop_token)> fn, int nprocs, const SpawnOptions& options) {
    if (!fn) throw InvalidArgument("spawn: fn is empty: expected a function of the rank");
    if (nprocs < 1 || nprocs > 65536)
        throw InvalidArgument(fmt::format("spawn: nprocs {}: expected 1 to 65536", nprocs));
    if (options.grace_period < std::chrono::milliseconds::zero()) {
        throw InvalidArgument(
            fmt::format("spawn: grace_period {} ms: expected zero or more", options.grace_period.count()));
    }
    SpawnContext context(options.method == SpawnMethod::threads
                             ? launch::spawn_threads(std::move(fn), nprocs)
                             : launch::spawn_processes(fn, nprocs, options.grace_period));
    if (options.join) context.join();
    return context;
}

SpawnContext spawn(std::function<void(int)> fn, int nprocs, const SpawnOptions& options) {
    if (!fn) throw InvalidArgument("spawn: fn is empty: expected a function of the rank");
    return spawn([fn = std::move(fn)](int rank, const std::stop_token&) { fn(rank); }, nprocs, options);
}

}  // namespace tutti
