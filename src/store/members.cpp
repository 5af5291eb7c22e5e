#include "store/members.hpp"

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
#include <iterator>
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

/// Clock ticks after boot, or "-" when that cannot be told. A process id alone is used again.
std::string start_of(pid_t pid) {
    std::ifstream file(fmt::format("/proc/{}/stat", pid));
    std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    const auto name_end = text.rfind(')');  // the name may hold anything
    if (name_end == std::string::npos) return "-";
    std::istringstream rest(text.substr(name_end + 1));
    std::string field;
    for (int number = 3; number <= 22; ++number) rest >> field;
    return rest ? field : "-";
}

bool is_dead(pid_t pid, const std::string& start) {
    if (::kill(pid, 0) != 0 && errno == ESRCH) return true;
    const std::string now = start_of(pid);
    return start != "-" && now != "-" && now != start;
}

}  // namespace

std::string Members::own_identity() {
    std::uint64_t random = 0;
    security::random_bytes({reinterpret_cast<std::byte*>(&random), sizeof random});
    return fmt::format("{} {} {} {:016x}", own_place(), ::getpid(), start_of(::getpid()), random);
}

void Members::join(std::string_view identity) {
    present_.emplace(identity);
    ++ever_;
}

void Members::leave(std::string_view identity) {
    if (const auto found = present_.find(identity); found != present_.end()) present_.erase(found);
}

std::optional<std::string> Members::dead_member() const {
    const std::string here = own_place();
    for (const auto& identity : present_) {
        std::istringstream text(identity);
        std::string place;
        pid_t pid = 0;
        std::string start;
        if (!(text >> place >> pid >> start) || place != here) continue;
        if (is_dead(pid, start)) return fmt::format("process {}", pid);
    }
    return std::nullopt;
}

}  // namespace tutti::store
