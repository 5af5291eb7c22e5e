#include "launch/init_process.hpp"

#include "core/assert.hpp"
#include "launch/taken_signals.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace tutti::launch {
namespace {

pid_t the_init_process = -1;

bool has_children() {
    siginfo_t info{};
    return ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

// Also collects children that no other process waits for any more.
void look_at_children(pid_t launcher) {
    TUTTI_ASSERT(launcher > 0);
    for (;;) {
        int status = 0;
        const pid_t child = ::waitpid(-1, &status, WNOHANG | WUNTRACED);
        if (child <= 0) return;
        if (child != launcher) continue;
        if (WIFEXITED(status)) ::_exit(WEXITSTATUS(status));
        if (WIFSIGNALED(status)) ::_exit(128 + WTERMSIG(status));
        if (WIFSTOPPED(status)) ::kill(::getpid(), SIGSTOP);
    }
}

[[noreturn]] void act_as_init_for(pid_t launcher, const sigset_t& signals) {
    ::prctl(PR_SET_NAME, "tutti-stand-in");
    for (;;) {
        siginfo_t info{};
        const int signal = ::sigwaitinfo(&signals, &info);
        if (signal == SIGCHLD)
            look_at_children(launcher);
        else if (signal == SIGHUP || (signal > 0 && info.si_code != SI_KERNEL))  // a terminal's others go to both
            ::kill(launcher, signal);
    }
}

void leave_children_to_an_init_process() {
    TUTTI_ASSERT(the_init_process < 0);
    ::signal(SIGCHLD, SIG_DFL);
    const sigset_t signals = taken_signals();
    sigset_t before;
    ::sigprocmask(SIG_BLOCK, &signals, &before);
    const pid_t original = ::getpid();
    const pid_t launcher = ::fork();
    if (launcher < 0) throw std::system_error(errno, std::generic_category(), "tutti run: no process to be had");
    if (launcher > 0) act_as_init_for(launcher, signals);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != original) ::_exit(127);  // it died before the line above
    the_init_process = original;
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace

void prepare_process() {
    for (const int fd : {0, 1, 2}) {
        if (::fcntl(fd, F_GETFD) < 0) ::open("/dev/null", O_RDWR);
    }
    if (::getpid() == 1 || has_children()) leave_children_to_an_init_process();
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
}

pid_t init_process() {
    return the_init_process;
}

}  // namespace tutti::launch
