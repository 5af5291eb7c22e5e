// Attempt: a set of processes from their start to the end of the last. Passes on their output, ends them together when
// one fails or the job is told to end, and says how it went. A job that is not restarted is one attempt.
//
// Threads: the main thread.
#pragma once

#include "launch/child.hpp"
#include "launch/guard.hpp"
#include "launch/lines.hpp"
#include "launch/nodes.hpp"
#include "launch/signals.hpp"
#include "launch/terminal.hpp"

#include <array>
#include <chrono>
#include <deque>
#include <optional>
#include <string>
#include <vector>

namespace tutti::launch {

/// A process to start: a rank, or over ssh the launcher of a node.
struct Task {
    enum class Input {
        nothing,
        ours,      ///< the launcher's standard input
        terminal,  ///< lines typed at the launcher's standard input, a terminal
        lifeline,  ///< a pipe whose end means: end, and whose bytes are signals. None goes to the task before SIGKILL
    };
    std::string name;    ///< "rank 2", "node worker-1"
    std::string prefix;  ///< before each line; empty: its output is passed on unchanged
    std::vector<std::string> command;
    Environment environment;
    Input input = Input::nothing;
    std::string greeting{};            ///< written into the lifeline first
    std::string out_log{}, err_log{};  ///< files; empty: none
    bool shows_out = true, shows_err = true;
    bool reports_itself = false;  ///< when it fails, all has been said unless ssh says so
};

struct Limits {
    std::chrono::steady_clock::time_point started;
    std::optional<std::chrono::milliseconds> timeout;  ///< from `started`
    std::chrono::milliseconds report_time;             ///< between a failure and SIGTERM
    std::chrono::milliseconds grace;                   ///< between SIGTERM and SIGKILL
    bool lifeline = false;                             ///< standard input is one: its end ends the attempt
};

struct Outcome {
    int status = 0;
    bool again = false;  ///< a task failed: another attempt might do better
    std::string report;  ///< for stderr; empty: nothing to say
};

class Attempt {
 public:
    /// Everything must outlive it. `nodes`: null when the job is on one node; `number`: of the attempt, from 0.
    Attempt(const std::vector<Task>& tasks, const Limits& limits, Signals& signals, Guard& guard, Nodes* nodes,
            int number);
    ~Attempt();
    Outcome run();
    /// Asks the job's reader whether to go on waiting for it.
    const Patience& patience() const noexcept { return patience_; }

 private:
    struct Member {
        Member(const Task& task, std::array<Unfinished*, 2> shared, const Patience& patience);
        Member(const Member&) = delete;
        Child child;
        Tail tail;
        Lines out, err;
        UniqueFd out_log, err_log, lifeline;
        bool stopped_by_us = false;
    };

    void start_all();
    void wait();
    void take_news();
    void take_signals();
    void end_by(int signal);
    void pass_to_ranks(int signal);
    bool wait_for_reader();
    void pass_all_on();
    void pass_on(UniqueFd& fd, Lines& lines, UniqueFd& log);
    void pass_beginnings();
    void reader_is_gone();
    void tell_of_stop(pid_t pid, int signal);
    int wait_ms() const;
    void reap();
    void note_failure(std::size_t index);
    void advance();
    void stop(int signal);
    void kill_all(int signal);
    void kill_orphans();
    bool running() const;
    bool open() const;
    void tell_nodes();
    Outcome outcome() const;
    std::string report() const;
    std::string first_failure() const;
    std::string the_others() const;

    using Moment = std::chrono::steady_clock::time_point;
    const std::vector<Task>& tasks_;
    const Limits limits_;
    Signals& signals_;
    Guard& guard_;
    Nodes* nodes_;
    const int number_;
    Lifeline lifeline_;
    std::array<Unfinished, 2> unfinished_{};  // on standard output and error, or the first for both
    std::deque<Member> members_;
    std::optional<Terminal> terminal_;
    std::optional<std::size_t> first_failure_;
    Moment::duration failed_after_{};
    std::optional<Moment> tell_at_, terminate_at_, kill_at_;
    std::optional<JobOutcome> outcome_;  // of all nodes
    bool told_ = false, stopping_ = false, timed_out_ = false, gave_up_ = false, quit_ = false;
    int stopping_signal_ = 0;
    int ended_by_ = 0;
    const Patience patience_ = [this] { return wait_for_reader(); };
};

}  // namespace tutti::launch
