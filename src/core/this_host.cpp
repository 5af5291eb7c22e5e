#include "core/this_host.hpp"

#include <unistd.h>

#include <fstream>

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

}  // namespace tutti::this_host
