#include "transport/shm/memory_file.hpp"

#include "core/assert.hpp"
#include "core/this_host.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace tutti::transport {
namespace {

// Linux 6.3; Debian 12's headers are older.
constexpr unsigned never_executable = 8;  // MFD_NOEXEC_SEAL

[[noreturn]] void refuse(const std::string& why) {
    throw DistBackendError("cannot make shared memory: " + why);
}

// Systems may insist that such a file can never be executed (vm.memfd_noexec=2); older ones do not know the flag.
UniqueFd open_file(const char* name) {
    UniqueFd fd(::memfd_create(name, MFD_CLOEXEC | never_executable));
    if (!fd && errno == EINVAL) fd = UniqueFd(::memfd_create(name, MFD_CLOEXEC));
    return fd;
}

}  // namespace

UniqueFd make_memory_file(const char* name, std::uint64_t bytes) {
    TUTTI_ASSERT(name != nullptr);
    TUTTI_ASSERT(bytes > 0);
    if (const std::uint64_t limit = this_host::file_size_limit(); limit < bytes)
        refuse(fmt::format("the limit for the size of files (ulimit -f) is {} bytes: expected unlimited", limit));
    UniqueFd fd = open_file(name);
    if (!fd) refuse(fmt::format("memfd_create: {}", std::strerror(errno)));
    if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0)
        refuse(fmt::format("a file of {} bytes: {}", bytes, std::strerror(errno)));
    return fd;
}

}  // namespace tutti::transport
