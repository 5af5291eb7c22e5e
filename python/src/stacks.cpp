// Python's stacks for the pages: where each thread of the interpreter is, also while one of them holds the
// interpreter's lock and does not come back, as in a hung extension.
//
// faulthandler, of Python's own library, writes the stacks of all threads in the handler of a signal: it needs no lock.
// It then calls the handler that was there before it, which is the one here and says that all has been written.
#include "parts.hpp"
#include "python.hpp"

#include <tutti/trace.hpp>

#include <semaphore.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <string>

namespace tutti::python {
namespace {

sem_t written;

void on_written(int) {
    const int saved = errno;
    ::sem_post(&written);
    errno = saved;
}

bool wait_until_written(std::chrono::milliseconds limit) {
    timespec until{};
    ::clock_gettime(CLOCK_REALTIME, &until);
    const std::int64_t ns = until.tv_nsec + std::chrono::nanoseconds(limit).count();
    until.tv_sec += ns / 1'000'000'000;
    until.tv_nsec = ns % 1'000'000'000;
    int result = -1;
    do result = ::sem_timedwait(&written, &until);
    while (result != 0 && errno == EINTR);
    return result == 0;
}

// A handler of faulthandler's that calls another one is registered anew each time, and so that it breaks off the
// program's system calls.
bool let_calls_go_on(int signal) {
    struct sigaction action {};
    if (::sigaction(signal, nullptr, &action) != 0) return false;
    action.sa_flags |= SA_RESTART;
    return ::sigaction(signal, &action, nullptr) == 0;
}

std::string stacks(int signal, int file, std::chrono::milliseconds limit) {
    while (::sem_trywait(&written) == 0) {
    }
    if (::ftruncate(file, 0) != 0 || ::lseek(file, 0, SEEK_SET) != 0 || !let_calls_go_on(signal)) return {};
    if (::kill(::getpid(), signal) != 0) return {};
    if (!wait_until_written(limit))
        return "  Python: no answer: each of its threads blocks signals, or is in the kernel\n";
    std::string text;
    std::array<char, 4096> buffer;
    for (off_t at = 0;; at = static_cast<off_t>(text.size())) {
        const ssize_t count = ::pread(file, buffer.data(), buffer.size(), at);
        if (count <= 0) break;
        text.append(buffer.data(), static_cast<std::size_t>(count));
    }
    std::string indented = "  Python\n";
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = std::min(text.find('\n', begin), text.size());
        if (end > begin) indented += "    " + text.substr(begin, end - begin) + "\n";
        begin = end + 1;
    }
    return indented;
}

// A signal of real time that the program does not handle, with the handler that is called behind faulthandler's; 0:
// none.
int take_signal() {
    for (int signal = SIGRTMIN; signal <= SIGRTMAX; ++signal) {
        struct sigaction action {};
        if (::sigaction(signal, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) continue;
        action.sa_handler = on_written;
        action.sa_flags = SA_RESTART;
        ::sigemptyset(&action.sa_mask);
        if (::sigaction(signal, &action, nullptr) == 0) return signal;
    }
    return 0;
}

}  // namespace

void bind_stacks() {
    // Without pages nobody asks for stacks, and the program's signals stay as they are.
    const char* const port = std::getenv("TUTTI_STATUS_PORT");
    if (port == nullptr || *port == '\0') return;
    const int file = ::memfd_create("tutti-stacks", MFD_CLOEXEC);
    const int signal = file < 0 || ::sem_init(&written, 0, 0) != 0 ? 0 : take_signal();
    if (signal == 0) return;
    nb::module_::import_("faulthandler")
        .attr("register")(signal, nb::arg("file") = file, nb::arg("all_threads") = true, nb::arg("chain") = true);
    set_stack_source([signal, file](std::chrono::milliseconds limit) { return stacks(signal, file, limit); });
}

}  // namespace tutti::python
