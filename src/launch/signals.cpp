#include "launch/signals.hpp"

#include "core/assert.hpp"
#include "launch/init_process.hpp"
#include "launch/taken_signals.hpp"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace tutti::launch {

bool stop_this_process() {
    sigset_t stop;
    ::sigemptyset(&stop);
    ::sigaddset(&stop, SIGTSTP);
    ::kill(::getpid(), SIGTSTP);
    ::sigprocmask(SIG_UNBLOCK, &stop, nullptr);  // here it stops
    ::sigprocmask(SIG_BLOCK, &stop, nullptr);
    sigset_t waiting;
    ::sigpending(&waiting);
    return ::sigismember(&waiting, SIGCONT) == 1;
}

Signals::Signals() {
    ::signal(SIGCHLD, SIG_DFL);  // ignored, it would take children's statuses along
    const sigset_t set = taken_signals();
    ::sigprocmask(SIG_BLOCK, &set, &before_);
    fd_.reset(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!fd_) throw std::system_error(errno, std::generic_category(), "tutti run: no descriptor for signals");
    pipe_before_ = ::signal(SIGPIPE, SIG_IGN);
    size_before_ = ::signal(SIGXFSZ, SIG_IGN);
}

Signals::~Signals() {
    ::signal(SIGPIPE, pipe_before_);
    ::signal(SIGXFSZ, size_before_);
    ::sigprocmask(SIG_SETMASK, &before_, nullptr);
}

int Signals::next() {
    signalfd_siginfo info;
    while (::read(fd_.get(), &info, sizeof info) == sizeof info) {
        const int signal = static_cast<int>(info.ssi_signo);
        if (!came_twice(signal, static_cast<pid_t>(info.ssi_pid))) return signal;
    }
    return 0;
}

// A signal to the whole process group comes here, and once more by way of the stand-in.
bool Signals::came_twice(int signal, pid_t sender) {
    if (init_process() < 0 || signal == SIGCHLD) return false;
    const Last now{std::chrono::steady_clock::now(), sender == init_process()};
    Last& last = last_[static_cast<std::size_t>(signal)];
    TUTTI_ASSERT(signal >= 1 && static_cast<std::size_t>(signal) < last_.size());
    const bool twice = now.relayed != last.relayed && now.at - last.at < std::chrono::milliseconds(200);
    last = now;
    return twice;
}

int Lifeline::next() {
    pollfd input{0, POLLIN, 0};
    while (open_ && ::poll(&input, 1, 0) == 1) {
        unsigned char byte = 0;
        const ssize_t count = ::read(0, &byte, 1);
        if (count < 0 && errno == EINTR) continue;
        const int signal = byte - byte_of(0);
        if (count == 1 && is_for_ranks(signal)) return signal;
        if (count == 1) continue;
        open_ = false;
        return SIGHUP;
    }
    return 0;
}

}  // namespace tutti::launch
