#include "launch/attempt.hpp"

#include "core/assert.hpp"
#include "core/unix_socket.hpp"
#include "launch/taken_signals.hpp"

#include <tutti/error.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
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

// The time for an end over ssh beyond the grace of the ranks themselves.
constexpr milliseconds remote_grace{5000};

// Ranks go on without; only the launcher knows less.
UniqueFd open_reports(const std::string& id) {
    TUTTI_ASSERT(!id.empty());
    try {
        return net::bind_unix_datagrams(rendezvous::report_address(id));
    } catch (const DistError& error) {
        say(fmt::format("tutti run: whom the ranks blame for a failure will not be known here: {}\n", error.what()));
        return {};
    }
}

}  // namespace

Attempt::Attempt(const std::vector<Task>& tasks, const Limits& limits, Signals& signals, Guard& guard, Nodes* nodes,
                 int number, const Replacements* replacements)
    : tasks_(tasks),
      limits_(limits),
      signals_(signals),
      guard_(guard),
      nodes_(nodes),
      number_(number),
      replacements_(replacements),
      restarts_(limits.restarts),
      lifeline_(limits.lifeline),
      reports_(open_reports(guard.id())),
      have_met_(tasks.front().is_newcomer) {
    TUTTI_ASSERT(!tasks_.empty() && number_ >= 0 && limits_.grace.count() >= 0);
}

Attempt::~Attempt() {
    kill_all(SIGKILL);
}

Outcome Attempt::run() {
    for (const Task& task : tasks_) {
        if (!start(task)) break;
    }
    while (open()) {
        wait();
        advance();
    }
    collect();
    kill_orphans();
    output_.pass_rest_on();
    check_output();
    return outcome();
}

// False: it could not be started, and the attempt ends.
bool Attempt::start(const Task& task) {
    output_.add(task);
    Member& member = members_.emplace_back(Member{.task = task, .output = tasks_started_++});
    TUTTI_ASSERT(tasks_started_ == output_.size());
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
    member.child = launch::start(task.command, task.environment, in);
    TUTTI_ASSERT((member.child.pid > 0) != member.child.not_started.has_value());
    if (member.child.not_started) {
        member.ended = Clock::now();
        note_failures();
        stop(0);
        return false;
    }
    output_.attach(member.child);
    guard_.watch(member.child.pid);
    return true;
}

// While a rank runs, or another node's.
bool Attempt::open() const {
    if (running() || leaves()) return running();
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
    if (reports_) polled.push_back({reports_.get(), POLLIN, 0});
    const std::size_t first_output = polled.size();
    output_.ask(polled);
    TUTTI_ASSERT(first_output >= 1 && polled.size() == first_output + 2 * output_.size());
    if (::poll(polled.data(), polled.size(), wait_ms()) < 0 && errno != EINTR) {
        throw std::system_error(errno, std::generic_category(), "tutti run: poll");
    }
    output_.take(polled, first_output);
    take_signals();
    if (terminal_ && terminal_->pass_on()) output_.line_was_ended();
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
            say(
                fmt::format("tutti run: the ranks are stopped (SIGTSTP): kill -CONT {} continues them, Ctrl-C ends "
                            "the job\n",
                            ::getpid()));
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
    TUTTI_ASSERT(ends_job(signal));
    ended_by_ = ended_by_ == 0 ? signal : ended_by_;
    if (stopping_.value_or(0) != 0) kill_at_ = Clock::now();  // asked twice
    stop(signal);
}

void Attempt::pass_to_ranks(int signal) {
    TUTTI_ASSERT(is_for_ranks(signal));
    quit_ |= signal == SIGQUIT;
    if (signal == SIGWINCH && terminal_) terminal_->resize();
    const unsigned char byte = Lifeline::byte_of(signal);
    for (Member& member : members_) {
        if (!member.child.running()) continue;
        if (member.task.input != Task::Input::lifeline)
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
    if (nodes_ == nullptr || told_ || outcome_ || leaves()) return;
    const auto tell = [&](bool again, int status, const std::string& text) {
        told_ = true;
        nodes_->failed(number_, {.again = again, .status = status, .text = text});
    };
    if (ended_by_ != 0) {
        tell(false, 128 + ended_by_, fmt::format("stopped by SIG{}", ::sigabbrev_np(ended_by_)));
    } else if (timed_out_) {
        tell(false, 124, "did not end in time (--timeout)");
    } else if (blame_) {
        TUTTI_ASSERT(tell_at_.has_value());
        const Child& child = members_[blame_->decisive()].child;
        if (Clock::now() < *tell_at_) return;
        tell(!child.not_started && restarts_.may_start_all(), exit_status(child), words());
    } else if (is_full()) {
        tell(false, 1, output_.failure()->text());
    } else if (replacements_ != nullptr) {
        if (const NodeState now = state(); state_ != now) nodes_->tell(number_, *(state_ = now));
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

// A reader that is gone ends the job as `program | head` ends; so does a place that is full.
void Attempt::check_output() {
    if (stopping_ || !output_.failure()) return;
    if (output_.failure()->is_gone()) ended_by_ = SIGPIPE;
    stop(SIGTERM);
}

bool Attempt::is_full() const {
    return output_.failure() && !output_.failure()->is_gone();
}

int Attempt::wait_ms() {
    auto next = Clock::now() + std::chrono::hours(1);
    const bool must_tell = nodes_ != nullptr && !told_ && !outcome_;
    for (const auto& moment : {must_tell ? tell_at_ : std::nullopt, terminate_at_, kill_at_}) {
        if (moment) next = std::min(next, *moment);
    }
    if (limits_.timeout && !stopping_) next = std::min(next, limits_.started + *limits_.timeout);
    next = std::min(next, output_.due().value_or(next));
    // Nothing tells that the terminal's foreground has changed.
    if (terminal_ && terminal_->open() && terminal_->fd() < 0) next = std::min(next, Clock::now() + milliseconds(300));
    const auto left = std::chrono::duration_cast<milliseconds>(next - Clock::now()).count() + 1;
    return static_cast<int>(std::clamp<std::int64_t>(left, 0, 3600 * 1000));
}

// ---- How processes end

// A process that is kept would be the answer again and again: then it asks about each one.
void Attempt::reap() {
    constexpr int changes = WEXITED | WSTOPPED | WNOHANG | WNOWAIT;
    const auto now = Clock::now();
    bool has_ended = false, keeps = false;
    for (siginfo_t info{}; !keeps && ::waitid(P_ALL, 0, &info, changes) == 0 && info.si_pid != 0; info = {}) {
        keeps = std::ranges::any_of(members_, [&](const Member& m) { return m.child.pid == info.si_pid && m.is_kept; });
        if (!keeps) has_ended |= note_change(info, now);
    }
    for (std::size_t m = 0; keeps && m < members_.size(); ++m) {
        siginfo_t info{};
        const auto pid = static_cast<id_t>(members_[m].child.pid);
        if (members_[m].child.running() && ::waitid(P_PID, pid, &info, changes) == 0 && info.si_pid != 0)
            has_ended |= note_change(info, now);
    }
    take_reports();  // also those of processes that have just ended
    if (has_ended) take_deaths();
}

// True: a rank has ended.
bool Attempt::note_change(const siginfo_t& info, Moment now) {
    const pid_t pid = info.si_pid;
    TUTTI_ASSERT(pid > 0);
    if (info.si_code == CLD_STOPPED || info.si_code == CLD_TRAPPED) {
        ::waitpid(pid, nullptr, WUNTRACED | WNOHANG);
        tell_of_stop(pid, info.si_status);
        return false;
    }
    const auto found =
        std::ranges::find_if(members_, [&](const Member& m) { return m.child.pid == pid && m.child.running(); });
    if (found == members_.end()) {
        ::waitpid(pid, nullptr, 0);
        return false;
    }
    found->child.status = status_of(info);
    found->ended = now;
    ::kill(-pid, SIGKILL);  // the processes that it left in its group
    // Of one that the launcher has collected no other rank could learn how it ended.
    found->is_kept = found->child.failed() && !stopping_ && running();
    if (!found->is_kept) collect(*found);
    // A rank that does not handle a SIGQUIT that was passed on ends by it, and the job is not started again.
    if (quit_ && !stopping_ && WIFSIGNALED(*found->child.status) && WTERMSIG(*found->child.status) == SIGQUIT) {
        found->stopped_by_us = true;
        ended_by_ = SIGQUIT;
        stop(SIGTERM);
    }
    return true;
}

void Attempt::collect(Member& member) {
    TUTTI_ASSERT(member.child.pid > 0 && member.child.status);
    ::waitpid(member.child.pid, nullptr, 0);
    guard_.forget(member.child.pid);
    member.is_kept = false;
}

void Attempt::collect() {
    for (Member& member : members_) {
        if (member.is_kept) collect(member);
    }
}

// No other program would say why nothing goes on.
void Attempt::tell_of_stop(pid_t pid, int signal) {
    if (signal != SIGTTIN && signal != SIGTTOU) return;
    const auto member = std::ranges::find_if(members_, [&](const Member& m) { return m.child.pid == pid; });
    if (member == members_.end()) return;
    say(
        fmt::format("tutti run: {} (pid {}) was stopped by SIG{}: it uses /dev/tty, which belongs to tutti run; "
                    "rank 0 gets on its standard input what is typed\n",
                    member->task.name, pid, ::sigabbrev_np(signal)));
}

void Attempt::take_reports() {
    bool is_new = false;
    while (const auto bytes = reports_ ? net::take_unix_datagram(reports_.get()) : std::nullopt) {
        auto report = rendezvous::decode_failure_report(*bytes);
        const auto member = std::ranges::find_if(
            members_, [&](const Member& m) { return report && report->from >= 0 && m.task.number == report->from; });
        if (member == members_.end() || stopping_) continue;
        if (report->code == 0) member->said.reset();
        if (report->code == 0 && report->size > 0 && replacements_ != nullptr && !blame_) {
            note_rank(*member, report->rank, report->size);
            continue;
        }
        if (report->code == 0 || member->said) continue;
        member->said = std::move(*report);
        member->said_at = Clock::now();
        is_new = true;
    }
    if (is_new && blame_) note_failures();
}

void Attempt::note_failures() {
    blame_ = find_culprit(suspects(is_lost_));
    if (!blame_) return;
    TUTTI_ASSERT(blame_->first < members_.size() && blame_->decisive() < members_.size());
    const Member& first = members_[blame_->first];
    const bool is_sure = first.child.not_started || was_killed(first.child);
    // The launcher of the node with the rank that is blamed may know more.
    const bool is_elsewhere = blame_->way == Blame::Way::accused && !blame_->culprit;
    tell_at_ = first.ended + (is_elsewhere ? 5 * courtesy : is_sure ? milliseconds(0) : courtesy);
    if (!terminate_at_ && !stopping_) terminate_at_ = first.ended + limits_.report_time;
}

std::vector<Suspect> Attempt::suspects(bool with_replaced) const {
    std::vector<Suspect> all;
    for (const Member& member : members_) {
        all.push_back({member.task.name, member.task.rank, &member.child, member.ended,
                       member.stopped_by_us || (member.is_replaced && !with_replaced), &member.said, member.said_at});
    }
    TUTTI_ASSERT(all.size() == members_.size());
    return all;
}

void Attempt::advance() {
    const auto now = Clock::now();
    check_output();
    if (outcome_ && outcome_->good && !works() && running() && !stopping_) end_newcomers();
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
        gave_up_ = timed_out_ || ended_by_ != 0 || is_full();
    }
}

// ---- Ends

void Attempt::stop(int signal) {
    TUTTI_ASSERT(signal >= 0);
    const bool remote = std::ranges::any_of(tasks_, [](const Task& t) { return t.input == Task::Input::lifeline; });
    if (!stopping_) kill_at_ = Clock::now() + limits_.grace + (remote ? remote_grace : milliseconds(0));
    stopping_ = signal;
    terminate_at_.reset();
    collect();
    for (Member& member : members_) member.stopped_by_us |= member.child.running();
    kill_all(signal == 0 ? SIGTERM : signal);
}

void Attempt::kill_all(int signal) {
    for (Member& member : members_) {
        if (!member.child.running()) continue;
        if (member.task.input == Task::Input::lifeline && signal != SIGKILL) {
            member.lifeline.reset();
            continue;
        }
        ::kill(-member.child.pid, signal);
        ::kill(-member.child.pid, SIGCONT);  // a stopped process could not end
    }
}

// Processes of the job that left their group have become our children (PR_SET_CHILD_SUBREAPER). All that we have are of
// the job, see init_process.hpp.
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

}  // namespace tutti::launch
