#include "launch/attempt.hpp"

#include "launch/logs.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <system_error>

namespace tutti::launch {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// A rank that exits may do so because another died: on another node, of which that node's launcher tells first, or
// here, where sockets close before the dead process can be waited for.
constexpr milliseconds courtesy{200};
// The time for an end over ssh beyond the grace of the ranks themselves.
constexpr milliseconds remote_grace{5000};

double seconds(Clock::duration d) {
    return std::chrono::duration<double>(d).count();
}

// Kinds of failure, the most telling first: a killed process did not fail because another did; one that aborts or exits
// may have.
enum class Kind { killed, aborted, exited };
Kind kind_of(int status) {
    if (!WIFSIGNALED(status)) return Kind::exited;
    return WTERMSIG(status) == SIGABRT ? Kind::aborted : Kind::killed;
}

// Passes a question on before its line ends where a terminal shows it, or where the user answers at one.
Lines::Style style_of(const Task& task, int fd) {
    if (task.prefix.empty()) return Lines::Style::unchanged;
    const bool is_read_now = ::isatty(fd) != 0 || task.input == Task::Input::terminal;
    return is_read_now ? Lines::Style::prefixed_now : Lines::Style::prefixed;
}

bool is_one_file(int a, int b) {
    struct stat one {
    }, other{};
    return ::fstat(a, &one) == 0 && ::fstat(b, &other) == 0 && one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

}  // namespace

Attempt::Member::Member(const Task& task, std::array<Unfinished*, 2> shared, const Patience& patience)
    : out(style_of(task, 1), task.prefix, task.shows_out ? 1 : -1, tail, *shared[0], patience),
      err(style_of(task, 2), task.prefix, task.shows_err ? 2 : -1, tail, *shared[1], patience) {
    if (!task.out_log.empty()) out_log = make_log(task.out_log);
    if (!task.err_log.empty()) err_log = make_log(task.err_log);
}

Attempt::Attempt(const std::vector<Task>& tasks, const Limits& limits, Signals& signals, Guard& guard, Nodes* nodes,
                 int number)
    : tasks_(tasks),
      limits_(limits),
      signals_(signals),
      guard_(guard),
      nodes_(nodes),
      number_(number),
      lifeline_(limits.lifeline) {}

Attempt::~Attempt() {
    kill_all(SIGKILL);
}

Outcome Attempt::run() {
    start_all();
    while (open()) {
        wait();
        advance();
    }
    kill_orphans();
    // All that the job wrote is in the pipes now; their ends may be held by someone outside of it.
    pass_all_on();
    for (Member& member : members_) {
        member.out.finish();
        member.err.finish();
    }
    return outcome();
}

void Attempt::start_all() {
    const std::array<Unfinished*, 2> shared{&unfinished_[0], &unfinished_[is_one_file(1, 2) ? 0 : 1]};
    for (const Task& task : tasks_) {
        Member& member = members_.emplace_back(task, shared, patience_);
        UniqueFd input;
        if (task.input == Task::Input::terminal) input = std::move(terminal_.emplace().side());
        if (task.input == Task::Input::lifeline) {
            int ends[2];
            if (::pipe2(ends, O_CLOEXEC) != 0)
                throw std::system_error(errno, std::generic_category(), "tutti run: no pipe for a process");
            input.reset(ends[0]);
            member.lifeline.reset(ends[1]);
            if (::write(ends[1], task.greeting.data(), task.greeting.size()) < 0) member.lifeline.reset();
        }
        const int in = task.input == Task::Input::ours ? 0 : input.get();
        member.child = start(task.command, task.environment, in);
        if (member.child.not_started) {
            note_failure(members_.size() - 1);
            stop(0);
            break;
        }
        guard_.watch(member.child.pid);
    }
}

// While a rank runs, or another node's.
bool Attempt::open() const {
    if (running()) return true;
    return nodes_ != nullptr && !outcome_ && !gave_up_;
}

bool Attempt::running() const {
    return std::ranges::any_of(members_, [](const Member& m) { return m.child.running(); });
}

// ---- Events

void Attempt::wait() {
    std::vector<pollfd> polled{{signals_.fd(), POLLIN, 0}};
    if (nodes_ != nullptr) polled.push_back({nodes_->fd(), POLLIN, 0});
    if (lifeline_.open()) polled.push_back({0, POLLIN, 0});
    if (terminal_ && terminal_->fd() >= 0) polled.push_back({terminal_->fd(), terminal_->events(), 0});
    const std::size_t first_output = polled.size();
    for (Member& member : members_) {
        for (const UniqueFd* fd : {&member.child.out, &member.child.err}) {
            if (*fd) polled.push_back({fd->get(), POLLIN, 0});
        }
    }
    if (::poll(polled.data(), polled.size(), wait_ms()) < 0 && errno != EINTR) {
        throw std::system_error(errno, std::generic_category(), "tutti run: poll");
    }
    // In the order in which they were asked about.
    auto asked = polled.begin() + static_cast<std::ptrdiff_t>(first_output);
    for (Member& member : members_) {
        const bool out = member.child.out && (asked++)->revents != 0;
        const bool err = member.child.err && (asked++)->revents != 0;
        if (out) pass_on(member.child.out, member.out, member.out_log);
        if (err) pass_on(member.child.err, member.err, member.err_log);
    }
    pass_beginnings();
    take_signals();
    if (terminal_ && terminal_->pass_on()) {
        for (const Unfinished& one : unfinished_) {
            if (one.line != nullptr) one.line->line_was_ended();
        }
    }
    reap();
    take_news();
    tell_nodes();
}

void Attempt::take_signals() {
    while (const int signal = signals_.next()) {
        if (ends_job(signal)) end_by(signal);
        if (!is_for_ranks(signal)) continue;
        const bool is_users = signal == SIGUSR1 || signal == SIGUSR2;
        if (!is_users || !guard_.got(signal)) pass_to_ranks(signal);
        if (signal == SIGTSTP && !stop_this_process()) {
            write_all(
                2,
                fmt::format("tutti run: the ranks are stopped (SIGTSTP): kill -CONT {} continues them, Ctrl-C ends "
                            "the job\n",
                            ::getpid()),
                [] { return true; });
        }
    }
    while (const int signal = lifeline_.next()) {
        if (signal == SIGHUP && !lifeline_.open()) {
            ended_by_ = ended_by_ == 0 ? SIGHUP : ended_by_;
            stop(SIGTERM);
        } else {
            pass_to_ranks(signal);
        }
    }
}

void Attempt::end_by(int signal) {
    ended_by_ = ended_by_ == 0 ? signal : ended_by_;
    if (stopping_ && stopping_signal_ != 0) kill_at_ = Clock::now();  // asked twice
    stop(signal);
}

void Attempt::pass_to_ranks(int signal) {
    quit_ |= signal == SIGQUIT;
    if (signal == SIGWINCH && terminal_) terminal_->resize();
    const unsigned char byte = Lifeline::byte_of(signal);
    for (std::size_t m = 0; m < members_.size(); ++m) {
        Member& member = members_[m];
        if (!member.child.running()) continue;
        if (tasks_[m].input != Task::Input::lifeline)
            ::kill(-member.child.pid, signal);
        else if (member.lifeline && ::write(member.lifeline.get(), &byte, 1) < 0)
            member.lifeline.reset();
    }
}

void Attempt::take_news() {
    if (nodes_ == nullptr || outcome_) return;
    nodes_->clear();
    outcome_ = nodes_->outcome(number_);
    if (outcome_ && !outcome_->good && running() && !stopping_ && !terminate_at_)
        terminate_at_ = Clock::now() + limits_.report_time;
}

// Sends this node's result of the attempt, once.
void Attempt::tell_nodes() {
    if (nodes_ == nullptr || told_ || outcome_) return;
    const auto tell = [&](bool again, int status, const std::string& text) {
        told_ = true;
        nodes_->failed(number_, {.again = again, .status = status, .text = text});
    };
    if (ended_by_ != 0) {
        tell(false, 128 + ended_by_, fmt::format("stopped by SIG{}", ::sigabbrev_np(ended_by_)));
    } else if (timed_out_) {
        tell(false, 124, "did not end in time (--timeout)");
    } else if (first_failure_) {
        const Child& child = members_[*first_failure_].child;
        if (tell_at_ && Clock::now() < *tell_at_) return;
        tell(!child.not_started, exit_status(child), first_failure());
    } else if (!running()) {
        told_ = true;
        nodes_->done(number_);
    }
}

// Nobody reads our output at the moment. A job that failed waits for its reader; one that was told to end does not
// wait for longer than its grace.
bool Attempt::wait_for_reader() {
    take_signals();
    reap();
    advance();
    return !gave_up_;
}

void Attempt::pass_all_on() {
    for (Member& member : members_) {
        pass_on(member.child.out, member.out, member.out_log);
        pass_on(member.child.err, member.err, member.err_log);
    }
}

void Attempt::pass_on(UniqueFd& fd, Lines& lines, UniqueFd& log) {
    if (!fd) return;
    static std::array<char, 1 << 16> buffer;
    for (int turn = 0; turn < 16; ++turn) {  // no stream is served for ever
        const ssize_t got = ::read(fd.get(), buffer.data(), buffer.size());
        if (got > 0) {
            const std::string_view text(buffer.data(), static_cast<std::size_t>(got));
            if (log && !write_all(log.get(), text, [] { return true; })) {
                write_all(2, fmt::format("tutti run: a log file ends here: {}\n", ::strerror(errno)), patience_);
                log.reset();
            }
            if (!lines.add(text)) reader_is_gone();
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

// Passes on beginnings without an end of line, which may be questions.
void Attempt::pass_beginnings() {
    const auto now = Clock::now();
    for (Member& member : members_) {
        for (Lines* lines : {&member.out, &member.err}) {
            if (const auto due = lines->due(); due && now >= *due && !lines->pass_beginning()) reader_is_gone();
        }
    }
}

// As `program | head` ends.
void Attempt::reader_is_gone() {
    if (stopping_) return;
    ended_by_ = SIGPIPE;
    stop(SIGTERM);
}

int Attempt::wait_ms() const {
    auto next = Clock::now() + std::chrono::hours(1);
    const bool must_tell = nodes_ != nullptr && !told_ && !outcome_;
    for (const auto& moment : {must_tell ? tell_at_ : std::nullopt, terminate_at_, kill_at_}) {
        if (moment) next = std::min(next, *moment);
    }
    if (limits_.timeout && !stopping_) next = std::min(next, limits_.started + *limits_.timeout);
    for (const Member& member : members_) {
        for (const Lines* lines : {&member.out, &member.err}) next = std::min(next, lines->due().value_or(next));
    }
    // Nothing tells that the terminal's foreground has changed.
    if (terminal_ && terminal_->open() && terminal_->fd() < 0) next = std::min(next, Clock::now() + milliseconds(300));
    const auto left = std::chrono::duration_cast<milliseconds>(next - Clock::now()).count() + 1;
    return static_cast<int>(std::clamp<std::int64_t>(left, 0, 3600 * 1000));
}

void Attempt::reap() {
    std::vector<std::size_t> ended;
    for (int status = 0;;) {
        const pid_t pid = ::waitpid(-1, &status, WNOHANG | WUNTRACED);
        if (pid <= 0) break;
        if (WIFSTOPPED(status)) {
            tell_of_stop(pid, WSTOPSIG(status));
            continue;
        }
        for (std::size_t m = 0; m < members_.size(); ++m) {
            Member& member = members_[m];
            if (member.child.pid != pid || member.child.status) continue;
            member.child.status = status;
            ::kill(-pid, SIGKILL);  // the processes that it left in its group
            guard_.forget(pid);
            ended.push_back(m);
        }
    }
    // Several may have ended since the last look.
    std::ranges::stable_sort(ended, {}, [&](std::size_t m) { return kind_of(*members_[m].child.status); });
    for (const std::size_t m : ended) {
        if (members_[m].child.failed()) note_failure(m);
    }
}

// No other program would say why nothing goes on.
void Attempt::tell_of_stop(pid_t pid, int signal) {
    if (signal != SIGTTIN && signal != SIGTTOU) return;
    const auto member = std::ranges::find_if(members_, [&](const Member& m) { return m.child.pid == pid; });
    if (member == members_.end()) return;
    write_all(
        2,
        fmt::format("tutti run: {} (pid {}) was stopped by SIG{}: it uses /dev/tty, which belongs to tutti run; "
                    "rank 0 gets on its standard input what is typed\n",
                    tasks_[static_cast<std::size_t>(member - members_.begin())].name, pid, ::sigabbrev_np(signal)),
        [] { return true; });
}

void Attempt::note_failure(std::size_t index) {
    const auto now = Clock::now();
    const auto& status = members_[index].child.status;
    // A rank that does not handle a SIGQUIT that was passed on ends by it, and the job is not started again.
    if (quit_ && !stopping_ && status && WIFSIGNALED(*status) && WTERMSIG(*status) == SIGQUIT) {
        ended_by_ = SIGQUIT;
        return stop(SIGTERM);
    }
    const bool killed = status && kind_of(*status) == Kind::killed;
    if (stopping_ || (first_failure_ && !(killed && now < tell_at_))) return;
    first_failure_ = index;
    failed_after_ = now - limits_.started;
    tell_at_ = killed ? now : now + courtesy;
    if (!terminate_at_) terminate_at_ = now + limits_.report_time;
}

void Attempt::advance() {
    const auto now = Clock::now();
    if (limits_.timeout && !stopping_ && now >= limits_.started + *limits_.timeout) {
        timed_out_ = true;
        stop(SIGTERM);
    }
    if (terminate_at_ && now >= *terminate_at_ && !stopping_) stop(SIGTERM);
    if (kill_at_ && now >= *kill_at_) {
        for (Member& member : members_) {
            if (member.child.running()) ::kill(-member.child.pid, SIGKILL);
        }
        kill_at_.reset();
        gave_up_ = timed_out_ || ended_by_ != 0;
    }
}

// ---- Ends

void Attempt::stop(int signal) {
    const bool remote = std::ranges::any_of(tasks_, [](const Task& t) { return t.input == Task::Input::lifeline; });
    if (!stopping_) kill_at_ = Clock::now() + limits_.grace + (remote ? remote_grace : milliseconds(0));
    stopping_ = true;
    stopping_signal_ = signal;
    terminate_at_.reset();
    for (Member& member : members_) member.stopped_by_us |= member.child.running();
    kill_all(signal == 0 ? SIGTERM : signal);
}

void Attempt::kill_all(int signal) {
    for (std::size_t m = 0; m < members_.size(); ++m) {
        Member& member = members_[m];
        if (!member.child.running()) continue;
        if (tasks_[m].input == Task::Input::lifeline && signal != SIGKILL) {
            member.lifeline.reset();
            continue;
        }
        ::kill(-member.child.pid, signal);
        ::kill(-member.child.pid, SIGCONT);  // a stopped process could not end
    }
}

// Processes of the job that left their group have become our children (PR_SET_CHILD_SUBREAPER). All that we have are of
// the job, see stand_in.hpp.
void Attempt::kill_orphans() {
    for (int turn = 0; turn < 100; ++turn) {
        std::ifstream list("/proc/self/task/" + std::to_string(::getpid()) + "/children");
        std::vector<pid_t> orphans{std::istream_iterator<pid_t>(list), {}};
        std::erase_if(orphans, [&](pid_t pid) {
            return pid == guard_.pid() || std::ranges::any_of(members_, [&](const Member& m) {
                       return m.child.pid == pid && m.child.running();
                   });
        });
        if (orphans.empty()) return;
        for (const pid_t pid : orphans) {
            ::kill(pid, SIGKILL);
            ::waitpid(pid, nullptr, 0);
        }
    }
}

Outcome Attempt::outcome() const {
    Outcome result;
    result.report = report();
    if (ended_by_ != 0 && !first_failure_)
        result.status = 128 + ended_by_;
    else if (outcome_)
        result = {outcome_->status, outcome_->again && ended_by_ == 0, result.report};
    else if (first_failure_)
        result = {exit_status(members_[*first_failure_].child),
                  !members_[*first_failure_].child.not_started && ended_by_ == 0, result.report};
    else if (timed_out_)
        result.status = 124;
    return result;
}

std::string Attempt::report() const {
    const bool elsewhere = outcome_ && !outcome_->good && outcome_->node != nodes_->node_rank();
    if (elsewhere && ended_by_ == 0 && !timed_out_) {
        // The user who watches the job over ssh reads it from the node itself.
        return limits_.lifeline ? "" : fmt::format("tutti run: node {} failed: {}\n", outcome_->node, outcome_->text);
    }
    const bool said_by_others = outcome_ && !outcome_->good && !first_failure_ && !timed_out_ && ended_by_ == 0;
    if (said_by_others) return fmt::format("tutti run: this node, {}: {}\n", outcome_->node, outcome_->text);
    if (first_failure_) {
        const Member& member = members_[*first_failure_];
        const bool ssh_failed = member.child.not_started || exit_status(member.child) == 255;
        if (tasks_[*first_failure_].reports_itself && !ssh_failed) return {};
        std::string text = fmt::format("tutti run: {}\n", first_failure());
        if (member.child.not_started) text += fmt::format("  the program: {}\n", tasks_.front().command.front());
        if (!member.tail.lines().empty()) text += "  its last lines:\n";
        for (const std::string& line : member.tail.lines()) text += fmt::format("    {}\n", line);
        return text + the_others();
    }
    if (timed_out_) {
        return fmt::format("tutti run: the job was stopped: it did not end in {:g} s (--timeout)\n",
                           seconds(*limits_.timeout));
    }
    if (ended_by_ != 0 && ended_by_ != SIGPIPE && !limits_.lifeline)
        return fmt::format("tutti run: stopped by SIG{}\n", ::sigabbrev_np(ended_by_));
    return {};
}

std::string Attempt::first_failure() const {
    const Child& child = members_[*first_failure_].child;
    return fmt::format("{}{}{} after {:.1f} s: {}", tasks_[*first_failure_].name,
                       child.pid > 0 ? fmt::format(" (pid {})", child.pid) : "",
                       tasks_.size() > 1 || nodes_ != nullptr ? " was the first to fail," : " failed",
                       seconds(failed_after_), cause_in_words(child));
}

std::string Attempt::the_others() const {
    std::string text;
    int more = 0;
    for (std::size_t m = 0; m < members_.size(); ++m) {
        const Member& member = members_[m];
        if (m == *first_failure_ || !member.child.status) continue;
        if (text.size() > 1000) {
            ++more;
            continue;
        }
        text += fmt::format("{}{} {}{}", text.empty() ? "  the others: " : "; ", tasks_[m].name,
                            cause_in_words(member.child), member.stopped_by_us ? " (stopped by tutti run)" : "");
    }
    if (more > 0) text += fmt::format("; and {} more", more);
    return text.empty() ? text : text + "\n";
}

}  // namespace tutti::launch
