#include "core/this_host.hpp"

#include "core/assert.hpp"
#include "core/unique_fd.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <thread>

namespace tutti::this_host {

std::string name() {
    char text[256] = {};
    ::gethostname(text, sizeof text - 1);
    return text;
}

std::string boot_id() {
    const UniqueFd file(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
    char text[64];
    const ssize_t count = file ? ::read(file.get(), text, sizeof text) : 0;
    const std::string_view id(text, static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    return std::string(id.substr(0, id.find('\n')));
}

int cpus() {
    static const int running = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    TUTTI_ASSERT(running >= 1);
    return running;
}

std::uint64_t file_size_limit() {
    rlimit limit{};
    const bool known = ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
    return known ? limit.rlim_cur : UINT64_MAX;
}

}  // namespace tutti::this_host
