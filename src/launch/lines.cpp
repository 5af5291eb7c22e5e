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
        // A pipe that is ready takes this much without blocking; a launcher that blocked in write() would not see a
        // signal.
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

bool Lines::add(std::string_view bytes) {
    if (bytes.empty()) return true;
    if (rest_.empty()) rest_since_ = std::chrono::steady_clock::now();
    return style_ == Style::unchanged ? add_unchanged(bytes) : add_prefixed(bytes);
}

bool Lines::add_unchanged(std::string_view bytes) {
    remember(bytes);
    const std::size_t end = bytes.find_last_of("\r\n");
    if (end == std::string_view::npos && rest_.size() + bytes.size() <= longest) {
        rest_ += bytes;
        return true;
    }
    const std::size_t whole = end == std::string_view::npos ? bytes.size() : end + 1;
    rest_ += bytes.substr(0, whole);
    const std::string out = std::exchange(rest_, std::string(bytes.substr(whole)));
    rest_since_ = std::chrono::steady_clock::now();
    return to_ < 0 || write_all(to_, out, patience_);
}

// Lines for the tail, of bytes that are passed on unchanged.
void Lines::remember(std::string_view bytes) {
    for (;;) {
        const std::size_t end = bytes.find('\n');
        if (beginning_.size() < longest) beginning_ += bytes.substr(0, end);
        if (end == std::string_view::npos) return;
        if (beginning_.ends_with('\r')) beginning_.pop_back();
        tail_->add(beginning_);
        beginning_.clear();
        bytes.remove_prefix(end + 1);
    }
}

void Lines::take(std::string_view line, char end, std::string& out) {
    if (end == '\n') tail_->add(beginning_ + std::string(line));
    if (!begun_) out += prefix_;
    out += line;
    out += end;
    beginning_.clear();
    begun_ = false;
    if (shared_->line == this) shared_->line = nullptr;
}

// Another rank's unfinished line is ended first.
bool Lines::pass(const std::string& out) {
    if (out.empty() || to_ < 0) return true;
    Lines* const other = shared_->line;
    if (other == nullptr || other == this) return write_all(to_, out, patience_);
    other->line_was_ended();
    return write_all(to_, "\n" + out, patience_);
}

void Lines::line_was_ended() {
    begun_ = false;
    if (shared_->line == this) shared_->line = nullptr;
}

bool Lines::add_prefixed(std::string_view bytes) {
    std::string out;
    if (has_returned_) {
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
    if (start > 0) rest_since_ = std::chrono::steady_clock::now();
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
    return pass(out);
}

bool Lines::finish() {
    if (style_ == Style::unchanged) {
        if (!beginning_.empty()) tail_->add(std::exchange(beginning_, {}));
        return pass_beginning();
    }
    if (rest_.empty() && !begun_) return true;
    std::string out;
    take(std::exchange(rest_, {}), '\n', out);
    return pass(out);
}

std::optional<Lines::Moment> Lines::due() const {
    if (rest_.empty() || style_ == Style::prefixed || to_ < 0) return std::nullopt;
    return rest_since_ + std::chrono::milliseconds(50);
}

bool Lines::pass_beginning() {
    const std::string begun = std::exchange(rest_, {});
    if (begun.empty() || to_ < 0) return true;
    if (style_ == Style::unchanged) return write_all(to_, begun, patience_);
    const bool good = pass(begun_ ? begun : prefix_ + begun);
    beginning_ += begun;
    begun_ = true;
    shared_->line = this;
    return good;
}

}  // namespace tutti::launch
