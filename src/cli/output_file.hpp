// A file that an option names.
#pragma once

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>

namespace tutti::cli {

/// Throws InvalidArgument that names the option where the file cannot be written.
inline void write_output(const char* option, const std::string& file, std::string_view text) {
    std::ofstream out(file, std::ios::binary);
    if (!(out << text << std::flush))
        throw InvalidArgument(
            fmt::format("{} {}: expected a file that can be written: {}", option, file, std::strerror(errno)));
}

}  // namespace tutti::cli
