#include "store/members.hpp"

#include "core/assert.hpp"
#include "core/this_host.hpp"
#include "security/secret.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

namespace tutti::store {
namespace {

/// Where a process id means something: this boot, this pid name space.
std::string own_place() {
    struct stat info {};
    if (::stat("/proc/self/ns/pid", &info) != 0) info.st_ino = 0;
    return fmt::format("{}/{}", this_host::boot_id(), info.st_ino);
}

/// A process as /proc shows it: its state, and its start in clock ticks after boot, or "-" when that is unknown. The
/// kernel reuses a process id alone.
struct Seen {
    char state = '-';
    std::string start = "-";
};

Seen look_at(pid_t pid) {
    TUTTI_ASSERT(pid > 0);
    // Its first thread's line says the same; QEMU's user mode makes up a process's own.
    std::ifstream file(fmt::format("/proc/{0}/task/{0}/stat", pid));
    // A process that goes while it is read makes the read fail; getline, unlike the buffer itself, does not throw.
    std::string text;
    std::getline(file, text, '\0');
    const auto name_end = text.rfind(')');  // the name may hold anything
    if (name_end == std::string::npos) return {};
    std::istringstream rest(text.substr(name_end + 1));
    Seen seen;
    std::string field;
    rest >> seen.state;
    for (int number = 4; number <= 22; ++number) rest >> field;
    if (rest) seen.start = field;
    return seen;
}

/// A process whose parent has not collected it yet has ended, too.
bool has_ended(pid_t pid, const std::string& start) {
    TUTTI_ASSERT(pid > 0 && !start.empty());
    if (::kill(pid, 0) != 0 && errno == ESRCH) return true;
    const Seen now = look_at(pid);
    if (now.state == 'Z' || now.state == 'X') return true;
    return start != "-" && now.start != "-" && now.start != start;
}

}  // namespace

std::string Members::own_identity() {
    std::uint64_t random = 0;
    security::random_bytes({reinterpret_cast<std::byte*>(&random), sizeof random});
    return fmt::format("{} {} {} {:016x}", own_place(), ::getpid(), look_at(::getpid()).start, random);
}

void Members::join(std::string_view identity) {
    present_.emplace(identity);
    ++ever_;
    TUTTI_ASSERT(ever_ >= present_.size());
}

void Members::leave(std::string_view identity) {
    TUTTI_ASSERT(present_.size() <= ever_);
    if (const auto found = present_.find(identity); found != present_.end()) present_.erase(found);
}

std::optional<std::string> Members::dead_member() const {
    for (const auto& identity : present_) {
        if (auto dead = is_dead(identity)) return dead;
    }
    return std::nullopt;
}

std::optional<std::string> Members::is_dead(const std::string& identity) {
    std::istringstream text(identity);
    std::string place;
    pid_t pid = 0;
    std::string start;
    if (!(text >> place >> pid >> start) || pid <= 0 || place != own_place() || !has_ended(pid, start))
        return std::nullopt;
    return fmt::format("process {}", pid);
}

}  // namespace tutti::store
