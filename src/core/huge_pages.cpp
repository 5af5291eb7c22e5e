#include "core/huge_pages.hpp"

#include "core/assert.hpp"
#include "core/log.hpp"
#include "core/settings.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <mutex>
#include <string>
#include <utility>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

namespace tutti {
namespace {

std::uintptr_t nearest_boundary(std::uintptr_t at) {
    return (at + HugePages::page_bytes / 2) / HugePages::page_bytes * HugePages::page_bytes;
}

// Linux 6.8's PAGEMAP_SCAN: headers are older.
struct Scan {
    std::uint64_t size = sizeof(Scan), flags = 0, start = 0, end = 0, walk_end = 0, regions = 0, region_count = 0,
                  max_pages = 0, category_inverted = 0, category_mask = 0, category_anyof_mask = 0, return_mask = 0;
};
struct Region {
    std::uint64_t start, end, categories;
};
constexpr std::uint32_t wait_max = std::uint32_t{1} << 20;
constexpr std::uint64_t is_huge_page = std::uint64_t{1} << 6;
constexpr unsigned long scan_pages = _IOWR('f', 16, Scan);

}  // namespace

// Collapsing needs no permission; an administrator who has forbidden huge pages has reasons.
bool HugePages::system_has_them() {
    std::string setting;
    std::getline(std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled"), setting);
    return !setting.empty() && setting.find("[never]") == std::string::npos;
}

HugePages::HugePages() : enabled_(settings::huge_pages() == settings::HugePages::all && system_has_them()) {
    if (enabled_) pages_ = UniqueFd(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
}

HugePages::Buffer& HugePages::find(std::uintptr_t begin, std::uintptr_t end) {
    TUTTI_ASSERT(begin < end && begin % page_bytes == 0 && end % page_bytes == 0);
    const auto found =
        std::ranges::find_if(buffers_, [&](const Buffer& b) { return b.begin == begin && b.end == end; });
    if (found != buffers_.end()) return *found;
    Buffer& oldest = *std::ranges::min_element(buffers_, {}, &Buffer::last_use);
    oldest = {.begin = begin, .end = end, .next = end};
    return oldest;
}

// Nothing where the kernel does not tell.
std::optional<bool> HugePages::is_huge(const Buffer& buffer) const {
    Region region{};
    TUTTI_ASSERT(buffer.begin < buffer.end);
    Scan scan;
    scan.start = buffer.begin;
    scan.end = buffer.end;
    scan.regions = reinterpret_cast<std::uintptr_t>(&region);
    scan.region_count = scan.max_pages = 1;
    scan.category_inverted = scan.category_mask = scan.return_mask = is_huge_page;  // one that is not
    const int found = pages_ ? ::ioctl(pages_.get(), scan_pages, &scan) : -1;
    return found < 0 ? std::nullopt : std::optional(found == 0);
}

// Other memory may have come to the same place since it was collapsed: once, or after every use, as in a program that
// makes a buffer anew each time. This checks whether the huge pages are still there at the next use.
void HugePages::look_at(Buffer& buffer) const {
    TUTTI_ASSERT(buffer.next == buffer.end && buffer.uses_left == 0);
    const std::optional<bool> huge = is_huge(buffer);
    const bool was_collapsed = std::exchange(buffer.collapsed, false);
    if (huge == true) {
        buffer.wait = uses_before;
    } else if (was_collapsed) {
        buffer.wait = std::min(2 * buffer.wait, wait_max);
    } else {
        buffer.next = buffer.begin;
    }
    buffer.uses_left = buffer.wait;
    TUTTI_ASSERT(buffer.wait >= uses_before && buffer.wait <= wait_max);
}

// Half of the huge page has been touched, or there is room for the rest.
bool HugePages::affordable(const Buffer& buffer) {
    TUTTI_ASSERT(buffer.begin % page_bytes == 0 && buffer.begin < buffer.end);
    if (buffer.end - buffer.begin > page_bytes) return true;
    std::array<unsigned char, page_bytes / 4096> resident{};
    const auto small = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    if (::mincore(reinterpret_cast<void*>(buffer.begin), page_bytes, resident.data()) != 0) return false;
    const auto touched = std::ranges::count_if(resident, [](unsigned char page) { return (page & 1) != 0; });
    const std::size_t added = page_bytes - std::min(page_bytes, static_cast<std::size_t>(touched) * small);
    if (added <= page_bytes / 2) return true;
    if (added_bytes_ + added > added_bytes_max) return false;
    added_bytes_ += added;
    TUTTI_ASSERT(added_bytes_ <= added_bytes_max);
    return true;
}

void HugePages::used(const std::byte* at, std::size_t bytes) {
    if (!enabled_ || bytes < least_bytes) return;
    TUTTI_ASSERT(at != nullptr);
    const auto address = reinterpret_cast<std::uintptr_t>(at);
    std::uintptr_t begin = nearest_boundary(address), end = nearest_boundary(address + bytes);
    if (begin >= end) {
        begin = (address + bytes / 2) / page_bytes * page_bytes;
        end = begin + page_bytes;
    }
    Buffer& buffer = find(begin, end);
    buffer.last_use = ++clock_;
    TUTTI_ASSERT(buffer.next >= begin && buffer.next <= end);
    TUTTI_ASSERT(buffer.next != end || buffer.uses_left > 0);
    if (buffer.next == end && --buffer.uses_left == 0) look_at(buffer);
    if (buffer.next == end) return;
    if (buffer.next == begin && !affordable(buffer)) {
        buffer.next = end;
        buffer.uses_left = buffer.wait = std::min(2 * buffer.wait, wait_max);
        return;
    }
    const std::uintptr_t eighth = (end - begin) / 8 / page_bytes * page_bytes;
    const std::uintptr_t stop = std::min(end, buffer.next + std::max<std::uintptr_t>(bytes_at_once, eighth));
    TUTTI_ASSERT(stop > buffer.next && stop <= end);
    static std::once_flag said;
    std::call_once(said, [] {
        TUTTI_INFO("buffers that are used often get huge pages in place (TUTTI_HUGE_PAGES=own: tutti's own alone)");
    });
    // Pages that the kernel cannot collapse stay as they are.
    (void)!::madvise(reinterpret_cast<void*>(buffer.next), stop - buffer.next, MADV_COLLAPSE);
    buffer.next = stop;
    buffer.collapsed = stop == end;
    if (buffer.collapsed) buffer.uses_left = 1;
}

}  // namespace tutti
