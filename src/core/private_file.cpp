#include "core/private_file.hpp"

#include "core/assert.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tutti {

std::optional<NotPrivate> why_not_private(int fd, const std::string& path, FileOwner owner) {
    TUTTI_ASSERT(fd >= 0 && !path.empty());
    struct stat info {};
    if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) return NotPrivate{"it is not a regular file", ""};
    const bool right_owner = info.st_uid == ::geteuid() || (owner == FileOwner::this_user_or_root && info.st_uid == 0);
    if (!right_owner) {
        return NotPrivate{fmt::format("it belongs to user {}, not to this one ({})", info.st_uid, ::geteuid()),
                          "use a file of your own"};
    }
    if ((info.st_mode & 077U) == 0) return std::nullopt;
    return NotPrivate{fmt::format("others than its owner may use it (mode {:04o})", info.st_mode & 07777U),
                      "chmod 600 " + path};
}

}  // namespace tutti
