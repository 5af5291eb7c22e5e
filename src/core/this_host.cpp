#include "core/this_host.hpp"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <thread>

namespace tutti::this_host {

std::string name() {
    char text[256] = {};
    ::gethostname(text, sizeof text - 1);
    return text;
}

std::string boot_id() {
    std::string id;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
    return id;
}

int cpus() {
    static const int running = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    return running;
}

}  // namespace tutti::this_host
