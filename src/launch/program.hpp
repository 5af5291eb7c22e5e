// Program: which file a command means, and why it cannot be executed, as shells say. Free functions; any thread.
#pragma once

#include <string>

namespace tutti::launch {

/// The file that `name` means: `name` itself if it has a slash, else the first executable file of this name in PATH,
/// else the first such file that is not executable; `name` if there is none.
std::string find_program(const std::string& name);

/// Whether a file without "#!" is a script for /bin/sh, rather than a program for another machine.
bool is_shell_script(const std::string& path);

/// Why execve(2) of `path` failed with `error`.
struct NotStarted {
    int exit_status = 127;  ///< a shell's: 127 when there is no such program, 126 when there is one
    std::string reason;     ///< "No such file or directory", "it is a directory"
};
NotStarted why_not_started(const std::string& path, int error);

}  // namespace tutti::launch
