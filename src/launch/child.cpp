#include "launch/child.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <string_view>
#include <system_error>
#include <utility>

extern char** environ;

namespace tutti::launch {
namespace {

struct Pipe {
    UniqueFd read, write;
};

Pipe make_pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) {
        throw std::system_error(errno, std::generic_category(), "tutti run: no pipe for a process");
    }
    return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
    std::vector<char*> result;
    for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
    result.push_back(nullptr);
    return result;
}

// Between fork and exec: only what is safe in a copy of a process that may have had threads.
[[noreturn]] void become(char* const* argv, char* const* envp, int in, int out, int err, int report, pid_t parent) {
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(127);  // it died before the line above
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    ::signal(SIGPIPE, SIG_DFL);
    const bool ready = ::dup2(in, 0) >= 0 && ::dup2(out, 1) >= 0 && ::dup2(err, 2) >= 0;
    if (ready) ::execvpe(argv[0], argv, envp);
    const int error = errno;
    if (::write(report, &error, sizeof error) < 0) ::_exit(126);
    ::_exit(127);
}

std::string_view name_of(const std::string& variable) {
    return std::string_view(variable).substr(0, variable.find('='));
}

}  // namespace

Environment environment_with(const Environment& changes) {
    std::map<std::string_view, std::string> variables;
    Environment present;
    for (char** v = environ; v != nullptr && *v != nullptr; ++v) present.emplace_back(*v);
    for (const Environment* list : {&std::as_const(present), &changes}) {
        for (const std::string& variable : *list) variables[name_of(variable)] = variable;
    }
    Environment result;
    for (auto& [name, variable] : variables) result.push_back(std::move(variable));
    return result;
}

Child start(const std::vector<std::string>& command, const Environment& environment, int stdin_fd) {
    const auto argv = pointers(command);
    const auto envp = pointers(environment);
    Pipe out = make_pipe(), err = make_pipe(), report = make_pipe();
    UniqueFd nothing;
    if (stdin_fd < 0) nothing.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));

    const pid_t parent = ::getpid();
    Child child;
    child.pid = ::fork();
    if (child.pid < 0) throw std::system_error(errno, std::generic_category(), "tutti run: no process to be had");
    if (child.pid == 0) {
        become(argv.data(), envp.data(), stdin_fd < 0 ? nothing.get() : stdin_fd, out.write.get(), err.write.get(),
               report.write.get(), parent);
    }
    ::setpgid(child.pid, child.pid);  // both sides do it: whoever comes first
    report.write.reset();
    ssize_t got;
    do {
        got = ::read(report.read.get(), &child.start_error, sizeof child.start_error);
    } while (got < 0 && errno == EINTR);
    if (got == sizeof child.start_error) {
        ::waitpid(child.pid, nullptr, 0);
        child.pid = -1;
        return child;
    }
    child.start_error = 0;
    child.out = std::move(out.read);
    child.err = std::move(err.read);
    for (const UniqueFd* fd : {&child.out, &child.err}) ::fcntl(fd->get(), F_SETFL, O_NONBLOCK);
    return child;
}

std::string cause_in_words(const Child& child) {
    if (child.start_error != 0) return fmt::format("could not be started: {}", ::strerror(child.start_error));
    if (!child.status) return "still runs";
    if (!WIFSIGNALED(*child.status)) return fmt::format("exited with status {}", WEXITSTATUS(*child.status));
    const int signal = WTERMSIG(*child.status);
    const char* name = ::sigabbrev_np(signal);
    return fmt::format("killed by signal {}{}{}", signal, name != nullptr ? fmt::format(" (SIG{})", name) : "",
                       WCOREDUMP(*child.status) ? ", core dumped" : "");
}

int exit_status(const Child& child) {
    if (child.start_error != 0) return 127;
    if (!child.status) return 0;
    return WIFSIGNALED(*child.status) ? 128 + WTERMSIG(*child.status) : WEXITSTATUS(*child.status);
}

}  // namespace tutti::launch
