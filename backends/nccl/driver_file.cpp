#include "nccl/driver_file.hpp"

#include <tutti/error.hpp>

#include <dlfcn.h>
#include <link.h>

#include <cstdlib>

namespace tutti::nccl {
namespace {

std::string path_of(void* handle, const std::string& name) {
    link_map* map = nullptr;
    const bool known = ::dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr && map->l_name[0] != '\0';
    return known ? map->l_name : name;
}

void* open(const std::string& file, int flags = 0) {
    return ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | flags);
}

}  // namespace

OpenedDriver open_driver_file(const DriverFile& wanted) {
    const char* named = std::getenv(wanted.variable.c_str());
    if (named != nullptr && *named != '\0') {
        if (void* handle = open(named)) return {handle, path_of(handle, named)};
        throw DistBackendError(wanted.title + ": " + wanted.variable + "=" + named +
                               " cannot be loaded: " + ::dlerror());
    }
    for (const std::string& file : wanted.files) {
        if (void* handle = open(file, RTLD_NOLOAD)) return {handle, path_of(handle, file)};
    }
    std::string reasons;
    for (const std::string& file : wanted.files) {
        if (void* handle = open(file)) return {handle, path_of(handle, file)};
        reasons += (reasons.empty() ? "" : "; ") + std::string(::dlerror());
    }
    throw DistBackendError(wanted.title + "'s library is not here (" + reasons + "): " + wanted.how_to_get + ", or " +
                           wanted.variable + " names the file");
}

void check_symbols(const Symbols& symbols, const DriverFile& wanted, const std::string& file) {
    if (symbols.missing().empty()) return;
    std::string names;
    for (const std::string& name : symbols.missing()) names += (names.empty() ? "" : ", ") + name;
    throw DistBackendError(wanted.title + ": " + file + " has no " + names + ": it is too old, or another library");
}

}  // namespace tutti::nccl
