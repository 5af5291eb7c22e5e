// HugePages: gives huge pages to the caller's buffers that collectives use again and again, unless TUTTI_HUGE_PAGES
// forbids it.
//
// The kernel copies between processes page by page; with huge pages (2 MiB) a copy takes half the time. Programs seldom
// ask for huge pages, and with the usual setting (`madvise`) the kernel gives none unasked. So used() collapses a
// frequently used buffer: it asks the kernel to replace the buffer's pages by huge ones in place (MADV_COLLAPSE, Linux
// 6.1). Contents, addresses, protection and the pages that a fork shares stay as they are. Collapsing takes as long as
// a few uses. Where the kernel refuses, as for pinned memory, the pages stay ordinary.
// Threads: one at a time.
#pragma once

#include "core/unique_fd.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace tutti {

class HugePages {
 public:
    static constexpr std::size_t page_bytes = std::size_t{2} << 20;
    /// used() ignores shorter buffers.
    static constexpr std::size_t least_bytes = std::size_t{128} << 10;
    static constexpr std::uint32_t uses_before = 16;
    /// The most bytes that one call of used() collapses (in 4 ms, or more if all CPUs are busy); for a buffer of more
    /// than 128 MiB, an eighth of it.
    static constexpr std::size_t bytes_at_once = std::size_t{16} << 20;
    /// The most memory, in total, that collapsing may add for buffers of a single huge page less than half of which has
    /// been touched.
    static constexpr std::size_t added_bytes_max = std::size_t{64} << 20;

    /// Whether the system allows huge pages: its setting is not `never`.
    static bool system_has_them();

    /// Enabled if TUTTI_HUGE_PAGES is 1, the default, and the system allows huge pages. Throws InvalidArgument for an
    /// invalid value.
    HugePages();

    /// To be called before an operation uses these bytes, while no other process knows of them yet. Collapses the huge
    /// pages of which the bytes cover at least half, or, if there are none, the one around their middle.
    void used(const std::byte* at, std::size_t bytes);
    bool enabled() const noexcept { return enabled_; }

 private:
    struct Buffer {
        std::uintptr_t begin = 0, end = 0;
        std::uintptr_t next = 0;  ///< the first byte not yet collapsed; `end`: nothing is to be collapsed
        std::uint32_t uses_left = uses_before;
        std::uint32_t wait = uses_before;  ///< uses until the next check; grows where pages did not stay huge
        bool collapsed = false;            ///< at the last use
        std::uint64_t last_use = 0;
    };
    Buffer& find(std::uintptr_t begin, std::uintptr_t end);
    std::optional<bool> is_huge(const Buffer& buffer) const;
    void look_at(Buffer& buffer) const;
    bool affordable(const Buffer& buffer);

    bool enabled_;
    UniqueFd pages_;  ///< /proc/self/pagemap
    std::uint64_t clock_ = 0;
    std::size_t added_bytes_ = 0;
    std::array<Buffer, 64> buffers_{};
};

}  // namespace tutti
