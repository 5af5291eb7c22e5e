// Reads a whole file that a user names. Others may have written the file, so size and time are limited.
//
// Threads: any.
#pragma once

#include <cstddef>
#include <string>

namespace tutti {

/// Reads all bytes of a regular file, or of a pipe until its end. Throws InvalidArgument, "cannot be read: …", without
/// the file's name, if the file is missing, a folder or a device, has more than `bytes_max` bytes, or is a pipe that
/// sends nothing for ten seconds.
std::string whole_file(const std::string& path, std::size_t bytes_max);

}  // namespace tutti
