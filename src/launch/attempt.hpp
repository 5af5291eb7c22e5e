// Attempt: runs a set of processes from their start to the end of the last one. It passes on their output, ends them
// all when one fails or the job is told to end, and reports the outcome. A job without restarts is one attempt. Where
// ranks that die are replaced (Replacements), it goes on without them and starts newcomers.
//
// Threads: the main thread.
#pragma once

#include "launch/blame.hpp"
#include "launch/child.hpp"
#include "launch/guard.hpp"
#include "launch/memory_kills.hpp"
#include "launch/nodes.hpp"
#include "launch/output.hpp"
#include "launch/restarts.hpp"
#include "launch/signals.hpp"
#include "launch/task.hpp"
#include "launch/terminal.hpp"

#include <signal.h>

#include <chrono>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tutti::launch {

struct Limits {
    std::chrono::steady_clock::time_point started;
    std::optional<std::chrono::milliseconds> timeout;  ///< from `started`
    std::chrono::milliseconds report_time;             ///< between a failure and SIGTERM
    std::chrono::milliseconds grace;                   ///< between SIGTERM and SIGKILL
    bool lifeline = false;                             ///< end of standard input ends the attempt (Lifeline)
    int restarts = 0;                                  ///< that are left
};

/// How ranks that die are replaced.
struct Replacements {
    std::function<Task(int slot, int number)> newcomer;  ///< the task of another one
    std::function<std::string(int rank)> prefix;         ///< of a rank's lines
};

struct Outcome {
    int status = 0;
    bool again = false;  ///< a task failed: another attempt may succeed
    std::string report;  ///< for stderr; empty: nothing to say
    int repairs = 0;     ///< restarts that were taken for processes that others have replaced
};

class Attempt {
 public:
    /// All arguments must outlive it. `nodes`: null for a job on one node; `number`: the attempt's, from 0;
    /// `replacements`: null: the attempt ends when one of its processes fails.
    Attempt(const std::vector<Task>& tasks, const Limits& limits, Signals& signals, Guard& guard, Nodes* nodes,
            int number, const Replacements* replacements = nullptr);
    ~Attempt();
    Outcome run();
    /// Whether to keep waiting for a reader of the job's output; called while nobody reads it.
    const Patience& patience() const noexcept { return patience_; }

 private:
    using Moment = std::chrono::steady_clock::time_point;
    struct Member {
        Task task;
        std::size_t output;  // its number there
        Child child{};
        UniqueFd lifeline{};
        Moment ended{}, said_at{};
        std::optional<rendezvous::FailureReport> said{};
        bool stopped_by_us = false;
        bool is_kept = false;      // it has ended, but is not reaped: other ranks may look how
        bool is_replaced = false;  // it has failed, and the attempt goes on
    };

    bool start(const Task& task);
    void wait();
    void take_news();
    void take_reports();
    void take_signals();
    void end_by(int signal);
    void pass_to_ranks(int signal);
    bool wait_for_reader();
    void tell_of_stop(pid_t pid, int signal);
    int wait_ms();
    void reap();
    bool note_change(const siginfo_t& info, Moment now);
    void collect(Member& member);
    void collect();
    void take_deaths();
    bool replace(std::size_t index);
    void note_rank(Member& member, int rank, int size);
    template <class Which>
    void drop_replaced(Which which);
    bool are_lost() const;
    void end_newcomers();
    std::vector<const Member*> waiting() const;
    void note_failures();
    void check_output();
    bool is_full() const;
    void advance();
    void stop(int signal);
    void kill_all(int signal);
    void kill_orphans();
    bool running() const;
    bool works() const;
    bool open() const;
    bool leaves() const;
    void tell_nodes();
    NodeState state() const;
    std::vector<Suspect> suspects(bool with_replaced) const;
    std::string words() const;
    Outcome outcome() const;
    std::string report() const;
    std::string report_failure() const;

    const std::vector<Task>& tasks_;
    const Limits limits_;
    Signals& signals_;
    Guard& guard_;
    Nodes* nodes_;
    const int number_;
    const Replacements* const replacements_;
    Restarts restarts_;
    Lifeline lifeline_;
    const UniqueFd reports_;  // the socket for FailureReports
    const MemoryKills memory_kills_;
    std::deque<Member> members_;
    std::size_t tasks_started_ = 0;
    bool have_met_ = false;           // the job's ranks, so that they could take newcomers in
    std::optional<NodeState> state_;  // as told
    bool is_lost_ = false;            // no rank is left that could take newcomers in
    std::optional<Terminal> terminal_;
    std::optional<Blame> blame_;
    std::optional<Moment> tell_at_, terminate_at_, kill_at_;
    std::optional<JobOutcome> outcome_;  // of all nodes
    bool told_ = false, timed_out_ = false, gave_up_ = false, quit_ = false;
    std::optional<int> stopping_;  // set once it ends the ranks: the signal asked for; 0: nobody asked
    int ended_by_ = 0;
    const Patience patience_ = [this] { return wait_for_reader(); };
    Output output_{patience_};
};

}  // namespace tutti::launch
