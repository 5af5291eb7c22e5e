// Whether a file that holds secrets is this user's alone.
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

/// Nothing where the open file is a regular one that belongs to `owner` and is closed to everybody else.
std::optional<NotPrivate> why_not_private(int fd, const std::string& path, FileOwner owner);

}  // namespace tutti
