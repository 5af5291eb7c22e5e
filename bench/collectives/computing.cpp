#include "bench/collectives/computing.hpp"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <system_error>

namespace tutti::bench {
namespace {

[[noreturn]] void compute(pid_t parent) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(0);
    for (volatile unsigned steps = 0;;) steps = steps + 1;
}

}  // namespace

Computing::Computing(int processes) {
    const pid_t parent = ::getpid();
    for (int i = 0; i < processes; ++i) {
        const pid_t child = ::fork();
        if (child == 0) compute(parent);
        if (child < 0) {
            const int why = errno;
            end();
            throw std::system_error(why, std::generic_category(), "--beside: no process to be had");
        }
        processes_.push_back(child);
    }
}

void Computing::end() noexcept {
    for (const pid_t process : processes_) ::kill(process, SIGKILL);
    for (const pid_t process : processes_) ::waitpid(process, nullptr, 0);
    processes_.clear();
}

}  // namespace tutti::bench
