// Arena: the memory that the ranks of one host share: a staging area, small slots, byte rings, doorbells.
//
// One mapping for all local ranks, laid out identically everywhere; addresses are computed, nothing is negotiated.
// Every word has one writer at a time, and words with different writers are 128 bytes apart (the adjacent-line
// prefetcher pairs lines). Beside each atomic stands why its order is enough on a CPU that reorders all that it may
// (Arm); MEMORY-ORDER.md has the argument as a whole, tests/memory_model tries it out. Threads: one thread of a rank at
// a time uses that rank's side; different ranks run in parallel.
//
// Doorbell. A rank that is about to sleep sets `sleeping`, looks once more, and waits on `rings` (futex). A rank that
// changes something that the sleeper may wait for looks at `sleeping` after the change. Between the two either side
// needs a full fence, so that one of them sees the other. On the busy side a fence would cost, at every message, the
// time in which its change becomes visible; so the side that goes to sleep makes it for all, with membarrier(2), where
// every rank can do that and sleeps seldom.
//
// A rank that waits for sockets too cannot sleep on memory. It has a bell, a descriptor to which a rank that wakes it
// writes, and sleeps in poll(2).
//
// Parts. Groups of some of the ranks have an arena each in the same file, behind the one of all, at a place that every
// rank can compute; they share the doorbells of all. A part takes memory only where it has been written to.
#pragma once

#include "core/assert.hpp"
#include "core/unique_fd.hpp"

#include <tutti/transport.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace tutti::transport {

inline constexpr std::size_t line_spacing = 128;

/// The slot of a rank that meets the others: where its buffers begin, as Place::bits() or as an address.
struct NamedBuffers {
    std::uint64_t input = 0, output = 0;
    std::uint64_t reachable = 0;  ///< 0: others cannot reach them
};

/// A rank's contribution to a small collective: a head and, right behind it, a payload, so that a short one comes in
/// the head's cache line.
struct SmallHead {
    std::atomic<std::uint64_t> sequence{0};
    std::uint64_t agreement = 0;  ///< of this collective and all before it (Group::remember)
    std::byte* payload() noexcept { return reinterpret_cast<std::byte*>(this + 1); }
    /// Last: the release hands over agreement, payload and the contents of the areas to a rank that acquires the
    /// number.
    void publish(std::uint64_t number) noexcept {
        TUTTI_ASSERT(number > 0);
        sequence.store(number, std::memory_order_release);
    }
    bool holds(std::uint64_t number) const noexcept { return sequence.load(std::memory_order_acquire) == number; }
};
/// One of `bytes` in all.
template <std::size_t bytes>
struct alignas(bytes) SmallPlace {
    static constexpr std::size_t payload_bytes = bytes - sizeof(SmallHead);
    SmallHead head;
    std::byte payload[payload_bytes];  // left as it is: fresh pages are zero
    SmallPlace() {}                    // NOLINT(modernize-use-equals-default): = default would clear it
};
using SmallSlot = SmallPlace<line_spacing>;
/// Of few bytes: two come in one line.
using ShortSlot = SmallPlace<32>;

/// The words by which one rank tells the others of its state.
struct RankControl {
    static constexpr std::size_t slots_max = 16;
    /// By slot: one more than the publication that it holds. Publications need not be
    /// made in order. A release behind the slot's contents; the reader's acquire of the stamp comes before it reads
    /// those (Publications::is_there).
    alignas(line_spacing) std::atomic<std::uint64_t> stamps[slots_max]{};
    /// This rank no longer needs publications below this: a release behind its reads there; the owner's acquire comes
    /// before it writes there again (Publications::has_room). In schedules in place also the count of this rank's
    /// signals: a release behind its reads and writes anywhere; a rank that waits for a signal acquires it.
    alignas(line_spacing) std::atomic<std::uint64_t> released{0};
    /// The doorbell: it changes between the sleeper's look at it and its sleep if another rank rang (sleep()).
    alignas(line_spacing) std::atomic<std::uint32_t> rings{0};
    /// A Sleep. One side of Dekker's algorithm, whose other side is any change that wakes: a fence after the store
    /// here, one (or the sleeper's membarrier) before the look.
    std::atomic<std::uint32_t> sleeping{0};
    /// Where ranks share CPUs: one more than the one on which this rank waited last; 0: not known. A hint: relaxed.
    std::atomic<std::uint32_t> cpu_and_one{0};
    enum Sleep : std::uint32_t { awake = 0, on_memory = 1, on_bell = 2 };
    /// The last collectives of this rank: a rank that meets one compares it with its own. The owner may overwrite a
    /// record while others read it (a sequence lock).
    struct Record {
        std::atomic<std::uint64_t> sequence{0};
        std::atomic<std::uint64_t> fingerprint{0};
        std::atomic<std::uint64_t> agreement{0};  ///< of it and all before it

        /// By its rank only.
        void put(std::uint64_t number, std::uint64_t of_it, std::uint64_t of_all) noexcept {
            TUTTI_ASSERT(number > 0);
            // Each value's release takes the 0 along: a reader that finds a new value under the old number finds the
            // number gone when it looks again.
            sequence.store(0, std::memory_order_relaxed);
            fingerprint.store(of_it, std::memory_order_release);
            agreement.store(of_all, std::memory_order_release);
            sequence.store(number, std::memory_order_release);
        }
        /// `value` is one of the two above. Nothing where this record is of another collective, or is becoming so.
        std::optional<std::uint64_t> read(std::uint64_t number,
                                          std::atomic<std::uint64_t> Record::*value) const noexcept {
            // The first acquire sees the values of this number or later ones, the second keeps the last look behind it.
            if (sequence.load(std::memory_order_acquire) != number) return std::nullopt;
            const std::uint64_t read = (this->*value).load(std::memory_order_acquire);
            if (sequence.load(std::memory_order_relaxed) != number) return std::nullopt;
            return read;
        }
    };
    static constexpr std::size_t small_slots = 128;
    /// A rank that compares looks back to its last look but one, and others may be as far ahead as there are slots.
    static constexpr std::size_t record_count = 4 * small_slots;
    alignas(line_spacing) Record records[record_count];
    /// Of rank 0's only: all ranks leave fences to the rank that goes to sleep. Loaded relaxed: it is 1 only after all
    /// sleepers make them, for good, and a rank that still sees 0 makes one too many.
    alignas(line_spacing) std::atomic<std::uint32_t> nobody_fences{0};
    /// Of rank 0's only: how many do so far. A read-modify-write of one word: the rank that completes the count is the
    /// last.
    std::atomic<std::uint32_t> relying{0};
    /// Whether this rank has mapped the arena, and may read and write the memory of all other ranks (PeerMemory). A
    /// release; a rank that acquires the full count has acquired each.
    enum class Attached : std::uint32_t { not_yet = 0, and_reads = 1, only = 2 };
    std::atomic<Attached> attached{Attached::not_yet};
    /// Of rank 0's only: how many have mapped it. acq_rel: each passes on the stores of those before it.
    std::atomic<std::uint32_t> attachments{0};
    /// Of rank 0's only, set before anybody attaches: tells this arena from all others. The descriptor came by a
    /// socket, after it.
    std::atomic<std::uint64_t> identity{0};
    /// One more than the arena rank into whose memory this rank is writing, where that has offered it; 0: none. One
    /// side of Dekker's algorithm, whose other side is the owner's stamp (PeerBuffers::revoke); the 0 is a release
    /// behind the bytes written.
    alignas(line_spacing) std::atomic<std::uint32_t> writing_to{0};
    /// The same of the one from whose memory it is reading a message (Offers); the other side is `withdrawn`.
    std::atomic<std::uint32_t> reading_from{0};
    /// Others may no longer read this rank's messages where they lie.
    alignas(line_spacing) std::atomic<std::uint32_t> withdrawn{0};
    /// The latest small collective that this rank has begun. It has read all that it needed of those before: the
    /// release comes behind those reads, and a rank that wants the place again acquires before it writes there
    /// (Slots::reusable).
    alignas(line_spacing) std::atomic<std::uint64_t> small_begun{0};
    /// Small collectives in which all wait for all, by their number among these: a rank that is through with one knows
    /// that all others have reached the one before. So two places are enough, and few lines travel often: two ranks
    /// take 57 ns for eight bytes in one line, 61 to 70 by a ring of 32 slots, where a line takes 34.
    static constexpr std::size_t in_turns = 2;
    alignas(line_spacing) ShortSlot short_in_turns[in_turns];
    SmallSlot in_turn[in_turns];
    /// Those with a root, by number among all small ones: a rank that waits for none may be this many ahead of the
    /// slowest.
    alignas(line_spacing) ShortSlot short_ahead[small_slots];
    SmallSlot ahead[small_slots];
    /// Of a part's: this rank has left its group: a release behind all that it has sent. Of the part's first rank: how
    /// many have; acq_rel: the last one gives the pages back behind all their accesses.
    std::atomic<std::uint32_t> left{0}, departures{0};
    /// Payloads that are longer than a slot's own, of either kind. As many places as there are slots, so that a rank
    /// whose payloads others read comes back to a line long after it has left their own caches: a broadcast of 32 KB
    /// takes a third (two ranks) to a fifth (four) of the time with 8 places. No page exists before its first use.
    static constexpr std::size_t small_area_bytes = 32768;
    /// Of the few in which all wait for all: blocks for many ranks, and a table of them.
    static constexpr std::size_t turn_area_bytes = 131072 + 4096;
    alignas(line_spacing) std::byte area_in_turn[in_turns][turn_area_bytes];
    std::byte area_ahead[small_slots][small_area_bytes];
};

/// A short message from one rank to another. Stamp, header and up to 24 bytes of payload share a cache line; up to
/// `inline_bytes` lie here, a longer payload in the ring of bytes.
struct alignas(line_spacing) MessageSlot {
    static constexpr std::size_t inline_bytes = 88;
    /// One more than the message's number. Written last, a release behind all of the message, its bytes in the ring
    /// too; the reader's acquire comes before it reads any of it.
    std::uint64_t stamp;
    std::uint64_t at;  ///< how many bytes of the ring come before this message
    ShortMessage message;
    std::array<std::byte, inline_bytes> payload;

    std::atomic_ref<std::uint64_t> stamped() noexcept { return std::atomic_ref(stamp); }
};
static_assert(sizeof(MessageSlot) == line_spacing);

/// A single-producer single-consumer ring of bytes, and slots for short messages beside it: all counts are since the
/// start.
struct RingControl {
    static constexpr std::size_t slots = 64;
    /// Bytes, those of short messages not at once: a release behind them, and behind the stamps before them. The reader
    /// acquires it before it looks for the next stamp, so bytes that it sees come before any message that it does not
    /// see.
    alignas(line_spacing) std::atomic<std::uint64_t> written{0};
    /// The writer will write nothing more: a release behind `written` and all stamps.
    std::atomic<std::uint32_t> ended{0};
    /// Bytes, those of short messages not at once: a release behind the bytes that the reader has read; the writer's
    /// acquire comes before it overwrites them. The same below.
    alignas(line_spacing) std::atomic<std::uint64_t> taken{0};
    std::atomic<std::uint64_t> slots_taken{0};  ///< messages, not at once
    MessageSlot messages[slots];                // left as they are: fresh pages are zero
};

struct ArenaLayout {
    int ranks = 1;
    std::uint32_t slots = 8;  ///< a multiple of four
    std::size_t slot_bytes = std::size_t{128} << 10;
    std::size_t ring_bytes = std::size_t{64} << 10;  ///< a power of two; 0: no rings

    std::size_t rank_bytes() const;
    std::size_t total_bytes() const;
    /// Of the ranks of one host, in a group of `group_size`. Slots are of one size in all of a group's arenas: longer
    /// where there are two ranks, which then wait for each other half as often.
    static ArenaLayout of(int ranks, int group_size);
};

class Arena {
 public:
    /// Memory for the threads of one process.
    static std::shared_ptr<Arena> create_private(const ArenaLayout& layout);
    /// New shared memory; its descriptor names it, and vanishes with the last mapping. Throws DistBackendError that
    /// says why there is none.
    static std::shared_ptr<Arena> create_shared(const ArenaLayout& layout);
    /// Maps an arena that another rank created. Throws DistBackendError if the memory has another size.
    static std::shared_ptr<Arena> attach(UniqueFd fd, const ArenaLayout& layout);
    /// The same, by its creator's process, the descriptor there, and control(0).identity. Null where that cannot be
    /// opened (another process name space, no /proc, a process that others may not inspect).
    static std::shared_ptr<Arena> find(int process, int descriptor, std::uint64_t identity, const ArenaLayout& layout);
    /// The part of a shared arena at `offset` (a multiple of part_alignment) behind it, for some of its ranks. Nothing
    /// was mapped there before. Throws DistBackendError where it cannot be mapped, or there is no room for it.
    static std::shared_ptr<Arena> part(std::shared_ptr<const Arena> whole, std::uint64_t offset,
                                       const ArenaLayout& layout, std::vector<int> ranks_of_whole);
    /// Room for parts, in bytes, and the alignment of their offsets.
    static constexpr std::uint64_t parts_bytes = std::uint64_t{1} << 50, part_alignment = std::uint64_t{1} << 16;
    ~Arena();
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;

    const ArenaLayout& layout() const noexcept { return layout_; }
    /// A descriptor of it, to pass on.
    UniqueFd fd() const;
    /// The creator's own, for find().
    int descriptor() const noexcept { return fd_.get(); }
    /// `rank` has mapped it; once.
    void say_attached(int rank, RankControl::Attached as) const noexcept;
    /// Whether all have, after `limit` at most.
    bool wait_until_attached(std::chrono::nanoseconds limit) const noexcept;
    /// A part: this rank will not use it any more. The last one to say so gives its memory back.
    void leave_part(int rank) noexcept;
    /// `sleeps_often`: this rank has no core of its own. Call before the first sleep.
    static void choose_fences(const std::shared_ptr<Arena>& arena, bool sleeps_often);
    /// One bell for each rank, eventfd(2)s that do not block; before the first sleep. `bells` is empty, or equal on
    /// all.
    void hang_bells(std::vector<UniqueFd> bells) noexcept {
        TUTTI_ASSERT(bells.empty() || bells.size() == static_cast<std::size_t>(layout_.ranks));
        bells_ = std::move(bells);
    }

    RankControl& control(int rank) const noexcept {
        TUTTI_ASSERT(rank >= 0 && rank < layout_.ranks);
        return *reinterpret_cast<RankControl*>(base_ + static_cast<std::size_t>(rank) * rank_bytes_);
    }
    /// Of two ranks: the one whose memory holds the `number`-th write of `rank` into a ring of `places`. They take
    /// turns with each place, since writing lines that this rank has just read takes a sixth of the time of writing
    /// those that the other has (on CPUs where the reader of a modified line gets it for itself). The writer must have
    /// finished reading there: the values that the other wrote one round of the ring before.
    int in_turn(int rank, std::uint64_t number, std::uint64_t places) const noexcept {
        TUTTI_ASSERT(rank >= 0 && rank < layout_.ranks);
        TUTTI_ASSERT(places > 0);
        return layout_.ranks == 2 ? rank ^ static_cast<int>(number / places & 1) : rank;
    }
    /// Two ranks take turns here as well: of four publications of a rank the third and fourth lie where the first and
    /// second of the other lay, which it has just read (schedule.hpp).
    std::byte* slot(int rank, std::uint64_t publication) const noexcept;
    /// Its index among all slots, of ranks * slots.
    std::size_t place(int rank, std::uint64_t publication) const noexcept {
        TUTTI_ASSERT(rank >= 0 && rank < layout_.ranks);
        TUTTI_ASSERT(layout_.slots > 0 && layout_.slots % 4 == 0);
        if (layout_.ranks != 2) return static_cast<std::size_t>(rank) * layout_.slots + publication % layout_.slots;
        const std::uint64_t four = publication / 4;
        // Each time round the ring the two places of four publications change roles, so that a rank that publishes only
        // one of two comes to all places.
        const std::uint64_t second = (publication + 2 * four / layout_.slots) & 1;
        const auto owner = static_cast<std::size_t>(rank) ^ (publication >> 1 & 1);
        return owner * layout_.slots + (2 * four + second) % layout_.slots;
    }
    RingControl& ring_control(int from, int to) const noexcept;
    std::byte* ring_data(int from, int to) const noexcept;

    /// Wakes `rank` if it sleeps. Call after the change that it may wait for.
    void ring_doorbell(int rank) const noexcept;
    [[gnu::always_inline]] void ring_all_doorbells(int except) const noexcept {
        fence_for_doorbell();
        for (int rank = 0; rank < layout_.ranks; ++rank) {
            if (rank != except) wake_if_asleep(rank);
        }
    }
    /// Sleeps until a doorbell, a signal or `limit`, unless `ready()` is already true.
    template <class Ready>
    void sleep(int rank, std::chrono::nanoseconds limit, Ready ready) const {
        TUTTI_ASSERT(limit.count() >= 0);
        RankControl& own = control(rank);
        // The store is a release so that this look stays before it: a rank that rings because of the store is not
        // overlooked. A rank that rang before made its change before, and the fence brings that to ready().
        const std::uint32_t seen = own.rings.load(std::memory_order_relaxed);
        own.sleeping.store(RankControl::on_memory, std::memory_order_seq_cst);
        fence_for_sleep();
        if (!ready()) futex_wait(own.rings, seen, limit);
        // A rank that sees it late rings needlessly.
        own.sleeping.store(RankControl::awake, std::memory_order_relaxed);
    }
    /// As sleep(), but inside `wait(bell)`, which has to return when the bell becomes readable. Needs bells.
    template <class Ready, class Wait>
    void sleep_by_bell(int rank, Ready ready, Wait wait) const {
        TUTTI_ASSERT(static_cast<std::size_t>(rank) < bells_.size());
        RankControl& own = control(rank);
        const UniqueFd& bell = bells_[static_cast<std::size_t>(rank)];
        own.sleeping.store(RankControl::on_bell, std::memory_order_seq_cst);
        fence_for_sleep();
        if (!ready()) wait(bell.get());
        own.sleeping.store(RankControl::awake, std::memory_order_relaxed);
        silence(bell);
    }

 private:
    Arena(const ArenaLayout& layout, std::byte* base, UniqueFd fd);
    static std::byte* map(int fd, std::uint64_t offset, const ArenaLayout& layout);
    static std::shared_ptr<Arena> make(UniqueFd fd, const ArenaLayout& layout);
    RankControl& door(int rank) const noexcept {
        TUTTI_ASSERT(!whole_ || static_cast<std::size_t>(rank) < doors_.size());
        return whole_ ? whole_->control(doors_[static_cast<std::size_t>(rank)]) : control(rank);
    }
    void fence_for_sleep() const noexcept;
    static void silence(const UniqueFd& bell) noexcept;
    [[gnu::always_inline]] void fence_for_doorbell() const noexcept {
        // Between the change (before) and the look at `sleeping` (after): a store and a load, which only a full fence
        // keeps in order, on x86 too.
        if ((whole_ ? whole_.get() : this)->control(0).nobody_fences.load(std::memory_order_relaxed) == 0)
            std::atomic_thread_fence(std::memory_order_seq_cst);
        else  // the compiler keeps the order, the sleeper's membarrier the CPU
            std::atomic_signal_fence(std::memory_order_seq_cst);
    }
    [[gnu::always_inline]] void wake_if_asleep(int rank) const noexcept {
        RankControl& peer = door(rank);
        if (peer.sleeping.load(std::memory_order_relaxed) != RankControl::awake) [[unlikely]]
            wake(rank, peer);
    }
    void wake(int rank, RankControl& peer) const noexcept;
    static void futex_wake(std::atomic<std::uint32_t>& word) noexcept;
    static void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t seen,
                           std::chrono::nanoseconds limit) noexcept;

    ArenaLayout layout_;
    std::size_t rank_bytes_;  // of the layout
    std::byte* base_ = nullptr;
    UniqueFd fd_;
    std::atomic<bool> fences_for_all_{false};  // this rank's sleeps make fences for all
    std::vector<UniqueFd> bells_;              // by rank
    // Of a part only.
    std::shared_ptr<const Arena> whole_;
    std::uint64_t offset_ = 0;  // in the file
    std::vector<int> doors_;    // by rank: its rank in the whole
};

}  // namespace tutti::transport
