#include "launch/program.hpp"

#include "core/assert.hpp"

#include <fmt/format.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <string_view>

namespace tutti::launch {
namespace {

bool is_file(const std::string& path) {
    struct stat status {};
    return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

// "#!/usr/bin/python3 -u" names /usr/bin/python3; empty: the file has no such line.
std::string interpreter_of(const std::string& path) {
    std::ifstream file(path);
    std::string line;
    if (!std::getline(file, line) || !line.starts_with("#!")) return {};
    const std::size_t begin = line.find_first_not_of(" \t", 2);
    if (begin == std::string::npos) return {};
    return line.substr(begin, line.find_first_of(" \t", begin) - begin);
}

}  // namespace

std::string find_program(const std::string& name) {
    if (name.empty() || name.find('/') != std::string::npos) return name;
    const char* variable = std::getenv("PATH");
    std::string present;
    for (std::string_view rest = variable != nullptr ? variable : "/usr/bin:/bin";;) {
        const std::size_t colon = rest.find(':');
        const std::string_view folder = rest.substr(0, colon);
        const std::string path = folder.empty() ? "./" + name : fmt::format("{}/{}", folder, name);
        if (is_file(path)) {
            if (::access(path.c_str(), X_OK) == 0) return path;
            if (present.empty()) present = path;
        }
        if (colon == std::string_view::npos) return present.empty() ? name : present;
        rest.remove_prefix(colon + 1);
    }
}

bool is_shell_script(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::array<char, 128> start{};
    file.read(start.data(), start.size());
    const std::string_view text(start.data(), static_cast<std::size_t>(file.gcount()));
    return text.substr(0, text.find('\n')).find('\0') == std::string_view::npos;
}

NotStarted why_not_started(const std::string& path, int error) {
    TUTTI_ASSERT(error != 0);
    struct stat status {};
    const bool absent = path.find('/') == std::string::npos || ::stat(path.c_str(), &status) != 0;
    // The file is there: the interpreter or loader that its first line, or its header, names is not.
    if (error == ENOENT && !absent) {
        std::string interpreter = interpreter_of(path);
        if (interpreter.empty()) return {126, "it needs a program loader that is not here"};
        const bool windows = interpreter.ends_with('\r');
        if (windows) interpreter.pop_back();
        return {126, fmt::format("its interpreter {} is not here{}", interpreter,
                                 windows ? ": its lines end as on Windows" : "")};
    }
    if (!absent && S_ISDIR(status.st_mode)) return {126, "it is a directory"};
    if (error == ENOENT || error == ENOTDIR) return {127, ::strerror(error)};
    return {126, ::strerror(error)};
}

}  // namespace tutti::launch
