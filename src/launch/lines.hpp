// Lines: passes on a rank's output: unchanged, or as whole lines, each with the rank's name before it.
//
// A line is buffered until its end has come, up to 1 MiB. A longer line is passed on as it comes and occupies its
// destination: other ranks that write there wait until the line ends, or until let_go().
//
// Threads: from one thread.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace tutti::launch {

/// Returns whether to keep waiting for a reader; called at least every 50 ms while it does not read.
using Patience = std::function<bool()>;
/// Writes all of `text` to a descriptor. Blocks for at most 50 ms at a time, even on a blocking descriptor. Returns the
/// system's error (EPIPE if nobody reads any more), or ECANCELED when `patience` returns false.
[[nodiscard]] std::error_code write_all(int fd, std::string_view text, const Patience& patience);
/// Writes a message of the launcher to standard error, or to standard output if that fails.
void say(
    std::string_view text, const Patience& patience = [] { return true; });
/// Whether two descriptors refer to one file.
bool is_one_file(int a, int b);

/// The last lines of one rank, from both of its streams.
class Tail {
 public:
    void add(std::string_view line);
    const std::deque<std::string>& lines() const noexcept { return lines_; }
    static constexpr std::size_t length_max = 500;  ///< longer lines are cut

 private:
    static constexpr std::size_t lines_max = 10;
    std::deque<std::string> lines_;
};

/// The unfinished line (at most one) at a terminal or in a file to which several ranks' lines go.
struct Unfinished {
    class Lines* line = nullptr;
    bool held = false;  ///< it is a long line, for whose end the others wait
    std::chrono::steady_clock::time_point held_since{};
};

class Lines {
 public:
    using Moment = std::chrono::steady_clock::time_point;
    enum class Style {
        prefixed,      ///< whole lines, each with a prefix
        prefixed_now,  ///< also the beginning of a line (a question), if nothing follows it for 50 ms
        unchanged,     ///< every byte in its order of arrival; whole lines if they arrive quickly
    };
    /// `to`: -1: nobody sees the lines; only `tail` keeps them. `shared`: one for all Lines with this destination.
    Lines(Style style, std::string prefix, int to, Tail& tail, Unfinished& shared, Patience patience)
        : style_(style),
          prefix_(std::move(prefix)),
          to_(to),
          tail_(&tail),
          shared_(&shared),
          patience_(std::move(patience)) {}

    /// Passes on every complete line; "\r" alone ends one too (progress bars), and stays "\r". Returns write_all()'s
    /// error, as the others do.
    std::error_code add(std::string_view bytes);
    /// Passes on the rest, which has no line end: a prefixed line gets one.
    std::error_code finish();
    void set_prefix(std::string prefix) { prefix_ = std::move(prefix); }
    /// Whether another rank's long line holds the destination: do not call add() yet.
    bool must_wait() const { return to_ >= 0 && shared_->held && shared_->line != this; }
    /// Whether the others wait for the end of this one's long line.
    bool holds() const { return shared_->held && shared_->line == this; }
    /// Lets the others write without waiting for the rest of this line.
    void let_go();
    /// When to call pass_beginning(), if no input comes before.
    std::optional<Moment> due() const;
    /// Passes on the beginning of an unfinished line.
    std::error_code pass_beginning();
    /// Another writer, such as the terminal's echo, has ended this one's unfinished line at the destination.
    void line_was_ended();

 private:
    std::error_code add_prefixed(std::string_view bytes);
    std::error_code add_unchanged(std::string_view bytes);
    std::error_code pass_part();
    void take(std::string_view line, char end, std::string& out);
    void keep_beginning(std::string_view bytes);
    void remember(std::string_view bytes);
    std::error_code pass(const std::string& out);
    void end_line();

    static constexpr std::size_t longest = std::size_t{1} << 20;
    Style style_;
    std::string prefix_;
    int to_;
    Tail* tail_;
    Unfinished* shared_;
    Patience patience_;
    std::string rest_;
    Moment rest_since_{};
    std::string beginning_;  // start of an unfinished line, for tail_; already passed on or, if unchanged, remembered
    bool begun_ = false;     // the next bytes continue a line at the destination
    bool let_go_ = false;    // others have waited for this line long enough
    std::string returned_;   // a line passed on with "\r" before it was known whether "\n" follows
    bool has_returned_ = false;
};

}  // namespace tutti::launch
