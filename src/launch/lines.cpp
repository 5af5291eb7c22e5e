#include "launch/lines.hpp"

#include <poll.h>
#include <unistd.h>

#include <cerrno>

namespace tutti::launch {

bool write_all(int fd, std::string_view text) {
    while (!text.empty()) {
        const ssize_t done = ::write(fd, text.data(), text.size());
        if (done >= 0) {
            text.remove_prefix(static_cast<std::size_t>(done));
        } else if (errno == EAGAIN) {
            pollfd ready{fd, POLLOUT, 0};
            ::poll(&ready, 1, 50);
        } else if (errno != EINTR) {
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
    rest_ += bytes;
    std::string out;
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
        take(std::string_view(rest_).substr(0, rest_.size() - 1), '\r', out);
        rest_.clear();
    }
    return write_all(to_, out);
}

bool Lines::finish() {
    if (rest_.empty()) return true;
    std::string out;
    take(rest_, '\n', out);
    rest_.clear();
    return write_all(to_, out);
}

}  // namespace tutti::launch
