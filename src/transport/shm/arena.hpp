// Arena: the memory that the ranks of one host share: a staging area, small slots, byte rings, doorbells.
//
// One mapping for all local ranks, laid out identically everywhere; addresses are computed, nothing is negotiated.
// Every word has one writer, and words with different writers are 128 bytes apart (the adjacent-line prefetcher pairs
// lines). Threads: one thread of a rank at a time uses that rank's side; different ranks run in parallel.
//
// Doorbell. A rank that is about to sleep sets `sleeping`, looks once more, and waits on `rings` (futex). Whoever
// changes something that it may wait for looks at `sleeping` after the change. Between the two either side needs a full
// fence, so that one of them sees the other. It would cost the busy side the time in which its change becomes visible,
// at every message; so the side that goes to sleep makes it for all, with membarrier(2), where every rank can and
// sleeps seldom.
#pragma once

#include "core/unique_fd.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace tutti::transport {

inline constexpr std::size_t line_spacing = 128;

/// In a stamp: the slot holds no values but tells where they lie (InPlace).
inline constexpr std::uint64_t published_in_place = std::uint64_t{1} << 63;

/// What a slot holds of a publication in symmetric memory: this, then its chunks in order.
struct InPlace {
    struct Part {
        std::uint64_t first = 0;  ///< byte of the publication with which it begins
        std::uint64_t place = 0;  ///< Place::bits()
    };
    std::uint64_t parts = 0;
    std::uint64_t offered = 0;  ///< not 0: others may write there
};

/// What a rank contributes to a small collective: header and payload together, so that a short payload comes in the
/// header's cache line.
struct alignas(line_spacing) SmallSlot {
    static constexpr std::size_t bytes = 8192;
    static constexpr std::size_t payload_bytes = bytes - 16;
    std::atomic<std::uint64_t> sequence{0};  ///< written last
    std::uint64_t fingerprint = 0;
    std::array<std::byte, payload_bytes> payload;  // left as it is: fresh pages are zero
    SmallSlot() {}                                 // NOLINT(modernize-use-equals-default): = default would clear it
};
static_assert(sizeof(SmallSlot) == SmallSlot::bytes);

/// What one rank tells the others.
struct RankControl {
    static constexpr std::size_t slots_max = 16;
    /// By slot: one more than the publication that it holds, and perhaps published_in_place. Publications need not be
    /// made in order.
    alignas(line_spacing) std::atomic<std::uint64_t> stamps[slots_max]{};
    alignas(line_spacing) std::atomic<std::uint64_t> released{0};  ///< publications below this are not needed any more
    alignas(line_spacing) std::atomic<std::uint32_t> rings{0};     ///< doorbell
    std::atomic<std::uint32_t> sleeping{0};
    /// The last operations of this rank: whoever meets one compares it with its own.
    struct Record {
        std::atomic<std::uint64_t> sequence{0};
        std::atomic<std::uint64_t> fingerprint{0};
    };
    static constexpr std::size_t record_count = 16;
    alignas(line_spacing) Record records[record_count];
    /// Of rank 0's only: some rank cannot make fences for the others, or sleeps often.
    alignas(line_spacing) std::atomic<std::uint32_t> everyone_fences{0};
    /// Of rank 0's only, set before anybody attaches: ranks may read each other's memory.
    std::atomic<std::uint32_t> memory_readable{0};
    /// Small collectives, by sequence number: a rank may be this many ahead of the slowest that reads.
    static constexpr std::size_t small_slots = 8;
    alignas(line_spacing) SmallSlot small[small_slots];
};

/// A single-producer single-consumer ring of bytes: `written` and `taken` count bytes since the start.
struct RingControl {
    alignas(line_spacing) std::atomic<std::uint64_t> written{0};
    alignas(line_spacing) std::atomic<std::uint64_t> taken{0};
};

struct ArenaLayout {
    int ranks = 1;
    std::uint32_t slots = 8;
    std::size_t slot_bytes = std::size_t{128} << 10;
    std::size_t ring_bytes = std::size_t{64} << 10;  ///< a power of two

    std::size_t rank_bytes() const;
    std::size_t total_bytes() const;
};

class Arena {
 public:
    /// Memory for the threads of one process.
    static std::shared_ptr<Arena> create_private(const ArenaLayout& layout);
    /// New shared memory; its descriptor names it, and vanishes with the last mapping.
    static std::shared_ptr<Arena> create_shared(const ArenaLayout& layout);
    /// Maps what another rank created. Throws DistBackendError if the memory has another size.
    static std::shared_ptr<Arena> attach(UniqueFd fd, const ArenaLayout& layout);
    ~Arena();
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;

    const ArenaLayout& layout() const noexcept { return layout_; }
    /// The descriptor to pass on, once.
    UniqueFd take_fd() noexcept { return std::move(fd_); }
    /// `sleeps_often`: this rank has no core of its own. Call before the first sleep.
    void choose_fences(bool sleeps_often) noexcept;

    RankControl& control(int rank) const noexcept {
        return *reinterpret_cast<RankControl*>(base_ + static_cast<std::size_t>(rank) * layout_.rank_bytes());
    }
    std::byte* slot(int rank, std::uint64_t publication) const noexcept;
    RingControl& ring_control(int from, int to) const noexcept;
    std::byte* ring_data(int from, int to) const noexcept;

    /// Wakes `rank` if it sleeps. Call after the change that it may wait for.
    void ring_doorbell(int rank) const noexcept;
    void ring_all_doorbells(int except) const noexcept;
    /// Sleeps until a doorbell, a signal or `limit`, unless `ready()` is already true.
    template <class Ready>
    void sleep(int rank, std::chrono::nanoseconds limit, Ready ready) const {
        RankControl& own = control(rank);
        const std::uint32_t seen = own.rings.load(std::memory_order_relaxed);
        own.sleeping.store(1, std::memory_order_seq_cst);
        fence_for_sleep();
        if (!ready()) futex_wait(own.rings, seen, limit);
        own.sleeping.store(0, std::memory_order_relaxed);
    }

 private:
    Arena(const ArenaLayout& layout, std::byte* base, UniqueFd fd);
    static std::shared_ptr<Arena> map(UniqueFd fd, const ArenaLayout& layout, bool initialize);
    void fence_for_sleep() const noexcept;
    static void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t seen,
                           std::chrono::nanoseconds limit) noexcept;

    ArenaLayout layout_;
    std::byte* base_ = nullptr;
    UniqueFd fd_;
};

}  // namespace tutti::transport
