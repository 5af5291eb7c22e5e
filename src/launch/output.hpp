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

    /// One more process, and its empty files. Throws as make_log().
    void add(const Task& task);
    /// It has started: takes its pipes.
    void attach(Child& child);
    /// Appends the descriptors to wait for. take() gets the list after poll(2), and the number of the first of them.
    void ask(std::vector<pollfd>& polled);
    void take(const std::vector<pollfd>& polled, std::size_t first);
    /// When take() is to be called, if nothing comes before.
    std::optional<Moment> due();
    /// All processes have ended: all that is in the pipes, whose other ends may be held by somebody outside of the job.
    void pass_rest_on();
    /// Another writer, such as the terminal's echo, has ended the line that stands there unfinished.
    void line_was_ended();

    /// The last lines of the process that was added as number `process`.
    const std::deque<std::string>& tail(std::size_t process) const {
        TUTTI_ASSERT(process < members_.size());
        return members_[process].tail.lines();
    }

    /// The first output that took no more: nobody reads it, or it is full.
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
    std::array<Unfinished, 2> unfinished_{};  // on standard output and error, or the first for both
    std::deque<Member> members_;
    std::optional<Failure> failure_;
};

}  // namespace tutti::launch
