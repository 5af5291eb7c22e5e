// Huge pages for buffers that are used often.
#include "core/huge_pages.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <tutti/error.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

namespace tutti {
namespace {

constexpr std::size_t page = HugePages::page_bytes;

/// Touched memory that begins `offset` bytes behind a boundary of huge pages, with nothing else around it.
class Memory {
 public:
    explicit Memory(std::size_t bytes, std::size_t offset = 0) : whole_(bytes + 4 * page), bytes_(bytes) {
        base_ = static_cast<std::byte*>(
            ::mmap(nullptr, whole_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
        const auto at = reinterpret_cast<std::uintptr_t>(base_);
        begin_ = base_ + ((at + 2 * page - 1) / page * page - at) + offset;
        ::mprotect(base_, 4096, PROT_NONE);       // so that the kernel tells about each apart
        ::prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);  // where they are the rule the first touch would bring them
        for (std::size_t i = 0; i < bytes; ++i) begin_[i] = value(i);
        ::prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);
    }
    ~Memory() { ::munmap(base_, whole_); }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

    std::byte* begin() const { return begin_; }
    std::size_t bytes() const { return bytes_; }
    static std::byte value(std::size_t i) { return static_cast<std::byte>(i * 31 + (i >> 12)); }
    bool intact() const {
        for (std::size_t i = 0; i < bytes_; ++i) {
            if (begin_[i] != value(i)) return false;
        }
        return true;
    }
    /// In huge pages.
    std::size_t huge_bytes() const {
        std::ifstream maps("/proc/self/smaps");
        bool inside = false;
        std::size_t total = 0;
        for (std::string line; std::getline(maps, line);) {
            std::uintptr_t low = 0, high = 0;
            std::size_t kib = 0;
            const auto at = reinterpret_cast<std::uintptr_t>(begin_);
            if (std::sscanf(line.c_str(), "%lx-%lx ", &low, &high) == 2)
                inside = low < at + bytes_ && at < high;
            else if (inside && std::sscanf(line.c_str(), "AnonHugePages: %zu kB", &kib) == 1)
                total += kib << 10;
        }
        return total;
    }

 private:
    std::byte* base_;
    std::byte* begin_;
    std::size_t whole_, bytes_;
};

/// Whether this system collapses at all; the reason otherwise.
std::string missing() {
    if (!HugePages().enabled()) return "this system's setting is never";
    Memory memory(page);
    if (::madvise(memory.begin(), page, 25 /* MADV_COLLAPSE */) == 0) return {};
    return std::string("this kernel does not collapse: ") + std::strerror(errno);
}

void use(HugePages& pages, const Memory& memory, std::uint32_t times) {
    for (std::uint32_t i = 0; i < times; ++i) pages.used(memory.begin(), memory.bytes());
}

/// The kernel leaves out a page that is in use elsewhere at that moment, so there are some more uses.
std::size_t huge_bytes_after_all(HugePages& pages, const Memory& memory, std::size_t wanted) {
    for (int i = 0; i < 200 && memory.huge_bytes() < wanted; ++i) use(pages, memory, 1);
    return memory.huge_bytes();
}

class HugePagesOfCallers : public ::testing::Test {
 protected:
    HugePagesOfCallers() { ::unsetenv("TUTTI_HUGE_PAGES"); }
    ~HugePagesOfCallers() override { ::unsetenv("TUTTI_HUGE_PAGES"); }
};

TEST_F(HugePagesOfCallers, come_when_the_buffer_was_used_often_and_change_nothing_else) {
    if (const std::string why = missing(); !why.empty()) GTEST_SKIP() << why;
    HugePages pages;
    Memory memory(4 * page);
    use(pages, memory, HugePages::uses_before - 1);
    EXPECT_EQ(memory.huge_bytes(), 0U);
    use(pages, memory, 1);
    EXPECT_GT(memory.huge_bytes(), 0U);
    EXPECT_EQ(huge_bytes_after_all(pages, memory, 4 * page), 4 * page);
    EXPECT_TRUE(memory.intact());
}

TEST_F(HugePagesOfCallers, are_those_that_the_buffer_covers_for_the_most_part) {
    if (const std::string why = missing(); !why.empty()) GTEST_SKIP() << why;
    const struct {
        std::size_t offset, bytes, huge;
    } cases[] = {{page / 4, page / 2, page},
                 {page / 4, page / 2 - 1, page},
                 {page / 4, HugePages::least_bytes, page},
                 {page / 4, HugePages::least_bytes - 1, 0},
                 {page - 4096, HugePages::least_bytes, page},  // where most of it lies
                 {page / 2 + 4096, page, page},
                 {page / 2 + 4096, 2 * page, 2 * page},
                 {16, page, page},
                 {page - 4096, 2 * page, 2 * page}};
    for (const auto& [offset, bytes, huge] : cases) {
        HugePages pages;
        Memory memory(bytes, offset);
        use(pages, memory, HugePages::uses_before);
        EXPECT_EQ(huge_bytes_after_all(pages, memory, huge), huge) << offset << " " << bytes;
        EXPECT_TRUE(memory.intact());
    }
}

TEST_F(HugePagesOfCallers, of_short_buffers_bring_only_so_much_memory_that_nobody_touched) {
    if (const std::string why = missing(); !why.empty()) GTEST_SKIP() << why;
    HugePages pages;
    constexpr std::size_t added = page - HugePages::least_bytes, fit = HugePages::added_bytes_max / added;
    const auto huge = [&](std::size_t count, std::size_t bytes) {
        std::vector<std::unique_ptr<Memory>> memories;
        std::size_t total = 0;
        for (std::size_t i = 0; i < count; ++i) {
            memories.push_back(std::make_unique<Memory>(bytes));
            total += huge_bytes_after_all(pages, *memories.back(), page);
            EXPECT_TRUE(memories.back()->intact());
        }
        return total / page;
    };
    EXPECT_EQ(huge(fit + 2, HugePages::least_bytes), fit);
    EXPECT_EQ(huge(2, page / 2), 2U) << "of what is touched for the most part there may be more";
}

TEST_F(HugePagesOfCallers, of_many_bytes_come_with_several_uses) {
    if (const std::string why = missing(); !why.empty()) GTEST_SKIP() << why;
    HugePages pages;
    Memory memory(HugePages::bytes_at_once + 4 * page);
    use(pages, memory, HugePages::uses_before);
    EXPECT_GT(memory.huge_bytes(), 0U);
    EXPECT_LE(memory.huge_bytes(), HugePages::bytes_at_once);
    EXPECT_EQ(huge_bytes_after_all(pages, memory, memory.bytes()), memory.bytes());
    EXPECT_TRUE(memory.intact());
}

TEST_F(HugePagesOfCallers, stay_away_from_memory_that_is_gone) {
    HugePages pages;
    auto memory = std::make_unique<Memory>(4 * page);
    const std::byte* at = memory->begin();
    memory.reset();
    for (int i = 0; i < 100; ++i) pages.used(at, 4 * page);
}

// Memory of one place: as an allocator gives it back and gets it again.
void renew(const Memory& memory) {
    ::madvise(memory.begin(), memory.bytes(), MADV_DONTNEED);
    ::prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    std::fill_n(memory.begin(), memory.bytes(), std::byte{1});
    ::prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);
}

TEST_F(HugePagesOfCallers, come_for_the_next_buffer_in_the_same_place) {
    if (const std::string why = missing(); !why.empty()) GTEST_SKIP() << why;
    HugePages pages;
    Memory memory(4 * page);
    for (int round = 0; round < 3; ++round) {
        EXPECT_EQ(huge_bytes_after_all(pages, memory, 4 * page), 4 * page) << round;
        use(pages, memory, 4 * HugePages::uses_before);
        EXPECT_EQ(memory.huge_bytes(), 4 * page);
        renew(memory);
        ASSERT_EQ(memory.huge_bytes(), 0U);
    }
}

TEST_F(HugePagesOfCallers, come_ever_more_seldom_where_every_use_has_other_memory) {
    if (const std::string why = missing(); !why.empty()) GTEST_SKIP() << why;
    HugePages pages;
    Memory memory(page);
    int times = 0;
    for (std::uint32_t i = 0; i < 32 * HugePages::uses_before; ++i) {
        renew(memory);
        use(pages, memory, 1);
        if (memory.huge_bytes() > 0) ++times;
    }
    EXPECT_GE(times, 1);
    EXPECT_LE(times, 6);
}

TEST_F(HugePagesOfCallers, leave_a_child_of_fork_its_copy) {
    if (const std::string why = missing(); !why.empty()) GTEST_SKIP() << why;
    Memory memory(2 * page);
    int start[2];
    ASSERT_EQ(::pipe(start), 0);
    const pid_t child = ::fork();
    if (child == 0) {
        char go = 0;
        (void)!::read(start[0], &go, 1);
        ::_exit(memory.intact() ? 0 : 1);
    }
    HugePages pages;
    use(pages, memory, HugePages::uses_before);
    std::fill_n(memory.begin(), memory.bytes(), std::byte{0});
    ASSERT_EQ(::write(start[1], "x", 1), 1);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    for (const int fd : start) ::close(fd);
}

TEST_F(HugePagesOfCallers, are_left_alone_where_that_is_asked_for) {
    for (const char* value : {"own", "0"}) {
        ::setenv("TUTTI_HUGE_PAGES", value, 1);
        HugePages pages;
        EXPECT_FALSE(pages.enabled());
        Memory memory(2 * page);
        use(pages, memory, 3 * HugePages::uses_before);
        EXPECT_EQ(memory.huge_bytes(), 0U) << value;
    }
    ::setenv("TUTTI_HUGE_PAGES", "perhaps", 1);
    EXPECT_THROW(HugePages(), InvalidArgument);
}

}  // namespace
}  // namespace tutti
