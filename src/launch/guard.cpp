#include "launch/guard.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <set>
#include <system_error>

namespace tutti::launch {
namespace {

// Messages: a process group; minus one to forget it; 0: all is done.
[[noreturn]] void guard(int pipe) {
    ::setsid();
    ::prctl(PR_SET_NAME, "tutti-guard");
    sigset_t all;
    ::sigfillset(&all);
    ::sigprocmask(SIG_SETMASK, &all, nullptr);
    std::set<pid_t> groups;
    for (;;) {
        pid_t message = 0;
        const ssize_t got = ::read(pipe, &message, sizeof message);
        if (got < 0 && errno == EINTR) continue;
        if (got == sizeof message) {
            if (message == 0) ::_exit(0);
            if (message > 0)
                groups.insert(message);
            else
                groups.erase(-message);
            continue;
        }
        for (const pid_t group : groups) ::kill(-group, SIGKILL);
        ::_exit(0);
    }
}

}  // namespace

Guard::Guard() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "tutti run: no pipe");
    pipe_.reset(ends[1]);
    pid_ = ::fork();
    if (pid_ < 0) {
        ::close(ends[0]);
        throw std::system_error(errno, std::generic_category(), "tutti run: no process to be had");
    }
    if (pid_ == 0) {
        // Nothing of the launcher's stays open here: a reader of its output must see its end.
        const int pipe = ::dup2(ends[0], 0);
        ::close_range(1, ~0U, 0);
        guard(pipe);
    }
    ::close(ends[0]);
}

Guard::~Guard() {
    tell(0);
    pipe_.reset();
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
}

void Guard::watch(pid_t process_group) {
    tell(process_group);
}

void Guard::forget(pid_t process_group) {
    tell(-process_group);
}

void Guard::tell(pid_t message) {
    // Four bytes into a pipe that is nearly empty: all or nothing, at once. A guard that is gone guards nothing.
    if (::write(pipe_.get(), &message, sizeof message) < 0) return;
}

}  // namespace tutti::launch
