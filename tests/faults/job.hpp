// Job: ranks as real processes that may be killed, stopped and interrupted, and that report what happened to them.
//
// The parent forks the ranks first and then serves a TCPStore for them; the ranks die with the parent. Reports travel
// through one pipe in pieces that are written whole; FAULTS_VERBOSE=1 in the environment prints them. Threads: the
// parent's test thread; each rank its own main thread.
#pragma once

#include <tutti/tutti.hpp>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::test {

using namespace std::chrono_literals;
using SteadyClock = std::chrono::steady_clock;  // one clock for all processes of a machine

/// What a rank says about itself.
struct Report {
    int rank = -1;
    int code = 0;  ///< 0: as expected; an ErrorCode; -1: an exception that is not a DistError
    int peer = -1;
    SteadyClock::time_point at{};
    char text[3000] = {};  // verdicts of eight ranks have a line or two for each
};
static_assert(sizeof(Report) < 4096, "written whole");

class Job;

/// One rank's view of the job.
class RankProcess {
 public:
    RankProcess(int rank, int size, int report_fd, Store store)
        : rank_(rank), size_(size), report_fd_(report_fd), store_(std::move(store)) {}
    int rank() const { return rank_; }
    int size() const { return size_; }
    const Store& store() const { return store_; }
    ProcessGroup join(TransportKind transport, std::chrono::milliseconds timeout = 20s) const {
        return ProcessGroup(
            {.store = store_, .rank = rank_, .world_size = size_, .timeout = timeout, .transport = transport});
    }
    void report(std::string_view text, int code = 0, int peer = -1) const {
        Report r;
        r.rank = rank_;
        r.code = code;
        r.peer = peer;
        r.at = SteadyClock::now();
        text.copy(r.text, sizeof r.text - 1);
        if (::write(report_fd_, &r, sizeof r) != static_cast<ssize_t>(sizeof r)) ::_exit(8);
    }
    /// Reports how a call ends: 0 and "done", or the error's code, peer and text.
    template <class F>
    void report_end_of(F call) const {
        try {
            call();
            report("done");
        } catch (const DistError& error) {
            report(error.what(), static_cast<int>(error.code()), error.context().peer);
        } catch (const std::exception& error) {
            report(error.what(), -1);
        }
    }

 private:
    int rank_, size_, report_fd_;
    Store store_;
};

class Job {
 public:
    using Body = std::function<void(const RankProcess&)>;

    Job(int size, const Body& body) {
        int ports[2], reports[2];
        if (::pipe2(ports, O_CLOEXEC) != 0 || ::pipe2(reports, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
        for (int rank = 0; rank < size; ++rank) {
            const pid_t child = ::fork();
            if (child != 0) {
                pids_.push_back(child);
                continue;
            }
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);
            ::close(reports[0]);
            int status = 7;
            try {
                std::uint16_t port = 0;
                if (::read(ports[0], &port, sizeof port) == sizeof port) {
                    body(RankProcess(rank, size, reports[1], TCPStore({.port = port})));
                    status = 0;
                }
            } catch (const std::exception& error) {
                std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
            }
            std::fflush(nullptr);
            ::_exit(status);
        }
        ::close(reports[1]);
        report_fd_ = reports[0];
        statuses_.resize(pids_.size());
        store_.emplace(TCPStoreOptions{.is_master = true});
        const std::uint16_t port = store_->port();
        for (int rank = 0; rank < size; ++rank) {
            if (::write(ports[1], &port, sizeof port) != static_cast<ssize_t>(sizeof port))
                throw std::runtime_error("port");
        }
        ::close(ports[0]);
        ::close(ports[1]);
    }
    Job(const Job&) = delete;
    Job& operator=(const Job&) = delete;
    ~Job() {
        for (int rank = 0; rank < static_cast<int>(pids_.size()); ++rank) {
            if (statuses_[static_cast<std::size_t>(rank)]) continue;
            signal(rank, SIGKILL);
            (void)wait(rank);
        }
        ::close(report_fd_);
    }

    pid_t pid(int rank) const { return pids_[static_cast<std::size_t>(rank)]; }
    TCPStore& store() { return *store_; }
    /// Its server ends; the ranks' clients lose it.
    void end_store() { store_.reset(); }
    SteadyClock::time_point signal(int rank, int number) const {
        ::kill(pid(rank), number);
        return SteadyClock::now();
    }
    /// The next report, or nothing in time.
    std::optional<Report> next(std::chrono::milliseconds limit = 20s) const {
        pollfd entry{report_fd_, POLLIN, 0};
        Report report;
        if (::poll(&entry, 1, static_cast<int>(limit.count())) != 1) return std::nullopt;
        if (::read(report_fd_, &report, sizeof report) != static_cast<ssize_t>(sizeof report)) return std::nullopt;
        if (std::getenv("FAULTS_VERBOSE") != nullptr)
            std::fprintf(stderr, "  rank %d: %s (code %d)\n", report.rank, report.text, report.code);
        return report;
    }
    /// One report of each of `count` ranks, in order of arrival; fewer when they do not come in time.
    std::vector<Report> collect(int count, std::chrono::milliseconds limit = 20s) const {
        std::vector<Report> all;
        while (static_cast<int>(all.size()) < count) {
            const auto report = next(limit);
            if (!report) break;
            all.push_back(*report);
        }
        return all;
    }
    /// The status of a rank that has ended, as waitpid tells it.
    int wait(int rank) {
        auto& status = statuses_[static_cast<std::size_t>(rank)];
        if (!status) {
            int value = 0;
            ::waitpid(pid(rank), &value, 0);
            status = value;
        }
        return *status;
    }

 private:
    std::vector<pid_t> pids_;
    std::vector<std::optional<int>> statuses_;
    int report_fd_ = -1;
    std::optional<TCPStore> store_;
};

inline std::string to_string(TransportKind kind) {
    return kind == TransportKind::tcp ? "tcp" : "shm";
}

}  // namespace tutti::test
