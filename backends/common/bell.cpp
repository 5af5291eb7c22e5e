#include "common/bell.hpp"

#include <tutti/error.hpp>

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace tutti::backends {

Bell::Bell() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (fd_ < 0)
        throw DistBackendError("no eventfd: " + std::generic_category().message(errno) +
                               "; how many files this process may have open says ulimit -n");
}

Bell::~Bell() {
    ::close(fd_);
}

void Bell::set(bool rings) noexcept {
    if (rings == std::exchange(rings_, rings)) return;
    eventfd_t number = 0;
    if (rings)
        ::eventfd_write(fd_, 1);
    else
        ::eventfd_read(fd_, &number);
}

}  // namespace tutti::backends
