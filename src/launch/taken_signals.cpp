#include "launch/taken_signals.hpp"

#include <initializer_list>

namespace tutti::launch {

bool ends_job(int signal) {
    return signal == SIGINT || signal == SIGTERM || signal == SIGHUP;
}

bool is_for_ranks(int signal) {
    for (const int one : {SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT, SIGWINCH}) {
        if (signal == one) return true;
    }
    return false;
}

sigset_t taken_signals() {
    sigset_t set;
    ::sigemptyset(&set);
    ::sigaddset(&set, SIGCHLD);
    for (int signal = 1; signal < 32; ++signal) {
        struct sigaction action {};
        if (!ends_job(signal) && !is_for_ranks(signal)) continue;
        ::sigaction(signal, nullptr, &action);
        if (action.sa_handler != SIG_IGN) ::sigaddset(&set, signal);
    }
    return set;
}

}  // namespace tutti::launch
