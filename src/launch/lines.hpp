// Lines: passes on a rank's output: cut into lines, its name before each and none of them torn, or unchanged.
//
// Threads: from one thread.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace tutti::launch {

/// Whether to go on waiting for a reader; asked at least every 50 ms while it does not read.
using Patience = std::function<bool()>;
/// Writes all of `text` to a descriptor; false when nobody reads it any more, or patience has ended. Blocks for no
/// longer than 50 ms at a time, also where the descriptor does.
bool write_all(int fd, std::string_view text, const Patience& patience);

/// The last lines of one rank, from both of its streams.
class Tail {
 public:
    void add(std::string_view line);
    const std::deque<std::string>& lines() const noexcept { return lines_; }

 private:
    static constexpr std::size_t lines_max = 10, length_max = 500;
    std::deque<std::string> lines_;
};

/// The unfinished line on one terminal or in one file that several ranks' lines go to: at most one.
struct Unfinished {
    class Lines* line = nullptr;
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

    /// Passes on every complete line; "\r" alone ends one too (progress bars), and stays "\r". Lines longer than
    /// 64 KiB are passed on in parts. False: nobody reads any more.
    bool add(std::string_view bytes);
    /// Passes on the rest that has no end of line: a prefixed line gets one.
    bool finish();
    /// When pass_beginning() is to be called, if nothing comes before.
    std::optional<Moment> due() const;
    /// The beginning of a line, as it is. False: nobody reads any more.
    bool pass_beginning();
    /// Another writer, such as the terminal's echo, has ended the line that stands there unfinished.
    void line_was_ended();

 private:
    bool add_prefixed(std::string_view bytes);
    bool add_unchanged(std::string_view bytes);
    void take(std::string_view line, char end, std::string& out);
    void remember(std::string_view bytes);
    bool pass(const std::string& out);

    static constexpr std::size_t longest = 1 << 16;
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
    std::string returned_;   // a line passed on with "\r" before it was known whether "\n" follows
    bool has_returned_ = false;
};

}  // namespace tutti::launch
