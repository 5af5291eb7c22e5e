#include "launch/guard.hpp"

#include "core/assert.hpp"
#include "security/secret.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <set>
#include <string>
#include <system_error>

namespace tutti::launch {
namespace {

// Kills the processes with this variable that the guard may look at, thus not other users'. False: there were none.
bool kill_marked(const std::string& variable) {
    TUTTI_ASSERT(variable.find('=') != std::string::npos);
    bool found = false;
    std::error_code gone;
    for (const auto& entry : std::filesystem::directory_iterator("/proc", gone)) {
        const std::string name = entry.path().filename();
        pid_t pid = 0;
        const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
        if (error != std::errc() || *end != '\0' || pid == ::getpid()) continue;
        std::ifstream file(entry.path() / "environ", std::ios::binary);
        const std::string environment = '\0' + std::string(std::istreambuf_iterator<char>(file), {});
        if (environment.find('\0' + variable + '\0') == std::string::npos) continue;
        found |= ::kill(pid, SIGKILL) == 0;
    }
    return found;
}

constexpr pid_t forget_signals = std::numeric_limits<pid_t>::min();

// Whether the signal is pending for a process with all signals blocked.
bool is_pending(pid_t process, int signal) {
    TUTTI_ASSERT(process > 0 && signal >= 1 && signal <= 64);
    std::ifstream status(fmt::format("/proc/{}/status", process));
    for (std::string line; std::getline(status, line);) {
        if (!line.starts_with("ShdPnd:")) continue;
        return (std::strtoull(line.c_str() + 7, nullptr, 16) >> (signal - 1) & 1) != 0;
    }
    return false;
}

// Messages: a process group; minus one to forget it; forget_signals; 0: all is done.
[[noreturn]] void guard(int pipe, const std::string& variable) noexcept {
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
            if (message == forget_signals) {
                const timespec no_time{};
                while (::sigtimedwait(&all, nullptr, &no_time) > 0) continue;
                continue;
            }
            if (message > 0)
                groups.insert(message);
            else
                groups.erase(-message);
            continue;
        }
        for (const pid_t group : groups) ::kill(-group, SIGKILL);
        // Again, as long as there is a process that may have started another before it died.
        for (int turn = 0; turn < 100 && kill_marked(variable); ++turn) ::usleep(10'000);
        ::_exit(0);
    }
}

std::string random_id() {
    std::array<std::byte, 8> bytes;
    security::random_bytes(bytes);
    std::string id;
    for (const std::byte b : bytes) id += fmt::format("{:02x}", static_cast<unsigned>(b));
    TUTTI_ASSERT(id.size() == 2 * bytes.size());
    return id;
}

}  // namespace

Guard::Guard() : id_(random_id()) {
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
        guard(pipe, variable());
    }
    ::close(ends[0]);
}

Guard::~Guard() {
    TUTTI_ASSERT(pid_ > 0);
    tell(0);
    pipe_.reset();
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
}

void Guard::watch(pid_t process_group) {
    TUTTI_ASSERT(process_group > 0);
    tell(process_group);
}

void Guard::forget(pid_t process_group) {
    TUTTI_ASSERT(process_group > 0);
    tell(-process_group);
}

bool Guard::got(int signal) {
    TUTTI_ASSERT(signal >= 1 && signal <= 64);
    constexpr int looks = 10;
    constexpr useconds_t between = 5000;
    const auto becomes = [&](bool wanted) {
        for (int look = 0; look < looks; ++look) {
            if (is_pending(pid_, signal) == wanted) return true;
            ::usleep(between);
        }
        return false;
    };
    if (!becomes(true)) return false;
    tell(forget_signals);
    becomes(false);
    return true;
}

void Guard::tell(pid_t message) {
    // Four bytes into a pipe that is nearly empty: all or nothing, at once. A guard that is gone guards nothing.
    if (::write(pipe_.get(), &message, sizeof message) < 0) return;
}

}  // namespace tutti::launch
