#include "transport/shm/peer_memory.hpp"

#include "core/assert.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

namespace tutti::transport {
namespace {

// Thread sanitizer sees only one of the addresses at which a process's ranks map their arena, so it cannot know that a
// message which names memory comes after that memory was written: then the kernel copies for threads too.
#if defined(__SANITIZE_THREAD__)
constexpr bool threads_copy = false;
#else
constexpr bool threads_copy = true;
#endif

// The word that others read and write to find out whether they may. They write the value that it holds.
constexpr std::uint64_t tried_value = 0x74757474692d6d65;
std::uint64_t tried = tried_value;

using Call = ssize_t (*)(pid_t, const iovec*, unsigned long, const iovec*, unsigned long, unsigned long);

bool copy(Call call, int process, std::byte* ours, std::uint64_t address, std::size_t bytes) {
    while (bytes > 0) {
        const iovec local{ours, bytes};
        const iovec remote{reinterpret_cast<void*>(address), bytes};
        const ssize_t count = call(process, &local, 1, &remote, 1, 0);
        if (count <= 0) return false;
        ours += count;
        address += static_cast<std::uint64_t>(count);
        bytes -= static_cast<std::size_t>(count);
    }
    return true;
}
bool copy_from(int process, std::byte* to, std::uint64_t address, std::size_t bytes) {
    return copy(::process_vm_readv, process, to, address, bytes);
}

}  // namespace

bool PeerMemory::allowed() {
    const int parent = ::getpid();
    const pid_t child = ::fork();
    if (child == 0) ::_exit(can_watch() && reaches(parent, place_to_try()) ? 0 : 1);
    int status = -1;
    while (child > 0 && ::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return child > 0 && status == 0;
}

std::uint64_t PeerMemory::place_to_try() noexcept {
    return reinterpret_cast<std::uint64_t>(&tried);
}

bool PeerMemory::reaches(int process, std::uint64_t place_to_try) noexcept {
    std::uint64_t word = 0;
    auto* const at = reinterpret_cast<std::byte*>(&word);
    return copy(::process_vm_readv, process, at, place_to_try, sizeof word) && word == tried_value &&
           copy(::process_vm_writev, process, at, place_to_try, sizeof word);
}

bool PeerMemory::can_watch() noexcept {
    return static_cast<bool>(UniqueFd(static_cast<int>(::syscall(__NR_pidfd_open, ::getpid(), 0))));
}

PeerMemory::PeerMemory(int process) : own_(process == ::getpid()) {
    if (!own_) {
        handle_ = UniqueFd(static_cast<int>(::syscall(__NR_pidfd_open, process, 0)));
        if (!handle_) return;
    }
    process_ = process;
}

bool PeerMemory::read(std::byte* to, std::uint64_t address, std::size_t bytes) const {
    TUTTI_ASSERT(process_ > 0);
    TUTTI_ASSERT(to != nullptr || bytes == 0);
    if (own_ && threads_copy) {
        std::memcpy(to, reinterpret_cast<const std::byte*>(address), bytes);
        return true;
    }
    return copy_from(process_, to, address, bytes);
}

bool PeerMemory::write(std::uint64_t address, const std::byte* from, std::size_t bytes) const {
    TUTTI_ASSERT(process_ > 0);
    TUTTI_ASSERT(from != nullptr || bytes == 0);
    if (own_ && threads_copy) {
        std::memcpy(reinterpret_cast<std::byte*>(address), from, bytes);
        return true;
    }
    return copy(::process_vm_writev, process_, const_cast<std::byte*>(from), address, bytes);
}

bool PeerMemory::reachable(const std::byte* at, std::size_t bytes) {
    TUTTI_ASSERT(at != nullptr || bytes == 0);
    std::byte ends[2];
    const auto address = reinterpret_cast<std::uint64_t>(at);
    return bytes == 0 ||
           (copy_from(::getpid(), &ends[0], address, 1) && copy_from(::getpid(), &ends[1], address + bytes - 1, 1));
}

bool PeerMemory::running() const {
    TUTTI_ASSERT(process_ > 0);
    if (own_) return true;
    if (!alive()) return false;
    std::ifstream status(fmt::format("/proc/{}/stat", process_));
    std::string text{std::istreambuf_iterator<char>(status), {}};
    const std::size_t name_end = text.rfind(") ");  // the name may hold anything
    const char state = name_end == std::string::npos ? 'X' : text[name_end + 2];
    return state != 'T' && state != 't' && state != 'Z' && state != 'X';
}

bool PeerMemory::same() const {
    TUTTI_ASSERT(process_ > 0);
    if (own_) return true;
    const auto now = std::chrono::steady_clock::now();
    if (now - seen_alive_ < trusted) return true;
    if (!alive()) return false;
    seen_alive_ = now;
    return true;
}

bool PeerMemory::alive(std::chrono::milliseconds patience) const {
    TUTTI_ASSERT(process_ > 0);
    TUTTI_ASSERT(patience.count() >= 0);
    if (own_) return true;
    pollfd entry{handle_.get(), POLLIN, 0};
    int gone = 0;
    do {
        gone = ::poll(&entry, 1, static_cast<int>(patience.count()));
    } while (gone < 0 && errno == EINTR);
    return gone == 0;
}

}  // namespace tutti::transport
