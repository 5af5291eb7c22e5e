// Lines: passes on a rank's output: cut into lines, its name before each and none of them torn, or unchanged.
//
// A line is kept until its end has come, up to 1 MiB. A longer one is passed on as it comes, and the place where it
// goes is held for it: others that write there wait until it ends, or until the place is let go.
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

/// Whether to go on waiting for a reader; asked at least every 50 ms while it does not read.
using Patience = std::function<bool()>;
/// Writes all of `text` to a descriptor. Blocks for no longer than 50 ms at a time, also where the descriptor does.
/// Returns the system's error, EPIPE where nobody reads any more; ECANCELED when patience has ended.
[[nodiscard]] std::error_code write_all(int fd, std::string_view text, const Patience& patience);
/// The launcher's own words: to standard error; to standard output where that takes none.
void say(
    std::string_view text, const Patience& patience = [] { return true; });
/// Whether two descriptors are of one file.
bool is_one_file(int a, int b);

/// The last lines of one rank, from both of its streams.
class Tail {
 public:
    void add(std::string_view line);
    const std::deque<std::string>& lines() const noexcept { return lines_; }
    static constexpr std::size_t length_max = 500;  ///< the rest of a line is left out

 private:
    static constexpr std::size_t lines_max = 10;
    std::deque<std::string> lines_;
};

/// The unfinished line on one terminal or in one file that several ranks' lines go to: at most one.
struct Unfinished {
    class Lines* line = nullptr;
    bool held = false;  ///< it is a long one, and the others are to wait
    std::chrono::steady_clock::time_point held_since{};
};

class Lines {
 public:
    using Moment = std::chrono::steady_clock::time_point;
    enum class Style {
        prefixed,      ///< whole lines, each with a prefix
        prefixed_now,  ///< also the beginning of a line (a question), when nothing follows it for a moment
        unchanged,     ///< every byte as it came, in the order in which it came; whole lines where they come quickly
    };
    /// `to`: -1: nobody sees them; they are only remembered in `tail`. `shared`: of all that go to the same place.
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
    /// Passes on the rest that has no end of line: a prefixed line gets one.
    std::error_code finish();
    /// Whether another's long line stands where these lines go: add() is not to be called yet.
    bool must_wait() const { return to_ >= 0 && shared_->held && shared_->line != this; }
    /// Its line is the one for which others wait.
    bool holds() const { return shared_->held && shared_->line == this; }
    /// The others need not wait for the rest of this line any more.
    void let_go();
    /// When pass_beginning() is to be called, if nothing comes before.
    std::optional<Moment> due() const;
    /// The beginning of a line, as it is.
    std::error_code pass_beginning();
    /// Another writer, such as the terminal's echo, has ended the line that stands there unfinished.
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
    std::string beginning_;  // of the line whose rest is awaited: it has been passed on, or, unchanged, remembered
    bool begun_ = false;     // the next bytes continue a line that stands there
    bool let_go_ = false;    // others have waited for this line long enough
    std::string returned_;   // a line passed on with "\r" before it was known whether "\n" follows
    bool has_returned_ = false;
};

}  // namespace tutti::launch
