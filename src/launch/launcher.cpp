#include "launch/launcher.hpp"

#include "core/socket.hpp"
#include "launch/child.hpp"
#include "launch/guard.hpp"
#include "launch/lines.hpp"
#include "security/secret.hpp"
#include "store/tcp_server.hpp"

#include <tutti/error.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <deque>
#include <fstream>
#include <iterator>
#include <system_error>

namespace tutti::launch {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// SIGINT and its like arrive at a descriptor; the mask is put back at the end.
class Signals {
 public:
    Signals() {
        sigset_t set;
        ::sigemptyset(&set);
        // One that whoever started us has us ignore stays ignored (nohup, `&` in a script): blocked, it would arrive.
        // SIGCHLD must not be: children's statuses would be lost.
        ::signal(SIGCHLD, SIG_DFL);
        for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) {
            struct sigaction action {};
            ::sigaction(signal, nullptr, &action);
            if (action.sa_handler != SIG_IGN) ::sigaddset(&set, signal);
        }
        ::sigprocmask(SIG_BLOCK, &set, &before_);
        fd_.reset(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
        if (!fd_) throw std::system_error(errno, std::generic_category(), "tutti run: no descriptor for signals");
        pipe_before_ = ::signal(SIGPIPE, SIG_IGN);
    }
    ~Signals() {
        ::signal(SIGPIPE, pipe_before_);
        ::sigprocmask(SIG_SETMASK, &before_, nullptr);
    }
    int fd() const noexcept { return fd_.get(); }
    /// The next one that waits; 0: none.
    int next() {
        signalfd_siginfo info;
        return ::read(fd_.get(), &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
    }

 private:
    UniqueFd fd_;
    sigset_t before_{};
    void (*pipe_before_)(int) = SIG_DFL;
};

std::string run_id() {
    std::array<std::byte, 8> bytes;
    security::random_bytes(bytes);
    std::string id;
    for (const std::byte b : bytes) id += fmt::format("{:02x}", static_cast<unsigned>(b));
    return id;
}

std::string prefix_of(int rank, const Options& options) {
    if (!options.prefix) return {};
    static constexpr std::array<int, 6> colours = {36, 33, 35, 32, 34, 31};
    const std::string text = fmt::format("[rank {}]", rank);
    if (!options.colour) return text + " ";
    return fmt::format("\033[{}m{}\033[0m ", colours[static_cast<std::size_t>(rank) % colours.size()], text);
}

class Job {
 public:
    explicit Job(const Options& options) : options_(options), listener_(net::listen_tcp("127.0.0.1", 0)) {}
    ~Job() { kill_all(SIGKILL); }

    int run() {
        start_all();
        while (running() > 0) {
            wait();
            advance();
        }
        kill_orphans();
        // All that the job wrote is in the pipes now; their ends may be held by someone outside of it.
        pass_all_on();
        for (Rank& rank : ranks_) {
            rank.out.finish();
            rank.err.finish();
        }
        report();
        return status();
    }

 private:
    struct Rank {
        Rank(int number, const Options& options, const Patience& patience)
            : out(prefix_of(number, options), 1, tail, patience), err(prefix_of(number, options), 2, tail, patience) {}
        Rank(const Rank&) = delete;
        Child child;
        Tail tail;
        Lines out, err;
        Clock::time_point ended{};
        bool stopped_by_us = false;
    };

    void start_all() {
        const auto secret = security::Secret::from_environment().value_or(security::Secret::generate());
        const std::string size = std::to_string(options_.ranks),
                          port = std::to_string(net::local_address(listener_.get()).port);
        Environment common = options_.environment;
        for (const std::string& variable :
             {"WORLD_SIZE=" + size, "LOCAL_WORLD_SIZE=" + size, std::string("GROUP_RANK=0"),
              std::string("MASTER_ADDR=127.0.0.1"), "MASTER_PORT=" + port, run_id_,
              std::string("TORCHELASTIC_USE_AGENT_STORE=True"), "TUTTI_STORE_PORT=" + port,
              "TUTTI_JOB_SECRET=" + secret.to_text()}) {
            common.push_back(variable);
        }
        for (int r = 0; r < options_.ranks; ++r) {
            Environment mine = common;
            mine.push_back(fmt::format("RANK={}", r));
            mine.push_back(fmt::format("LOCAL_RANK={}", r));
            Rank& rank = ranks_.emplace_back(r, options_, patience_);
            rank.child = start(options_.command, environment_with(mine), r == 0 && ::isatty(0) == 0 ? 0 : -1);
            if (rank.child.start_error != 0) {
                note_failure(r);
                stop(0);
                break;
            }
            guard_.watch(rank.child.pid);
        }
        // Not before the last fork: connections wait in the listener's queue meanwhile.
        server_.emplace(std::move(listener_), secret, false);
    }

    // ---- What happens

    void wait() {
        std::vector<pollfd> polled{{signals_.fd(), POLLIN, 0}};
        for (Rank& rank : ranks_) {
            for (const UniqueFd* fd : {&rank.child.out, &rank.child.err}) {
                if (*fd) polled.push_back({fd->get(), POLLIN, 0});
            }
        }
        if (::poll(polled.data(), polled.size(), wait_ms()) < 0 && errno != EINTR) {
            throw std::system_error(errno, std::generic_category(), "tutti run: poll");
        }
        pass_all_on();
        take_signals();
        reap();
    }

    void take_signals() {
        while (const int signal = signals_.next()) {
            if (signal == SIGCHLD) continue;
            ended_by_ = ended_by_ == 0 ? signal : ended_by_;
            if (stopping_ && stopping_signal_ != 0) kill_at_ = Clock::now();  // asked twice
            stop(signal);
        }
    }

    // Nobody reads our output at the moment. A job that failed waits for its reader; one that was told to end does not
    // wait for longer than its grace.
    bool wait_for_reader() {
        take_signals();
        reap();
        advance();
        return !gave_up_;
    }

    void pass_all_on() {
        for (Rank& rank : ranks_) {
            pass_on(rank.child.out, rank.out);
            pass_on(rank.child.err, rank.err);
        }
    }

    int wait_ms() const {
        auto next = Clock::now() + std::chrono::hours(1);
        for (const auto& moment : {terminate_at_, kill_at_}) {
            if (moment) next = std::min(next, *moment);
        }
        if (options_.timeout && !stopping_) next = std::min(next, started_ + *options_.timeout);
        const auto left = std::chrono::duration_cast<milliseconds>(next - Clock::now()).count() + 1;
        return static_cast<int>(std::clamp<std::int64_t>(left, 0, 3600 * 1000));
    }

    void pass_on(UniqueFd& fd, Lines& lines) {
        if (!fd) return;
        static std::array<char, 1 << 16> buffer;
        for (int turn = 0; turn < 16; ++turn) {  // nobody is served for ever
            const ssize_t got = ::read(fd.get(), buffer.data(), buffer.size());
            if (got > 0) {
                const bool read = lines.add({buffer.data(), static_cast<std::size_t>(got)});
                if (!read && !stopping_) {  // as `program | head` ends
                    ended_by_ = SIGPIPE;
                    stop(SIGTERM);
                }
            } else if (got == 0 || errno != EAGAIN) {
                if (got < 0 && errno == EINTR) continue;
                lines.finish();
                fd.reset();
                return;
            } else {
                return;
            }
        }
    }

    void reap() {
        std::vector<int> ended;
        for (int status = 0;;) {
            const pid_t pid = ::waitpid(-1, &status, WNOHANG);
            if (pid <= 0) break;
            for (std::size_t r = 0; r < ranks_.size(); ++r) {
                Rank& rank = ranks_[r];
                if (rank.child.pid != pid || rank.child.status) continue;
                rank.child.status = status;
                rank.ended = Clock::now();
                ::kill(-pid, SIGKILL);  // what it left behind in its group
                guard_.forget(pid);
                ended.push_back(static_cast<int>(r));
            }
        }
        // Several may have ended since the last look. Who was killed did not fail because somebody else did.
        std::ranges::stable_sort(ended, {}, [&](int r) {
            const int status = *ranks_[static_cast<std::size_t>(r)].child.status;
            return !WIFSIGNALED(status) ? 2 : WTERMSIG(status) == SIGABRT ? 1 : 0;
        });
        for (const int r : ended) {
            if (ranks_[static_cast<std::size_t>(r)].child.failed()) note_failure(r);
        }
    }

    void note_failure(int rank) {
        if (first_failure_ || stopping_) return;
        first_failure_ = rank;
        failed_after_ = Clock::now() - started_;
        terminate_at_ = Clock::now() + options_.report_time;
    }

    void advance() {
        const auto now = Clock::now();
        if (options_.timeout && !stopping_ && now >= started_ + *options_.timeout) {
            timed_out_ = true;
            stop(SIGTERM);
        }
        if (terminate_at_ && now >= *terminate_at_ && !stopping_) stop(SIGTERM);
        if (kill_at_ && now >= *kill_at_) {
            kill_all(SIGKILL);
            kill_at_.reset();
            gave_up_ = timed_out_ || ended_by_ != 0;
        }
    }

    // ---- Ends

    void stop(int signal) {
        if (!stopping_) kill_at_ = Clock::now() + options_.grace;
        stopping_ = true;
        stopping_signal_ = signal;
        terminate_at_.reset();
        for (Rank& rank : ranks_) rank.stopped_by_us |= rank.child.running();
        kill_all(signal == 0 ? SIGTERM : signal);
    }

    void kill_all(int signal) {
        for (Rank& rank : ranks_) {
            if (!rank.child.running()) continue;
            ::kill(-rank.child.pid, signal);
            ::kill(-rank.child.pid, SIGCONT);  // a stopped process could not end
        }
    }

    // Processes of the job that left their group have become our children (PR_SET_CHILD_SUBREAPER).
    void kill_orphans() {
        for (int turn = 0; turn < 100; ++turn) {
            std::ifstream list("/proc/self/task/" + std::to_string(::getpid()) + "/children");
            std::vector<pid_t> orphans{std::istream_iterator<pid_t>(list), {}};
            std::erase_if(orphans, [&](pid_t pid) { return pid == guard_.pid(); });
            std::erase_if(orphans, [&](pid_t pid) {
                return std::ranges::any_of(
                    ranks_, [&](const Rank& rank) { return rank.child.pid == pid && rank.child.running(); });
            });
            if (orphans.empty()) return;
            for (const pid_t pid : orphans) {
                ::kill(pid, SIGKILL);
                ::waitpid(pid, nullptr, 0);
            }
        }
    }

    int running() const {
        return static_cast<int>(std::ranges::count_if(ranks_, [](const Rank& r) { return r.child.running(); }));
    }

    int status() const {
        if (first_failure_) return exit_status(ranks_[static_cast<std::size_t>(*first_failure_)].child);
        if (ended_by_ != 0) return 128 + ended_by_;
        if (timed_out_) return 124;
        return 0;
    }

    void report() {
        const auto seconds = [](Clock::duration d) { return std::chrono::duration<double>(d).count(); };
        std::string text;
        if (first_failure_) {
            const Rank& rank = ranks_[static_cast<std::size_t>(*first_failure_)];
            const bool others = options_.ranks > 1;
            text = fmt::format("tutti run: rank {}{}{} after {:.1f} s: {}\n", *first_failure_,
                               rank.child.pid > 0 ? fmt::format(" (pid {})", rank.child.pid) : "",
                               others ? " was the first to fail," : " failed", seconds(failed_after_),
                               cause_in_words(rank.child));
            if (rank.child.start_error != 0) text += fmt::format("  the program: {}\n", options_.command.front());
            if (!rank.tail.lines().empty()) text += "  its last lines:\n";
            for (const std::string& line : rank.tail.lines()) text += fmt::format("    {}\n", line);
            text += the_others();
        } else if (timed_out_) {
            text = fmt::format("tutti run: the job was stopped: it did not end in {:g} s (--timeout)\n",
                               seconds(*options_.timeout));
        } else if (ended_by_ != 0 && ended_by_ != SIGPIPE) {
            text = fmt::format("tutti run: stopped by SIG{}\n", ::sigabbrev_np(ended_by_));
        }
        write_all(2, text, patience_);
    }

    std::string the_others() const {
        std::string text;
        int more = 0;
        for (std::size_t r = 0; r < ranks_.size(); ++r) {
            const Rank& rank = ranks_[r];
            if (static_cast<int>(r) == *first_failure_ || !rank.child.status) continue;
            if (text.size() > 1000) {
                ++more;
                continue;
            }
            text += fmt::format("{}rank {} {}{}", text.empty() ? "  the others: " : "; ", r, cause_in_words(rank.child),
                                rank.stopped_by_us ? " (stopped by tutti run)" : "");
        }
        if (more > 0) text += fmt::format("; and {} more", more);
        return text.empty() ? text : text + "\n";
    }

    const Options& options_;
    Signals signals_;
    const std::string run_id_ = "TORCHELASTIC_RUN_ID=" + run_id();
    Guard guard_{run_id_};
    UniqueFd listener_;
    std::deque<Rank> ranks_;
    std::optional<store::TcpServer> server_;
    const Clock::time_point started_ = Clock::now();
    std::optional<int> first_failure_;
    Clock::duration failed_after_{};
    std::optional<Clock::time_point> terminate_at_, kill_at_;
    bool stopping_ = false, timed_out_ = false, gave_up_ = false;
    const Patience patience_ = [this] { return wait_for_reader(); };
    int stopping_signal_ = 0;
    int ended_by_ = 0;
};

}  // namespace

int launch(const Options& options) {
    if (options.command.empty()) throw InvalidArgument("tutti run: no program given: tutti run -n 4 ./program");
    if (options.ranks < 1 || options.ranks > 65536) {
        throw InvalidArgument(fmt::format("tutti run: -n {}: expected 1 to 65536 ranks", options.ranks));
    }
    // No pipe of ours may get the number of a standard stream that was closed.
    for (const int fd : {0, 1, 2}) {
        if (::fcntl(fd, F_GETFD) < 0) ::open("/dev/null", O_RDWR);
    }
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    Job job(options);
    return job.run();
}

}  // namespace tutti::launch
