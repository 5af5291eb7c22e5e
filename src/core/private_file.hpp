// Checks that a file that holds secrets is private to this user.
//
// Threads: any.
#pragma once

#include <optional>
#include <string>

namespace tutti {

enum class FileOwner { this_user, this_user_or_root };

struct NotPrivate {
    std::string cause;  ///< "others than its owner may use it (mode 0644)"
    std::string hint;   ///< the remedy: "chmod 600 /tmp/file"; may be empty
};

/// nullopt if the open file is a regular file that belongs to `owner` and gives nobody else access.
std::optional<NotPrivate> why_not_private(int fd, const std::string& path, FileOwner owner);

}  // namespace tutti
