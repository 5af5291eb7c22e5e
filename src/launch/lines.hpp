// Lines: cuts what a rank prints into lines, puts its name before each and never tears one.
//
// Threads: from one thread.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <string_view>

namespace tutti::launch {

/// Whether to go on waiting for a reader; asked at least every 50 ms while it does not read.
using Patience = std::function<bool()>;
/// All of `text` to a descriptor; false when nobody reads it any more, or patience has ended. Blocks for no longer than
/// 50 ms at a time, also where the descriptor does.
bool write_all(int fd, std::string_view text, const Patience& patience);

/// What one rank said last, on both of its streams.
class Tail {
 public:
    void add(std::string_view line);
    const std::deque<std::string>& lines() const noexcept { return lines_; }

 private:
    static constexpr std::size_t lines_max = 10, length_max = 500;
    std::deque<std::string> lines_;
};

class Lines {
 public:
    /// `to`: -1: nobody sees them; they are only remembered in `tail`.
    Lines(std::string prefix, int to, Tail& tail, Patience patience)
        : prefix_(std::move(prefix)), to_(to), tail_(&tail), patience_(std::move(patience)) {}

    /// Passes on every complete line; "\r" alone ends one too (progress bars), and stays "\r". Lines longer than
    /// 64 KiB are passed on in parts. False: nobody reads any more.
    bool add(std::string_view bytes);
    /// What is left without an end of line gets one.
    bool finish();

 private:
    void take(std::string_view line, char end, std::string& out);
    static constexpr std::size_t longest = 1 << 16;
    std::string prefix_;
    int to_;
    Tail* tail_;
    Patience patience_;
    std::string rest_;
    std::string returned_;  // a line passed on with "\r" before it was known whether "\n" follows
    bool has_returned_ = false;
};

}  // namespace tutti::launch
