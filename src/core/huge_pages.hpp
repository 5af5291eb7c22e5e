// HugePages: gives huge pages to buffers of the caller's that collectives use again and again, unless TUTTI_HUGE_PAGES
// forbids it.
//
// The kernel copies between processes page by page; from huge pages (2 MiB) it takes half the time. Programs seldom ask
// for them, and by the usual setting (`madvise`) the kernel gives none unasked. So a buffer that was used often is
// collapsed in place (MADV_COLLAPSE, Linux 6.1): contents, addresses, protection and the pages that a fork shares stay
// as they are. It takes as long as a few uses. Where the kernel refuses, as for memory that is pinned, the pages stay
// ordinary.
//
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
    /// Fewer bytes never count.
    static constexpr std::size_t least_bytes = std::size_t{128} << 10;
    static constexpr std::uint32_t uses_before = 16;
    /// The most that one call collapses, which takes it 4 ms longer, more where all CPUs are busy; of more than 128 MiB
    /// an eighth.
    static constexpr std::size_t bytes_at_once = std::size_t{16} << 20;
    /// The most untouched memory, in all, that huge pages add to buffers much shorter than a huge page.
    static constexpr std::size_t added_bytes_max = std::size_t{64} << 20;

    /// Whether the system allows huge pages: its setting is not `never`.
    static bool system_has_them();

    /// On if TUTTI_HUGE_PAGES is 1, the default, and the system has them. Throws InvalidArgument for a wrong value.
    HugePages();

    /// An operation is about to use these bytes, which no other process knows of yet. A huge page counts if they cover
    /// half or more of it; if none does, the one that holds most of them.
    void used(const std::byte* at, std::size_t bytes);
    bool enabled() const noexcept { return enabled_; }

 private:
    struct Buffer {
        std::uintptr_t begin = 0, end = 0;
        std::uintptr_t next = 0;  ///< the first byte not yet collapsed; `end`: nothing is to be collapsed
        std::uint32_t uses_left = uses_before;
        std::uint32_t wait = uses_before;  ///< longer where the collapsed pages did not stay
        bool collapsed = false;            ///< just now
        std::uint64_t last_use = 0;
    };
    Buffer& find(std::uintptr_t begin, std::uintptr_t end);
    std::optional<bool> is_huge(const Buffer& buffer) const;
    void look_at(Buffer& buffer) const;
    bool affordable(const Buffer& buffer);

    bool enabled_;
    UniqueFd pages_;  ///< the kernel's account of this process's pages
    std::uint64_t clock_ = 0;
    std::size_t added_bytes_ = 0;
    std::array<Buffer, 64> buffers_{};
};

}  // namespace tutti
