// Lines: cuts what a rank prints into lines, puts its name before each and never tears one.
//
// Threads: from one thread.
#pragma once

#include <deque>
#include <string>
#include <string_view>

namespace tutti::launch {

/// All of `text` to a descriptor; false when nobody reads it any more.
bool write_all(int fd, std::string_view text);

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
    Lines(std::string prefix, int to, Tail& tail) : prefix_(std::move(prefix)), to_(to), tail_(&tail) {}

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
    std::string rest_;
};

}  // namespace tutti::launch
