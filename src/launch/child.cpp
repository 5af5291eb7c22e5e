#include "launch/child.hpp"

#include "core/assert.hpp"
#include "core/descriptors.hpp"

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
    TUTTI_ASSERT(result.size() == texts.size() + 1);
    return result;
}

// Between fork and exec: only calls that are safe in a copy of a process that may have had threads.
struct NewProcess {
    const char* path;
    char* const* argv;
    char* const* envp;
    char* const* shell_argv;  // for a script without "#!"; null: it is none
    int in, out, err, report;
    pid_t parent;
};

[[noreturn]] void become(const NewProcess& p) {
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != p.parent) ::_exit(127);  // it died before the line above
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    for (const int ignored_by_us : {SIGPIPE, SIGXFSZ}) ::signal(ignored_by_us, SIG_DFL);
    descriptors::give_back();
    const bool ready = ::dup2(p.in, 0) >= 0 && ::dup2(p.out, 1) >= 0 && ::dup2(p.err, 2) >= 0;
    if (ready) ::execve(p.path, p.argv, p.envp);
    if (ready && errno == ENOEXEC && p.shell_argv != nullptr) ::execve("/bin/sh", p.shell_argv, p.envp);
    const int error = errno;
    if (::write(p.report, &error, sizeof error) < 0) ::_exit(126);
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
    for (auto& [name, variable] : variables) {
        if (name.size() < variable.size()) result.push_back(std::move(variable));
    }
    return result;
}

Child start(const std::vector<std::string>& command, const Environment& environment, int stdin_fd) {
    TUTTI_ASSERT(!command.empty() && stdin_fd >= -1);
    const std::string path = find_program(command.front());
    const auto argv = pointers(command);
    const auto envp = pointers(environment);
    std::vector<std::string> by_shell{"sh", path};
    by_shell.insert(by_shell.end(), command.begin() + 1, command.end());
    const auto shell_argv = pointers(by_shell);
    const bool is_script = is_shell_script(path);
    Pipe out = make_pipe(), err = make_pipe(), report = make_pipe();
    UniqueFd nothing;
    if (stdin_fd < 0) {
        nothing.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
        if (!nothing) throw std::system_error(errno, std::generic_category(), "tutti run: /dev/null");
    }

    const pid_t parent = ::getpid();
    Child child;
    child.pid = ::fork();
    if (child.pid < 0) throw std::system_error(errno, std::generic_category(), "tutti run: no process to be had");
    if (child.pid == 0) {
        // A name without a slash was not found; execve(2) would take it for a file of this folder.
        become({.path = path.find('/') == std::string::npos ? "" : path.c_str(),
                .argv = argv.data(),
                .envp = envp.data(),
                .shell_argv = is_script ? shell_argv.data() : nullptr,
                .in = stdin_fd < 0 ? nothing.get() : stdin_fd,
                .out = out.write.get(),
                .err = err.write.get(),
                .report = report.write.get(),
                .parent = parent});
    }
    ::setpgid(child.pid, child.pid);  // both sides do it: the first one counts
    report.write.reset();
    int error = 0;
    ssize_t got;
    do {
        got = ::read(report.read.get(), &error, sizeof error);
    } while (got < 0 && errno == EINTR);
    if (got == sizeof error) {
        ::waitpid(child.pid, nullptr, 0);
        child.pid = -1;
        child.not_started = why_not_started(path, error);
        return child;
    }
    child.out = std::move(out.read);
    child.err = std::move(err.read);
    TUTTI_ASSERT(child.pid > 0 && child.out && child.err);
    for (const UniqueFd* fd : {&child.out, &child.err}) ::fcntl(fd->get(), F_SETFL, O_NONBLOCK);
    return child;
}

int status_of(const siginfo_t& info) {
    TUTTI_ASSERT(info.si_code == CLD_EXITED || info.si_code == CLD_KILLED || info.si_code == CLD_DUMPED);
    if (info.si_code == CLD_EXITED) return (info.si_status & 0xff) << 8;
    return info.si_status | (info.si_code == CLD_DUMPED ? 0x80 : 0);
}

std::string cause_in_words(const Child& child) {
    if (child.not_started) return fmt::format("could not be started: {}", child.not_started->reason);
    if (!child.status) return "still runs";
    if (!WIFSIGNALED(*child.status)) {
        const int exit = WEXITSTATUS(*child.status);
        const char* by = exit > 128 ? ::sigabbrev_np(exit - 128) : nullptr;
        return fmt::format(
            "exited with status {}{}", exit,
            by != nullptr ? fmt::format(", which a shell gives for a program that SIG{} ended", by) : "");
    }
    const int signal = WTERMSIG(*child.status);
    const char* name = ::sigabbrev_np(signal);
    return fmt::format("killed by signal {}{}{}", signal, name != nullptr ? fmt::format(" (SIG{})", name) : "",
                       WCOREDUMP(*child.status) ? ", core dumped" : "");
}

int exit_status(const Child& child) {
    if (child.not_started) return child.not_started->exit_status;
    if (!child.status) return 0;
    return WIFSIGNALED(*child.status) ? 128 + WTERMSIG(*child.status) : WEXITSTATUS(*child.status);
}

}  // namespace tutti::launch
