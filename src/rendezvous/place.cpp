#include "rendezvous/place.hpp"

#include "core/text.hpp"
#include "core/this_host.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

namespace tutti::rendezvous {
namespace {

std::uint64_t name_space(const char* name) {
    struct stat status {};
    return ::stat(fmt::format("/proc/self/ns/{}", name).c_str(), &status) == 0 ? status.st_ino : 0;
}

std::string describe(int status) {
    if (!WIFSIGNALED(status)) return fmt::format("exited with status {}", WEXITSTATUS(status));
    const char* name = ::sigabbrev_np(WTERMSIG(status));
    return name != nullptr ? fmt::format("killed by SIG{}", name)
                           : fmt::format("killed by signal {}", WTERMSIG(status));
}

// The system's fields of a process from its state on; the last is the exit status. Empty: it is not there.
std::string status_of(int process) {
    std::ifstream file(fmt::format("/proc/{}/stat", process));
    // A process that goes while it is read makes the read fail; getline, unlike the buffer itself, does not throw.
    std::string text;
    std::getline(file, text, '\0');
    // "pid (name) state …": the name may hold anything, also parentheses.
    const std::size_t name_end = text.rfind(')');
    return name_end == std::string::npos || name_end + 2 >= text.size() ? "" : text.substr(name_end + 2);
}

}  // namespace

std::string host_key() {
    return fmt::format("{}/{}/{}/{}", this_host::boot_id(), name_space("ipc"), name_space("net"), ::geteuid());
}

std::string machine_of(std::string_view host_key) {
    return std::string(host_key.substr(0, host_key.find('/')));
}

std::string network_of(std::string_view host_key) {
    const auto part = [&host_key] {
        const std::string text(host_key.substr(0, host_key.find('/')));
        host_key.remove_prefix(std::min(text.size() + 1, host_key.size()));
        return text;
    };
    const std::string machine = part();
    part();  // where memory can be shared by name
    return machine + '/' + part();
}

std::uint64_t process_space() {
    return name_space("pid");
}

// A dying process closes its sockets a moment before it becomes a zombie, so this looks several times.
std::optional<std::string> end_of(int process, std::chrono::milliseconds patience) {
    const auto end = std::chrono::steady_clock::now() + patience;
    for (;;) {
        const std::string status = status_of(process);
        if (status.empty()) return "its process has ended";
        if (status[0] == 'Z' || status[0] == 'X') return describe(std::atoi(status.c_str() + status.rfind(' ') + 1));
        if (std::chrono::steady_clock::now() >= end) return std::nullopt;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

std::uint64_t start_of(int process) {
    constexpr int behind_state = 19;  // fields 3 and 22 of proc(5)
    std::istringstream fields(status_of(process));
    std::string field;
    for (int i = 0; i <= behind_state && fields >> field; ++i) {
    }
    return fields ? number_in<std::uint64_t>(field).value_or(0) : 0;
}

bool is_stopped(int process) {
    const std::string status = status_of(process);
    return !status.empty() && (status[0] == 'T' || status[0] == 't');
}

}  // namespace tutti::rendezvous
