#include "core/whole_file.hpp"

#include "core/assert.hpp"
#include "core/unique_fd.hpp"

#include <tutti/error.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <system_error>

namespace tutti {
namespace {

constexpr std::chrono::milliseconds pipe_patience{10'000};

[[noreturn]] void refuse(const std::string& why) {
    throw InvalidArgument("cannot be read: " + why);
}

[[noreturn]] void refuse_by_errno() {
    refuse(std::system_category().message(errno));
}

}  // namespace

std::string whole_file(const std::string& path, std::size_t bytes_max) {
    TUTTI_ASSERT(bytes_max < SIZE_MAX);
    // Without O_NONBLOCK a FIFO that nobody writes to would never open.
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    struct stat status {};
    if (!fd || ::fstat(fd.get(), &status) != 0) refuse_by_errno();
    const bool is_pipe = S_ISFIFO(status.st_mode);
    if (S_ISDIR(status.st_mode)) refuse("it is a folder");
    if (!is_pipe && !S_ISREG(status.st_mode)) refuse("it is a device: expected a file");
    std::string text;
    for (std::size_t size = 0;;) {
        pollfd entry{fd.get(), POLLIN, 0};
        if (is_pipe && ::poll(&entry, 1, static_cast<int>(pipe_patience.count())) == 0)
            refuse(fmt::format("it is a pipe that sends nothing for {} s", pipe_patience.count() / 1000));
        text.resize(std::min(std::max(2 * size, std::size_t{1} << 16U), bytes_max + 1));
        TUTTI_ASSERT(text.size() > size);
        const ssize_t got = ::read(fd.get(), text.data() + size, text.size() - size);
        if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (got < 0) refuse_by_errno();
        TUTTI_ASSERT(size + static_cast<std::size_t>(got) <= text.size());
        size += static_cast<std::size_t>(got);
        if (size > bytes_max) refuse(fmt::format("it has more than {} bytes", bytes_max));
        text.resize(size);
        if (got == 0) return text;
    }
}

}  // namespace tutti
