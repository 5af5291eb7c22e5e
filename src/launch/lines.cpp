#include "launch/lines.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <utility>

namespace tutti::launch {

bool write_all(int fd, std::string_view text, const Patience& patience) {
    while (!text.empty()) {
        // A pipe that is ready takes this much without blocking; who blocked in write() would not see a signal.
        pollfd ready{fd, POLLOUT, 0};
        if (::poll(&ready, 1, 0) == 0) {
            if (!patience()) return false;
            ::poll(&ready, 1, 50);
            continue;
        }
        const ssize_t done = ::write(fd, text.data(), std::min<std::size_t>(text.size(), PIPE_BUF));
        if (done >= 0) {
            text.remove_prefix(static_cast<std::size_t>(done));
        } else if (errno != EINTR && errno != EAGAIN) {
            return false;
        }
    }
    return true;
}

void Tail::add(std::string_view line) {
    lines_.emplace_back(line.substr(0, length_max));
    if (lines_.size() > lines_max) lines_.pop_front();
}

void Lines::take(std::string_view line, char end, std::string& out) {
    if (end == '\n') tail_->add(line);
    out += prefix_;
    out += line;
    out += end;
}

bool Lines::add(std::string_view bytes) {
    std::string out;
    if (has_returned_ && !bytes.empty()) {
        if (bytes.front() == '\n') {
            tail_->add(returned_);
            out += '\n';
            bytes.remove_prefix(1);
        }
        has_returned_ = false;
    }
    rest_ += bytes;
    std::size_t start = 0;
    for (;;) {
        const std::size_t end = rest_.find_first_of("\r\n", start);
        if (end == std::string::npos) break;
        if (rest_[end] == '\r') {
            if (end + 1 == rest_.size()) break;  // the next byte tells whether it is "\r\n"
            if (rest_[end + 1] == '\n') {
                take(std::string_view(rest_).substr(start, end - start), '\n', out);
                start = end + 2;
                continue;
            }
        }
        take(std::string_view(rest_).substr(start, end - start), rest_[end], out);
        start = end + 1;
    }
    rest_.erase(0, start);
    if (rest_.size() > longest) {
        take(rest_, '\n', out);
        rest_.clear();
    } else if (!rest_.empty() && rest_.back() == '\r') {
        // A progress bar is seen at once.
        rest_.pop_back();
        take(rest_, '\r', out);
        returned_ = std::exchange(rest_, {});
        has_returned_ = true;
    }
    return to_ < 0 || write_all(to_, out, patience_);
}

bool Lines::finish() {
    if (rest_.empty()) return true;
    std::string out;
    take(rest_, '\n', out);
    rest_.clear();
    return to_ < 0 || write_all(to_, out, patience_);
}

}  // namespace tutti::launch
