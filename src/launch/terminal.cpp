#include "launch/terminal.hpp"

#include "core/assert.hpp"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>

namespace tutti::launch {
namespace {

constexpr char end_of_file = '\4';

// The launcher's terminal has done the echo, the editing and the signals already: this one cuts lines only.
void only_cut_lines(int fd) {
    TUTTI_ASSERT(fd >= 0);
    termios settings{};
    if (::tcgetattr(fd, &settings) != 0) return;
    settings.c_lflag = ICANON;
    settings.c_iflag = 0;
    std::ranges::fill(settings.c_cc, static_cast<cc_t>(_POSIX_VDISABLE));
    settings.c_cc[VEOF] = end_of_file;
    ::tcsetattr(fd, TCSANOW, &settings);
}

bool in_foreground() {
    return ::tcgetpgrp(0) == ::getpgrp();
}

}  // namespace

Terminal::Terminal() {
    UniqueFd pair(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
    std::array<char, 128> name{};
    if (pair && ::grantpt(pair.get()) == 0 && ::unlockpt(pair.get()) == 0 &&
        ::ptsname_r(pair.get(), name.data(), name.size()) == 0) {
        side_.reset(::open(name.data(), O_RDWR | O_NOCTTY | O_CLOEXEC));
    }
    if (side_) {
        main_ = std::move(pair);
        only_cut_lines(side_.get());
        resize();
    } else {
        std::array<int, 2> ends{};
        if (::pipe2(ends.data(), O_CLOEXEC) != 0)
            throw std::system_error(errno, std::generic_category(), "tutti run: no pipe for a process");
        side_.reset(ends[0]);
        main_.reset(ends[1]);
        is_terminal_ = false;
    }
    ::fcntl(main_.get(), F_SETFL, O_NONBLOCK);
    TUTTI_ASSERT(main_ && side_);
}

int Terminal::fd() const {
    if (!main_) return -1;
    if (!waiting_.empty()) return main_.get();
    return in_foreground() ? 0 : -1;
}

short Terminal::events() const noexcept {
    return waiting_.empty() ? POLLIN : POLLOUT;
}

bool Terminal::pass_on() {
    if (!main_) return false;
    const bool ended_line = waiting_.empty() && read_line();
    while (main_ && !waiting_.empty()) {
        const ssize_t done = ::write(main_.get(), waiting_.data(), waiting_.size());
        if (done > 0)
            waiting_.erase(0, static_cast<std::size_t>(done));
        else if (errno == EAGAIN)
            break;
        else if (errno != EINTR)
            main_.reset();
    }
    return ended_line;
}

// A line, or a part of one that was ended by ^D; nothing but ^D is the end of the input, for the rank too.
bool Terminal::read_line() {
    pollfd input{0, POLLIN, 0};
    if (!in_foreground() || ::poll(&input, 1, 0) != 1) return false;
    std::array<char, 4096> line;
    const ssize_t count = ::read(0, line.data(), line.size());
    if (count < 0) {
        if (errno != EINTR && errno != EAGAIN) main_.reset();
        return false;
    }
    waiting_.assign(line.data(), static_cast<std::size_t>(count));
    const bool whole = waiting_.ends_with('\n');
    if (!whole && is_terminal_) waiting_ += end_of_file;
    if (count == 0 && !is_terminal_) main_.reset();
    return whole;
}

void Terminal::resize() {
    winsize size{};
    if (is_terminal_ && main_ && ::ioctl(0, TIOCGWINSZ, &size) == 0) ::ioctl(main_.get(), TIOCSWINSZ, &size);
}

}  // namespace tutti::launch
