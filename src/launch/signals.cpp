#include "launch/signals.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace tutti::launch {

Signals::Signals() {
    sigset_t set;
    ::sigemptyset(&set);
    // One that whoever started us has us ignore stays ignored (nohup, `&` in a script): blocked, it would arrive.
    // SIGCHLD must not be: children's statuses would be lost.
    ::signal(SIGCHLD, SIG_DFL);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) {
        struct sigaction action {};
        ::sigaction(signal, nullptr, &action);
        if (action.sa_handler != SIG_IGN) ::sigaddset(&set, signal);
    }
    ::sigprocmask(SIG_BLOCK, &set, &before_);
    fd_.reset(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!fd_) throw std::system_error(errno, std::generic_category(), "tutti run: no descriptor for signals");
    pipe_before_ = ::signal(SIGPIPE, SIG_IGN);
}

Signals::~Signals() {
    ::signal(SIGPIPE, pipe_before_);
    ::sigprocmask(SIG_SETMASK, &before_, nullptr);
}

void prepare_process() {
    for (const int fd : {0, 1, 2}) {
        if (::fcntl(fd, F_GETFD) < 0) ::open("/dev/null", O_RDWR);
    }
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
}

int Signals::next() {
    signalfd_siginfo info;
    return ::read(fd_.get(), &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
}

}  // namespace tutti::launch
