// Output: passes on what the processes of an attempt write to standard output and error, and into their files.
//
// Threads: from one thread.
#pragma once

#include "core/assert.hpp"
#include "core/unique_fd.hpp"
#include "launch/lines.hpp"
#include "launch/task.hpp"

#include <poll.h>

#include <array>
#include <deque>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

namespace tutti::launch {

class Output {
 public:
    using Moment = std::chrono::steady_clock::time_point;
    explicit Output(Patience patience);

    /// Adds a process, and makes its log files. Throws as make_log().
    void add(const Task& task);
    /// Takes over the pipes of `child`, the process that was added last and has been started.
    void attach(Child& child);
    /// The process that was added as number `process` has another name from now on; its style stays.
    void rename(std::size_t process, const std::string& name, const std::string& prefix);
    /// How many have been added.
    std::size_t size() const noexcept { return members_.size(); }
    /// Appends the descriptors of the pipes to `polled`. After poll(2), call take(polled, index of the first of them).
    void ask(std::vector<pollfd>& polled);
    void take(const std::vector<pollfd>& polled, std::size_t first);
    /// When to call take(), if no input comes before.
    std::optional<Moment> due();
    /// All processes have ended: passes on what the pipes hold. Processes outside the job may hold the other ends.
    void pass_rest_on();
    /// Call it when another writer, such as the terminal's echo, has ended the unfinished lines.
    void line_was_ended();

    /// The last lines of the process that was added as number `process`.
    const std::deque<std::string>& tail(std::size_t process) const {
        TUTTI_ASSERT(process < members_.size());
        return members_[process].tail.lines();
    }

    /// The first output that accepted no more: it has no reader any more, or is full.
    struct Failure {
        std::error_code error;
        int fd = 1;  ///< 1 or 2
        bool is_gone() const { return error == std::errc::broken_pipe; }
        /// "standard output cannot be written: No space left on device".
        std::string text() const;
    };
    const std::optional<Failure>& failure() const noexcept { return failure_; }

 private:
    struct Stream {
        int fd;  // 1 or 2
        Lines lines;
        std::string name, log_path;
        UniqueFd log, pipe{};
    };
    struct Member {
        Member(const Task& task, std::array<Unfinished, 2>& places, const Patience& patience);
        Member(const Member&) = delete;
        Tail tail;
        std::array<Stream, 2> streams;
    };

    void pass_on(Stream& stream);
    void write_log(Stream& stream, std::string_view text);
    void pass_beginnings();
    void let_long_line_go();
    void note(const Stream& stream, const std::error_code& error);
    std::vector<Stream*> streams();

    const Patience patience_;
    std::array<Unfinished, 2> unfinished_{};  // of standard output and error; the first of both if they are one file
    std::deque<Member> members_;
    std::optional<Failure> failure_;
};

}  // namespace tutti::launch
