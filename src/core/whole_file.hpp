// The whole content of a file that a user names, and that others may have written.
//
// Threads: any.
#pragma once

#include <cstddef>
#include <string>

namespace tutti {

/// All bytes of a regular file, or of a pipe whose writer sends them. Throws InvalidArgument, "cannot be read: …",
/// without the file's name: for what is absent, a folder or a device, more than `bytes_max`, and a pipe that sends
/// nothing for ten seconds.
std::string whole_file(const std::string& path, std::size_t bytes_max);

}  // namespace tutti
