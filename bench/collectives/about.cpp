// The place, the time and the tools of a measurement.
#include "bench/collectives/page.hpp"
#include "core/this_host.hpp"

#include <tutti/version.hpp>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/utsname.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <string>
#include <thread>
#include <utility>

namespace tutti::bench {
namespace {

#ifdef __clang__
constexpr const char* compiler = __VERSION__;  // "Clang 16.0.6"
#else
constexpr const char* compiler = "g++ " __VERSION__;
#endif

std::string cpu_name() {
    std::ifstream info("/proc/cpuinfo");
    for (std::string line; std::getline(info, line);) {
        for (const char* key : {"model name", "Model", "CPU part"}) {  // x86; Arm's boards; Arm's servers
            if (line.starts_with(key) && line.find(": ") != std::string::npos) return line.substr(line.find(": ") + 2);
        }
    }
    return "unknown CPU";
}

// The first line that a command prints; empty when it fails.
std::string first_line_of(const std::string& command) {
    std::FILE* const output = ::popen(fmt::format("{} 2>/dev/null", command).c_str(), "r");
    if (output == nullptr) return {};
    std::array<char, 256> text{};
    std::string line = std::fgets(text.data(), static_cast<int>(text.size()), output) == nullptr ? "" : text.data();
    while (std::fgets(text.data(), static_cast<int>(text.size()), output) != nullptr) {
    }
    ::pclose(output);
    while (!line.empty() && (line.back() == '\n' || line.back() == ' ')) line.pop_back();
    return line;
}

}  // namespace

About about_this_host() {
    utsname system{};
    ::uname(&system);
    std::array<double, 1> load{};
    if (::getloadavg(load.data(), 1) != 1) load[0] = 0;
    std::ifstream words("/proc/self/cmdline");
    std::string command = "tutti";
    bool program = true;
    for (std::string word; std::getline(words, word, '\0'); program = false) {
        if (program) continue;
        const bool plain = !word.empty() && word.find_first_of(" \t'\"$*?<>&|;()") == std::string::npos;
        command += plain ? " " + word : fmt::format(" \"{}\"", word);
    }
    return {.host = this_host::name(),
            .cpu = cpu_name(),
            .system = fmt::format("{} {} ({})", system.sysname, system.release, system.machine),
            .date = fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(std::time(nullptr))),
            .command = std::move(command),
            .threads = std::thread::hardware_concurrency(),
            .load = load[0],
            .versions = {},
            .absent = {}};
}

std::vector<std::pair<std::string, std::string>> versions_of(const Options& options) {
    std::vector<std::pair<std::string, std::string>> versions{{"tutti", version()}, {"compiler", compiler}};
    for (const std::string& peer : options.against) {
        const std::string command =
            peer == "openmpi" ? "mpirun.openmpi --version | sed 's/.* //'"
            : peer == "mpich" ? "mpiexec.mpich --version | sed -n 's/ *Version: *//p'"
            : peer == "gloo"  ? "dpkg-query -W -f '${Version}' libgloo-dev"
                              : fmt::format("'{}' -c 'import torch; print(torch.__version__)'", options.torch_python);
        const std::string found = first_line_of(command);
        versions.emplace_back(peer, found.empty() ? "unknown version" : found);
    }
    return versions;
}

}  // namespace tutti::bench
