#include "core/huge_pages.hpp"

#include "core/env.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <fstream>
#include <string>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

namespace tutti {
namespace {

constexpr std::uintptr_t half = HugePages::page_bytes / 2;

// Collapsing asks nobody; who has forbidden huge pages has reasons.
bool system_has_them() {
    std::string setting;
    std::getline(std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled"), setting);
    return !setting.empty() && setting.find("[never]") == std::string::npos;
}

std::uintptr_t nearest_boundary(std::uintptr_t at) {
    return (at + half) / HugePages::page_bytes * HugePages::page_bytes;
}

}  // namespace

HugePages::HugePages() : enabled_(env::get_bool("TUTTI_HUGE_PAGES", true) && system_has_them()) {}

HugePages::Buffer& HugePages::find(std::uintptr_t begin, std::uintptr_t end) {
    const auto found =
        std::ranges::find_if(buffers_, [&](const Buffer& b) { return b.begin == begin && b.end == end; });
    if (found != buffers_.end()) return *found;
    Buffer& oldest = *std::ranges::min_element(buffers_, {}, &Buffer::last_use);
    oldest = {.begin = begin, .end = end, .next = end};
    return oldest;
}

void HugePages::used(const std::byte* at, std::size_t bytes) {
    if (!enabled_ || bytes < half) return;
    const auto address = reinterpret_cast<std::uintptr_t>(at);
    const std::uintptr_t begin = nearest_boundary(address), end = nearest_boundary(address + bytes);
    if (begin >= end) return;
    Buffer& buffer = find(begin, end);
    buffer.last_use = ++clock_;
    // Looked at again, ever more seldom: other memory may have come to the same place, or a page was pinned before.
    if (++buffer.uses == buffer.due) {
        buffer.due *= 2;
        buffer.next = begin;
    }
    if (buffer.next == end) return;
    const std::uintptr_t stop = std::min<std::uintptr_t>(end, buffer.next + bytes_at_once);
    // Those that cannot be collapsed stay as they are.
    (void)!::madvise(reinterpret_cast<void*>(buffer.next), stop - buffer.next, MADV_COLLAPSE);
    buffer.next = stop;
}

}  // namespace tutti
