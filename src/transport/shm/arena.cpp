#include "transport/shm/arena.hpp"

#include "core/assert.hpp"
#include "core/membarrier.hpp"
#include "transport/shm/memory_file.hpp"

#include <tutti/error.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <utility>

namespace tutti::transport {
namespace {

constexpr std::size_t page_bytes = 4096;

std::size_t round_up(std::size_t value, std::size_t unit) {
    TUTTI_ASSERT(unit > 0);
    return (value + unit - 1) / unit * unit;
}

std::size_t control_bytes() {
    return round_up(sizeof(RankControl), page_bytes);
}
std::uint64_t parts_begin(const ArenaLayout& layout) {
    return round_up(layout.total_bytes(), Arena::part_alignment);
}
// The size of a file that takes memory only where it has been written.
std::uint64_t file_bytes(const ArenaLayout& layout) {
    return parts_begin(layout) + Arena::parts_bytes;
}
std::size_t ring_stride(const ArenaLayout& layout) {
    TUTTI_ASSERT(layout.ring_bytes == 0 || std::has_single_bit(layout.ring_bytes));
    return layout.ring_bytes == 0 ? 0 : round_up(sizeof(RingControl) + layout.ring_bytes, page_bytes);
}
/// Of all messages that one rank gets, and of those from one other.
constexpr std::size_t rings_bytes = std::size_t{4} << 20, least_ring_bytes = std::size_t{64} << 10,
                      most_ring_bytes = std::size_t{2} << 20;

}  // namespace

ArenaLayout ArenaLayout::of(int ranks, int group_size) {
    TUTTI_ASSERT(ranks >= 1 && ranks <= group_size);
    ArenaLayout layout;
    layout.ranks = ranks;
    // Writes to a ring that is longer than a core's cache are quick: its reader no longer holds the lines. With more
    // ranks there are more rings.
    layout.ring_bytes =
        std::clamp(std::bit_floor(rings_bytes / static_cast<std::size_t>(ranks)), least_ring_bytes, most_ring_bytes);
    TUTTI_ASSERT(std::has_single_bit(layout.ring_bytes));
    if (group_size == 2) layout.slot_bytes *= 2;
    return layout;
}

std::size_t ArenaLayout::rank_bytes() const {
    TUTTI_ASSERT(slots > 0 && slots % 4 == 0);
    TUTTI_ASSERT(ranks >= 1);
    return control_bytes() + slots * slot_bytes + static_cast<std::size_t>(ranks) * ring_stride(*this);
}

std::size_t ArenaLayout::total_bytes() const {
    return static_cast<std::size_t>(ranks) * rank_bytes();
}

Arena::Arena(const ArenaLayout& layout, std::byte* base, UniqueFd fd)
    : layout_(layout), rank_bytes_(layout.rank_bytes()), base_(base), fd_(std::move(fd)) {
    TUTTI_ASSERT(base_ != nullptr);
    TUTTI_ASSERT(layout_.ranks >= 1);
}

Arena::~Arena() {
    munmap(base_, layout_.total_bytes());
}

std::byte* Arena::map(int fd, std::uint64_t offset, const ArenaLayout& layout) {
    TUTTI_ASSERT(offset % page_bytes == 0);
    const int flags = fd >= 0 ? MAP_SHARED : MAP_SHARED | MAP_ANONYMOUS;
    void* base = mmap(nullptr, layout.total_bytes(), PROT_READ | PROT_WRITE, flags | MAP_NORESERVE, fd,
                      static_cast<off_t>(offset));
    if (base == MAP_FAILED) {
        throw DistBackendError(
            fmt::format("cannot map {} bytes of shared memory: {}", layout.total_bytes(), std::strerror(errno)));
    }
    return static_cast<std::byte*>(base);
}

// Fresh pages are zero, the initial value of every word in them: no rank has to write it.
std::shared_ptr<Arena> Arena::make(UniqueFd fd, const ArenaLayout& layout) {
    std::byte* base = map(fd.get(), 0, layout);
    return std::shared_ptr<Arena>(new Arena(layout, base, std::move(fd)));
}

std::shared_ptr<Arena> Arena::create_private(const ArenaLayout& layout) {
    return make(UniqueFd{}, layout);
}

std::shared_ptr<Arena> Arena::create_shared(const ArenaLayout& layout) {
    return make(make_memory_file("tutti", file_bytes(layout)), layout);
}

std::shared_ptr<Arena> Arena::attach(UniqueFd fd, const ArenaLayout& layout) {
    struct stat status {};
    if (fstat(fd.get(), &status) != 0 || static_cast<std::uint64_t>(status.st_size) != file_bytes(layout)) {
        throw DistBackendError(fmt::format("shared memory of {} bytes: expected {}; do all ranks run the same version?",
                                           status.st_size, file_bytes(layout)));
    }
    return make(std::move(fd), layout);
}

// Opening another process's descriptor needs the same permission as reading its memory, and no help from it.
std::shared_ptr<Arena> Arena::find(int process, int descriptor, std::uint64_t identity, const ArenaLayout& layout) {
    UniqueFd fd(::open(fmt::format("/proc/{}/fd/{}", process, descriptor).c_str(), O_RDWR | O_CLOEXEC));
    struct stat status {};
    if (!fd || ::fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode) ||
        static_cast<std::uint64_t>(status.st_size) != file_bytes(layout)) {
        return nullptr;
    }
    auto arena = make(std::move(fd), layout);
    return arena->control(0).identity.load(std::memory_order_acquire) == identity ? arena : nullptr;
}

void Arena::say_attached(int rank, RankControl::Attached as) const noexcept {
    TUTTI_ASSERT(rank >= 0 && rank < layout_.ranks);
    TUTTI_ASSERT(as != RankControl::Attached::not_yet);
    control(rank).attached.store(as, std::memory_order_release);
    std::atomic<std::uint32_t>& attachments = control(0).attachments;
    if (attachments.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<std::uint32_t>(layout_.ranks)) {
        futex_wake(attachments);
    }
}

bool Arena::wait_until_attached(std::chrono::nanoseconds limit) const noexcept {
    TUTTI_ASSERT(limit.count() >= 0);
    std::atomic<std::uint32_t>& attachments = control(0).attachments;
    const auto all = static_cast<std::uint32_t>(layout_.ranks);
    const auto end = std::chrono::steady_clock::now() + limit;
    for (;;) {
        const std::uint32_t seen = attachments.load(std::memory_order_acquire);
        if (seen == all) return true;
        const auto now = std::chrono::steady_clock::now();
        if (now >= end) return false;
        futex_wait(attachments, seen, end - now);
    }
}

std::shared_ptr<Arena> Arena::part(std::shared_ptr<const Arena> whole, std::uint64_t offset, const ArenaLayout& layout,
                                   std::vector<int> ranks_of_whole) {
    TUTTI_ASSERT(whole != nullptr && whole->whole_ == nullptr);
    TUTTI_ASSERT(offset % part_alignment == 0);
    TUTTI_ASSERT(ranks_of_whole.size() == static_cast<std::size_t>(layout.ranks));
    if (offset + layout.total_bytes() > parts_bytes) {
        throw DistBackendError(
            fmt::format("no room for another group's shared memory: {} bytes are used of {}", offset, parts_bytes));
    }
    offset += parts_begin(whole->layout_);
    std::shared_ptr<Arena> arena(new Arena(layout, map(whole->fd_.get(), offset, layout), UniqueFd{}));
    TUTTI_ASSERT(offset >= whole->layout_.total_bytes());
    arena->offset_ = offset;
    arena->doors_ = std::move(ranks_of_whole);
    arena->whole_ = std::move(whole);
    return arena;
}

UniqueFd Arena::fd() const {
    UniqueFd copy(fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0));
    if (!copy) throw DistBackendError(fmt::format("cannot copy a descriptor: {}", std::strerror(errno)));
    return copy;
}

void Arena::leave_part(int rank) noexcept {
    TUTTI_ASSERT(whole_ != nullptr);
    TUTTI_ASSERT(rank >= 0 && rank < layout_.ranks);
    control(rank).left.store(1, std::memory_order_release);
    ring_all_doorbells(rank);
    const std::uint32_t before = control(0).departures.fetch_add(1, std::memory_order_acq_rel);
    if (before + 1 != static_cast<std::uint32_t>(layout_.ranks)) return;
    // If that fails, the memory stays until the world ends.
    (void)!fallocate(whole_->fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset_),
                     static_cast<off_t>(layout_.total_bytes()));
}

std::byte* Arena::slot(int rank, std::uint64_t publication) const noexcept {
    TUTTI_ASSERT(rank >= 0 && rank < layout_.ranks);
    const std::size_t index = place(rank, publication);
    TUTTI_ASSERT(index < static_cast<std::size_t>(layout_.ranks) * layout_.slots);
    return reinterpret_cast<std::byte*>(&control(static_cast<int>(index / layout_.slots))) + control_bytes() +
           (index % layout_.slots) * layout_.slot_bytes;
}

RingControl& Arena::ring_control(int from, int to) const noexcept {
    TUTTI_ASSERT(to >= 0 && to < layout_.ranks);
    TUTTI_ASSERT(layout_.ring_bytes > 0);
    std::byte* rings =
        reinterpret_cast<std::byte*>(&control(from)) + control_bytes() + layout_.slots * layout_.slot_bytes;
    return *reinterpret_cast<RingControl*>(rings + static_cast<std::size_t>(to) * ring_stride(layout_));
}

std::byte* Arena::ring_data(int from, int to) const noexcept {
    return reinterpret_cast<std::byte*>(&ring_control(from, to)) + sizeof(RingControl);
}

// As soon as all ranks rely on that, they leave fences to the rank that goes to sleep. That rank makes them for all
// from the start: it may not see yet that others have stopped.
void Arena::choose_fences(const std::shared_ptr<Arena>& arena, bool sleeps_often) {
    TUTTI_ASSERT(arena != nullptr);
    if (sleeps_often) return;
    arena->fences_for_all_ = true;
    membarrier::when_global([arena] {
        RankControl& first = arena->control(0);
        if (first.relying.fetch_add(1) + 1 == static_cast<std::uint32_t>(arena->layout_.ranks))
            first.nobody_fences.store(1, std::memory_order_seq_cst);  // any order would do: see its declaration
    });
}

// The membarrier is a full fence at some point of each other rank's program: this rank sees that rank's stores from
// before that point, and that rank's later loads see this one's stores.
void Arena::fence_for_sleep() const noexcept {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if ((whole_ ? whole_.get() : this)->fences_for_all_) membarrier::fence_all_processes();
}

void Arena::wake(int rank, RankControl& peer) const noexcept {
    TUTTI_ASSERT(rank >= 0 && rank < layout_.ranks);
    if (peer.sleeping.load(std::memory_order_relaxed) == RankControl::on_bell) {
        const auto index = static_cast<std::size_t>(rank);
        const UniqueFd& bell = whole_ ? whole_->bells_[static_cast<std::size_t>(doors_[index])] : bells_[index];
        (void)!::eventfd_write(bell.get(), 1);
        return;
    }
    peer.rings.fetch_add(1, std::memory_order_release);  // behind the change: see sleep()
    futex_wake(peer.rings);
}

void Arena::silence(const UniqueFd& bell) noexcept {
    eventfd_t rings = 0;
    (void)!::eventfd_read(bell.get(), &rings);
}

void Arena::ring_doorbell(int rank) const noexcept {
    TUTTI_ASSERT(rank >= 0 && rank < layout_.ranks);
    fence_for_doorbell();
    wake_if_asleep(rank);
}

void Arena::futex_wake(std::atomic<std::uint32_t>& word) noexcept {
    syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Arena::futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t seen, std::chrono::nanoseconds limit) noexcept {
    TUTTI_ASSERT(limit.count() >= 0);
    timespec time{};
    time.tv_sec = static_cast<time_t>(limit.count() / 1'000'000'000);
    time.tv_nsec = static_cast<long>(limit.count() % 1'000'000'000);
    syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT, seen, &time, nullptr, 0);
}

}  // namespace tutti::transport
