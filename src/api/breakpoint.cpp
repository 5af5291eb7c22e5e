// breakpoint(): one rank in a debugger, the others in a barrier.
#include "api/arguments.hpp"
#include "core/assert.hpp"
#include "core/unique_fd.hpp"

#include <tutti/debug.hpp>
#include <tutti/distributed.hpp>
#include <tutti/error.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

namespace tutti {
namespace {

// The process that traces this one; 0: none.
int tracer() {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
        if (line.starts_with("TracerPid:")) return std::atoi(line.c_str() + 10);
    }
    return 0;
}

// Standard input is the terminal, where there is one, as long as this lives: launchers give ranks another.
class TerminalInput {
 public:
    TerminalInput() {
        const UniqueFd terminal(::open("/dev/tty", O_RDONLY | O_CLOEXEC));
        if (!terminal) return;
        before_ = UniqueFd(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3));
        if (before_) ::dup2(terminal.get(), STDIN_FILENO);
    }
    TerminalInput(const TerminalInput&) = delete;
    TerminalInput& operator=(const TerminalInput&) = delete;
    ~TerminalInput() {
        if (before_) ::dup2(before_.get(), STDIN_FILENO);
    }

 private:
    UniqueFd before_;
};

void wait_for_debugger(int rank) {
    TUTTI_ASSERT(rank >= 0);
    const TerminalInput terminal;
    ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);  // where only parents may attach
    if (tracer() == 0) {
        fmt::print(stderr,
                   "tutti: rank {} waits at a breakpoint for a debugger; type: gdb -p {}\n"
                   "tutti: it stops here; `continue` releases all ranks\n",
                   rank, ::getpid());
        while (tracer() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    std::raise(SIGTRAP);  // the tracer gets it
}

}  // namespace

void breakpoint(int rank, int skip, ProcessGroup group) {
    static std::atomic<int> calls{0};
    const auto impl = api::group_of(group, "breakpoint");
    if (rank < 0 || rank >= impl->size())
        throw InvalidArgument(fmt::format("breakpoint: rank {}: expected 0 to {}", rank, impl->size() - 1));
    if (skip < 0) throw InvalidArgument(fmt::format("breakpoint: skip {}: expected zero or more", skip));
    if (calls.fetch_add(1) < skip) return;
    if (impl->rank() == rank) wait_for_debugger(rank);
    barrier({.group = ProcessGroup(impl), .timeout = std::chrono::hours(24 * 365)});  // people think for long
}

}  // namespace tutti
