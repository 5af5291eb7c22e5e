// Ranks that are forked processes. Each has a pipe for the text of an exception.
#include "core/assert.hpp"
#include "core/env.hpp"
#include "core/unique_fd.hpp"
#include "launch/child.hpp"
#include "launch/spawn.hpp"
#include "rendezvous/spawned.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <stdexcept>
#include <utility>

namespace tutti::launch {
namespace {

using Instant = SpawnContext::Ranks::Instant;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Fits into an empty pipe, so that a child never waits for a reader.
constexpr std::size_t text_max = 32768;
// Ranks that fail because another one did follow within this time.
constexpr milliseconds settling{100};

struct RankChild {
    pid_t pid = -1;
    UniqueFd end;     // a pidfd: readable when it has ended; absent on old kernels
    UniqueFd report;  // an ErrorCode (0: not a DistError) and a text
    std::optional<int> status;
    bool collected = false;
};

void tell(int fd, int code, std::string_view text) {
    TUTTI_ASSERT(fd >= 0);
    std::string message(reinterpret_cast<const char*>(&code), sizeof code);
    message += text.substr(0, text_max);
    if (::write(fd, message.data(), message.size()) < 0) return;
}

// A file of this process's alone, until it goes; where none can be made the ranks say so who want to meet there.
class MeetingFile {
 public:
    MeetingFile()
        : path_((std::filesystem::path(env::get("TMPDIR").value_or("/tmp")) / "tutti-spawn-XXXXXX").string()) {
        const UniqueFd made(::mkostemp(path_.data(), O_CLOEXEC));
        if (!made) path_.clear();
    }
    ~MeetingFile() {
        if (!path_.empty()) ::unlink(path_.c_str());
    }
    MeetingFile(const MeetingFile&) = delete;
    MeetingFile& operator=(const MeetingFile&) = delete;
    const std::string& path() const noexcept { return path_; }

 private:
    std::string path_;
};

[[noreturn]] void be_rank(const RankFunction& fn, const rendezvous::Spawned& self, int report, pid_t parent) {
    TUTTI_ASSERT(report >= 0 && self.rank >= 0 && self.rank < self.size);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);  // it died before the line above
    int status = 1;
    try {
        rendezvous::be_spawned(self);
        fn(self.rank, std::stop_token());
        status = 0;
    } catch (const DistError& error) {
        tell(report, static_cast<int>(error.code()), error.what());
    } catch (const std::exception& error) {
        tell(report, 0, error.what());
    } catch (...) {
        tell(report, 0, "something that is not a std::exception");
    }
    std::cout.flush();
    std::fflush(nullptr);
    ::_exit(status);
}

struct Raised {
    ErrorCode code;
    bool consequence;  // of another rank's failure
    std::string text;
};

std::optional<Raised> read_report(int fd) {
    std::string message;
    std::array<char, 4096> part;
    for (;;) {
        const ssize_t got = ::read(fd, part.data(), part.size());
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        message.append(part.data(), static_cast<std::size_t>(got));
    }
    int code = 0;
    if (message.size() < sizeof code) return std::nullopt;
    message.copy(reinterpret_cast<char*>(&code), sizeof code);
    const auto error = static_cast<ErrorCode>(code);
    return Raised{code == 0 ? ErrorCode::peer_lost : error,
                  error == ErrorCode::peer_lost || error == ErrorCode::aborted, message.substr(sizeof code)};
}

class ProcessRanks : public SpawnContext::Ranks {
 public:
    ProcessRanks(const RankFunction& fn, int count, milliseconds grace_period) : grace_period_(grace_period) {
        TUTTI_ASSERT(fn != nullptr && count >= 1 && grace_period.count() >= 0);
        std::cout.flush();
        std::fflush(nullptr);  // a child would write a copy of the output buffered here
        children_.reserve(static_cast<std::size_t>(count));
        try {
            for (int rank = 0; rank < count; ++rank)
                start(fn, {.rank = rank, .size = count, .file = meeting_file_.path()});
        } catch (...) {
            end_all();
            throw;
        }
    }
    ~ProcessRanks() override { end_all(); }

    bool join(Instant end) override {
        if (failure_) failure_();
        if (!wait_all(end, true)) {
            if (!any_failed()) return false;
            wait_all(Clock::now() + settling, false);
            const std::size_t first = first_to_fail();
            end_all();
            note_failure(first);
            failure_();
        }
        return true;
    }

    std::vector<int> pids() const override {
        std::vector<int> result;
        for (const RankChild& child : children_) result.push_back(child.pid);
        return result;
    }

 private:
    void start(const RankFunction& fn, const rendezvous::Spawned& rank) {
        const auto fail = [&] {
            throw DistBackendError(
                fmt::format("spawn: no process to be had for rank {}: {}", rank.rank, ::strerror(errno)));
        };
        int ends[2];
        if (::pipe2(ends, O_CLOEXEC) != 0) fail();
        UniqueFd report(ends[0]), write(ends[1]);
        const pid_t parent = ::getpid(), pid = ::fork();
        if (pid < 0) fail();
        if (pid == 0) be_rank(fn, rank, write.get(), parent);
        ::fcntl(report.get(), F_SETFL, O_NONBLOCK);  // a grandchild may hold the other end
        RankChild& child = children_.emplace_back();
        child.pid = pid;
        child.report = std::move(report);
        TUTTI_ASSERT(children_.size() == static_cast<std::size_t>(rank.rank) + 1);
        child.end.reset(static_cast<int>(::syscall(__NR_pidfd_open, pid, 0)));
    }

    // False: `end` came first, or (if that is to count) a rank failed.
    bool wait_all(Instant end, bool until_failure) {
        for (;;) {
            std::vector<pollfd> polled;
            bool blind = false, running = false;
            for (RankChild& child : children_) {
                reap(child);
                if (child.status) continue;
                running = true;
                blind |= !child.end;
                polled.push_back({child.end.get(), POLLIN, 0});
            }
            if (until_failure && any_failed()) return false;
            if (!running) return true;
            const auto now = Clock::now();
            if (now >= end) return false;
            const auto left = std::min<Clock::duration>(end - now, std::chrono::hours(1));
            auto wait = std::chrono::ceil<milliseconds>(left);
            if (blind) wait = std::min(wait, milliseconds(10));
            ::poll(polled.data(), polled.size(), static_cast<int>(wait.count()));
        }
    }

    // One that failed is collected at the end: until then the other ranks can ask the system how it ended.
    static void reap(RankChild& child) {
        TUTTI_ASSERT(child.pid > 0);
        if (child.status) return;
        siginfo_t info{};
        const int result = ::waitid(P_PID, static_cast<id_t>(child.pid), &info, WEXITED | WNOHANG | WNOWAIT);
        if (result == 0 && info.si_pid != 0) child.status = status_of(info);
        // Another part of the program collected it, or SIGCHLD is ignored: it has ended, but its status is unknown.
        if (result != 0 && errno == ECHILD) child.status = 0;
        if (child.status == 0) collect(child);
    }

    static void collect(RankChild& child) {
        TUTTI_ASSERT(child.pid > 0);
        if (!std::exchange(child.collected, true)) ::waitpid(child.pid, nullptr, WNOHANG);
    }

    bool any_failed() const {
        return std::ranges::any_of(children_, [](const RankChild& c) { return c.status && *c.status != 0; });
    }

    // A killed rank did not fail because another did; one that raised that a peer is lost did.
    std::size_t first_to_fail() {
        raised_.resize(children_.size());
        std::size_t best = 0;
        int best_order = 9;
        for (std::size_t rank = 0; rank < children_.size(); ++rank) {
            const RankChild& child = children_[rank];
            if (!child.status || *child.status == 0) continue;
            raised_[rank] = read_report(child.report.get());
            const int order = WIFSIGNALED(*child.status)    ? (WTERMSIG(*child.status) == SIGABRT ? 1 : 0)
                              : !raised_[rank]              ? 2
                              : !raised_[rank]->consequence ? 3
                                                            : 4;
            if (order >= best_order) continue;
            best_order = order;
            best = rank;
        }
        TUTTI_ASSERT(best_order < 9);
        return best;
    }

    void note_failure(std::size_t index) {
        const RankChild& child = children_[index];
        TUTTI_ASSERT(child.status && *child.status != 0 && raised_.size() == children_.size());
        const int rank = static_cast<int>(index), pid = child.pid, status = *child.status;
        const std::string who = fmt::format("spawn: rank {} (pid {})", rank, pid);
        if (const auto& raised = raised_[index]; raised && WIFEXITED(status)) {
            failure_ = [=, code = raised->code, text = who + " ended with an error: " + raised->text] {
                throw ProcessRaisedException(code, text, rank, pid);
            };
            return;
        }
        const bool killed = WIFSIGNALED(status);
        const int code = killed ? -WTERMSIG(status) : WEXITSTATUS(status);
        const char* abbreviation = killed ? ::sigabbrev_np(-code) : nullptr;
        const std::string signal = abbreviation != nullptr ? fmt::format("SIG{}", abbreviation) : "";
        const std::string text = killed ? fmt::format("{} was killed by signal {} ({})", who, -code, signal)
                                        : fmt::format("{} exited with status {}", who, code);
        failure_ = [=] { throw ProcessExitedException(text, rank, pid, code, signal); };
    }

    void end_all() {
        signal_all(SIGTERM);
        if (!wait_all(Clock::now() + grace_period_, false)) {
            signal_all(SIGKILL);
            wait_all(Instant::max(), false);
        }
        for (RankChild& child : children_) collect(child);
    }

    void signal_all(int signal) {
        for (RankChild& child : children_) {
            reap(child);
            if (child.status) continue;
            ::kill(child.pid, signal);
            ::kill(child.pid, SIGCONT);  // a stopped process could not end
        }
    }

    const milliseconds grace_period_;
    const MeetingFile meeting_file_;
    std::vector<RankChild> children_;
    std::vector<std::optional<Raised>> raised_;
    std::function<void()> failure_;  // throws it
};

}  // namespace

std::unique_ptr<SpawnContext::Ranks> spawn_processes(const RankFunction& fn, int count, milliseconds grace_period) {
    return std::make_unique<ProcessRanks>(fn, count, grace_period);
}

}  // namespace tutti::launch
