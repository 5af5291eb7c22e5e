#include "launch/lines.hpp"

#include "core/assert.hpp"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <utility>

namespace tutti::launch {
namespace {

std::error_code system_error(int error) {
    return {error, std::generic_category()};
}

}  // namespace

std::error_code write_all(int fd, std::string_view text, const Patience& patience) {
    TUTTI_ASSERT(fd >= 0 && patience != nullptr);
    while (!text.empty()) {
        // A pipe that is ready takes this much without blocking; a launcher that blocked in write() would not see a
        // signal.
        pollfd ready{fd, POLLOUT, 0};
        if (::poll(&ready, 1, 0) == 0) {
            if (!patience()) return system_error(ECANCELED);
            ::poll(&ready, 1, 50);
            continue;
        }
        const ssize_t done = ::write(fd, text.data(), std::min<std::size_t>(text.size(), PIPE_BUF));
        if (done >= 0) {
            TUTTI_ASSERT(static_cast<std::size_t>(done) <= text.size());
            text.remove_prefix(static_cast<std::size_t>(done));
        } else if (errno != EINTR && errno != EAGAIN) {
            return system_error(errno);
        }
    }
    return {};
}

void say(std::string_view text, const Patience& patience) {
    const std::error_code error = write_all(2, text, patience);
    if (error && error.value() != ECANCELED && !is_one_file(1, 2)) (void)write_all(1, text, patience);
}

bool is_one_file(int a, int b) {
    struct stat one {
    }, other{};
    return ::fstat(a, &one) == 0 && ::fstat(b, &other) == 0 && one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

void Tail::add(std::string_view line) {
    lines_.emplace_back(line.substr(0, length_max));
    if (lines_.size() > lines_max) lines_.pop_front();
    TUTTI_ASSERT(lines_.size() <= lines_max);
}

std::error_code Lines::add(std::string_view bytes) {
    TUTTI_ASSERT(!must_wait());
    if (bytes.empty()) return {};
    if (rest_.empty()) rest_since_ = std::chrono::steady_clock::now();
    return style_ == Style::unchanged ? add_unchanged(bytes) : add_prefixed(bytes);
}

std::error_code Lines::add_unchanged(std::string_view bytes) {
    remember(bytes);
    const std::size_t end = bytes.find_last_of("\r\n");
    if (end == std::string_view::npos) {
        rest_ += bytes;
        return holds() || rest_.size() > longest ? pass_part() : std::error_code();
    }
    rest_ += bytes.substr(0, end + 1);
    const std::string out = std::exchange(rest_, std::string(bytes.substr(end + 1)));
    rest_since_ = std::chrono::steady_clock::now();
    end_line();
    return to_ < 0 ? std::error_code() : write_all(to_, out, patience_);
}

// Lines for the tail, of bytes that are passed on unchanged.
void Lines::remember(std::string_view bytes) {
    for (;;) {
        const std::size_t end = bytes.find('\n');
        keep_beginning(bytes.substr(0, end));
        if (end == std::string_view::npos) return;
        if (beginning_.ends_with('\r')) beginning_.pop_back();
        tail_->add(beginning_);
        beginning_.clear();
        bytes.remove_prefix(end + 1);
    }
}

void Lines::keep_beginning(std::string_view bytes) {
    if (beginning_.size() < Tail::length_max) beginning_ += bytes.substr(0, Tail::length_max);
    TUTTI_ASSERT(beginning_.size() < 2 * Tail::length_max);
}

void Lines::take(std::string_view line, char end, std::string& out) {
    TUTTI_ASSERT(end == '\n' || end == '\r');
    if (end == '\n') {
        keep_beginning(line);
        tail_->add(beginning_);
    }
    if (!begun_) out += prefix_;
    out += line;
    out += end;
    beginning_.clear();
    end_line();
}

void Lines::end_line() {
    let_go_ = false;
    line_was_ended();
}

// Another rank's unfinished line is ended first.
std::error_code Lines::pass(const std::string& out) {
    if (out.empty() || to_ < 0) return {};
    Lines* const other = shared_->line;
    if (other == nullptr || other == this) return write_all(to_, out, patience_);
    other->line_was_ended();
    return write_all(to_, other->style_ == Style::unchanged ? out : "\n" + out, patience_);
}

void Lines::line_was_ended() {
    begun_ = false;
    if (shared_->line != this) return;
    shared_->line = nullptr;
    shared_->held = false;
}

void Lines::let_go() {
    let_go_ = true;
    if (shared_->line == this) shared_->held = false;
}

std::error_code Lines::add_prefixed(std::string_view bytes) {
    TUTTI_ASSERT(!bytes.empty() && style_ != Style::unchanged);
    std::string out;
    if (has_returned_) {
        if (bytes.front() == '\n') {
            tail_->add(returned_);
            out += '\n';
            bytes.remove_prefix(1);
        }
        has_returned_ = false;
    }
    const std::size_t searched = rest_.size();
    rest_ += bytes;
    std::size_t start = 0;
    for (;;) {
        const std::size_t end = rest_.find_first_of("\r\n", std::max(start, searched));
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
    TUTTI_ASSERT(rest_.find('\n') == std::string::npos);
    if (start > 0) rest_since_ = std::chrono::steady_clock::now();
    if (!rest_.empty() && rest_.back() == '\r') {
        // A progress bar is seen at once.
        rest_.pop_back();
        take(rest_, '\r', out);
        returned_ = std::exchange(rest_, {});
        has_returned_ = true;
    }
    const std::error_code error = pass(out);
    return !error && (holds() || rest_.size() > longest) ? pass_part() : error;
}

// Of a long line.
std::error_code Lines::pass_part() {
    const std::error_code error = pass_beginning();
    if (to_ < 0 || shared_->held || let_go_) return error;
    shared_->line = this;
    shared_->held = true;
    shared_->held_since = std::chrono::steady_clock::now();
    TUTTI_ASSERT(holds());
    return error;
}

std::error_code Lines::finish() {
    if (style_ == Style::unchanged) {
        if (!beginning_.empty()) tail_->add(std::exchange(beginning_, {}));
        const std::error_code error = pass_beginning();
        end_line();
        return error;
    }
    if (rest_.empty() && !begun_) return {};
    std::string out;
    take(std::exchange(rest_, {}), '\n', out);
    return pass(out);
}

std::optional<Lines::Moment> Lines::due() const {
    if (rest_.empty() || style_ == Style::prefixed || to_ < 0 || must_wait()) return std::nullopt;
    return rest_since_ + std::chrono::milliseconds(50);
}

std::error_code Lines::pass_beginning() {
    const std::string begun = std::exchange(rest_, {});
    if (begun.empty()) return {};
    if (style_ == Style::unchanged) return to_ < 0 ? std::error_code() : write_all(to_, begun, patience_);
    keep_beginning(begun);
    if (to_ < 0) return {};
    const std::error_code error = pass(begun_ ? begun : prefix_ + begun);
    begun_ = true;
    shared_->line = this;
    return error;
}

}  // namespace tutti::launch
