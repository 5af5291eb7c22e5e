// Arena: the memory that the ranks of one host share: a staging area, small slots, byte rings, doorbells.
//
// All local ranks map the same layout, so they compute addresses and negotiate nothing. Every word has one writer at a
// time, and words with different writers are 128 bytes apart (the adjacent-line prefetcher fetches lines in pairs). A
// comment beside each atomic says why its memory order suffices on a CPU that reorders all that it may (Arm);
// MEMORY-ORDER.md has the whole argument, and tests/memory_model tests it. Threads: one thread of a rank at a time uses
// that rank's side; different ranks run in parallel.
//
// Doorbell. A rank that is about to sleep sets `sleeping`, polls once more, and waits on `rings` (futex). A rank that
// makes a change for which the sleeper may wait then reads `sleeping`. Both need a full fence between their store and
// their load, so that at least one of them sees the other's store. On the busy side the fence would delay every
// message; so the rank that goes to sleep executes it for all ranks, with membarrier(2), if every rank supports that
// and sleeps seldom.
//
// A rank that waits for sockets too cannot sleep on memory. It has a bell, an eventfd to which the rank that wakes it
// writes, and sleeps in poll(2).
//
// Parts. Each group of some of the ranks has an arena of its own in the same file, behind the arena of all ranks, at an
// offset that every rank can compute; parts use the doorbells of the whole arena. A part takes memory only where a rank
// has written to it.
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

/// What a rank publishes in its slot when ranks meet: where its buffers begin, as Place::bits() or as an address.
struct NamedBuffers {
    std::uint64_t input = 0, output = 0;
    std::uint64_t reachable = 0;  ///< 0: other ranks cannot reach the buffers
};

/// A rank's contribution to a small collective: a head and, right behind it, a payload. A short payload lies in the
/// same cache line as the head.
struct SmallHead {
    std::atomic<std::uint64_t> sequence{0};
    std::uint64_t agreement = 0;  ///< of this collective and all earlier ones (Group::remember)
    std::byte* payload() noexcept { return reinterpret_cast<std::byte*>(this + 1); }
    /// Call it last: the release makes agreement, payload and the contents of the areas visible to a rank that acquires
    /// the number.
    void publish(std::uint64_t number) noexcept {
        TUTTI_ASSERT(number > 0);
        sequence.store(number, std::memory_order_release);
    }
    bool holds(std::uint64_t number) const noexcept { return sequence.load(std::memory_order_acquire) == number; }
};
/// A head and its payload, `bytes` bytes together.
template <std::size_t bytes>
struct alignas(bytes) SmallPlace {
    static constexpr std::size_t payload_bytes = bytes - sizeof(SmallHead);
    SmallHead head;
    std::byte payload[payload_bytes];  // not initialised: fresh pages are zero
    SmallPlace() {}                    // NOLINT(modernize-use-equals-default): = default would clear it
};
using SmallSlot = SmallPlace<line_spacing>;
/// A slot for few bytes: two share a cache line.
using ShortSlot = SmallPlace<32>;

/// The words by which one rank tells the other ranks its state.
struct RankControl {
    static constexpr std::size_t slots_max = 16;
    /// stamps[slot]: the number of the publication in that slot, plus 1. Publications need not be made in order. The
    /// store is a release after the slot's contents; a reader acquires the stamp before it reads the contents
    /// (Publications::is_there).
    alignas(line_spacing) std::atomic<std::uint64_t> stamps[slots_max]{};
    /// This rank no longer needs publications below this number. The store is a release after its reads of them; their
    /// owner acquires it before it overwrites them (Publications::has_room). In schedules in place also the number of
    /// this rank's signals: a release after all its reads and writes; a rank that waits for a signal acquires it.
    alignas(line_spacing) std::atomic<std::uint64_t> released{0};
    /// The doorbell: a ring changes it, so that a sleeper that has read it before does not fall asleep (sleep()).
    alignas(line_spacing) std::atomic<std::uint32_t> rings{0};
    /// A value of Sleep. One side of Dekker's algorithm; the other is every change that wakes a sleeper: a store here,
    /// a fence, then a load of the change; there a store, a fence (or the sleeper's membarrier), then a load of this.
    std::atomic<std::uint32_t> sleeping{0};
    /// If ranks share CPUs: the CPU on which this rank last waited, plus 1; 0: unknown. Relaxed, since it is a hint.
    std::atomic<std::uint32_t> cpu_and_one{0};
    enum Sleep : std::uint32_t { awake = 0, on_memory = 1, on_bell = 2 };
    /// The latest collectives of this rank, with which other ranks compare theirs. The owner may overwrite a record
    /// while others read it (a sequence lock).
    struct Record {
        std::atomic<std::uint64_t> sequence{0};
        std::atomic<std::uint64_t> fingerprint{0};
        std::atomic<std::uint64_t> agreement{0};  ///< of this collective and all earlier ones

        /// Only the rank that owns the record calls it.
        void put(std::uint64_t number, std::uint64_t of_it, std::uint64_t of_all) noexcept {
            TUTTI_ASSERT(number > 0);
            // The release of each value also publishes the 0: a reader that sees a new value under the old number no
            // longer finds that number when it reads `sequence` again.
            sequence.store(0, std::memory_order_relaxed);
            fingerprint.store(of_it, std::memory_order_release);
            agreement.store(of_all, std::memory_order_release);
            sequence.store(number, std::memory_order_release);
        }
        /// `value`: &Record::fingerprint or &Record::agreement. nullopt: the record holds another collective, or is
        /// changing.
        std::optional<std::uint64_t> read(std::uint64_t number,
                                          std::atomic<std::uint64_t> Record::*value) const noexcept {
            // The first acquire shows the values of this number or later ones; the second keeps the last load after it.
            if (sequence.load(std::memory_order_acquire) != number) return std::nullopt;
            const std::uint64_t read = (this->*value).load(std::memory_order_acquire);
            if (sequence.load(std::memory_order_relaxed) != number) return std::nullopt;
            return read;
        }
    };
    static constexpr std::size_t small_slots = 128;
    /// A comparing rank reads as far back as its last comparison but one, and others may be small_slots ahead of it.
    static constexpr std::size_t record_count = 4 * small_slots;
    alignas(line_spacing) Record records[record_count];
    /// Rank 0's only: 1 when all ranks leave the fences to the rank that goes to sleep. Relaxed loads suffice: it
    /// becomes 1, for good, after all sleepers execute them, and a rank that still reads 0 only executes a needless
    /// fence.
    alignas(line_spacing) std::atomic<std::uint32_t> nobody_fences{0};
    /// Rank 0's only: how many ranks rely on that so far. All increment one word, so the rank that completes the count
    /// is the last one.
    std::atomic<std::uint32_t> relying{0};
    /// Whether this rank has mapped the arena, and may read and write the memory of all other ranks (PeerMemory). The
    /// store is a release; a rank that acquires the full count of `attachments` sees the value of each rank.
    enum class Attached : std::uint32_t { not_yet = 0, and_reads = 1, only = 2 };
    std::atomic<Attached> attached{Attached::not_yet};
    /// Rank 0's only: how many ranks have mapped the arena. acq_rel: each increment passes on the stores before it.
    std::atomic<std::uint32_t> attachments{0};
    /// Rank 0's only, set before any other rank attaches: distinguishes this arena from all others. Plain order
    /// suffices: the other ranks get the descriptor later, through a socket.
    std::atomic<std::uint64_t> identity{0};
    /// One more than the arena rank into whose offered memory this rank is writing; 0: none. One side of Dekker's
    /// algorithm; the other is the owner's stamp (PeerBuffers::revoke). The store of 0 is a release after the bytes
    /// written.
    alignas(line_spacing) std::atomic<std::uint32_t> writing_to{0};
    /// One more than the arena rank whose offered message this rank is reading (Offers); the other side is `withdrawn`.
    std::atomic<std::uint32_t> reading_from{0};
    /// Nonzero: other ranks may no longer read this rank's messages in place.
    alignas(line_spacing) std::atomic<std::uint32_t> withdrawn{0};
    /// The latest small collective that this rank has begun. The store is a release after all its reads of earlier
    /// ones; a rank acquires it before it reuses a place (Slots::reusable).
    alignas(line_spacing) std::atomic<std::uint64_t> small_begun{0};
    /// Small collectives in which all ranks wait for all, numbered among themselves: a rank that has finished one knows
    /// that all others have reached the one before. So two places suffice, and few cache lines travel: two ranks take
    /// 57 ns for eight bytes in one line, and 61 to 70 ns with a ring of 32 slots; one line takes 34 ns to travel.
    static constexpr std::size_t in_turns = 2;
    alignas(line_spacing) ShortSlot short_in_turns[in_turns];
    SmallSlot in_turn[in_turns];
    /// Small collectives with a root, numbered among all small ones: a rank that waits for no other may be this many
    /// ahead of the slowest.
    alignas(line_spacing) ShortSlot short_ahead[small_slots];
    SmallSlot ahead[small_slots];
    /// `left`, in a part: this rank has left the group, a release after its last send. `departures`, of the part's
    /// first rank: how many have left; acq_rel: the last one gives the pages back after all accesses of the others.
    std::atomic<std::uint32_t> left{0}, departures{0};
    /// Payloads longer than a slot, for the two kinds of small collectives. There is an area for each slot, so that the
    /// lines to which a rank returns have long left its readers' caches: with 8 areas, a broadcast of 32 KB takes three
    /// times (two ranks) to five times (four) as long. A page takes memory only after its first use.
    static constexpr std::size_t small_area_bytes = 32768;
    /// The areas of the collectives in which all wait for all hold blocks for many ranks, and a table of them.
    static constexpr std::size_t turn_area_bytes = 131072 + 4096;
    alignas(line_spacing) std::byte area_in_turn[in_turns][turn_area_bytes];
    std::byte area_ahead[small_slots][small_area_bytes];
};

/// A short message from one rank to another. Stamp, header and up to 24 bytes of payload share a cache line; the slot
/// holds a payload of up to `inline_bytes`, the ring of bytes a longer one.
struct alignas(line_spacing) MessageSlot {
    static constexpr std::size_t inline_bytes = 88;
    /// One more than the message's number. The writer stores it last, a release after the whole message and its bytes
    /// in the ring; the reader acquires it before it reads any of these.
    std::uint64_t stamp;
    std::uint64_t at;  ///< the number of ring bytes that precede this message
    ShortMessage message;
    std::array<std::byte, inline_bytes> payload;

    std::atomic_ref<std::uint64_t> stamped() noexcept { return std::atomic_ref(stamp); }
};
static_assert(sizeof(MessageSlot) == line_spacing);

/// A single-producer single-consumer ring of bytes, with slots for short messages beside it. All counts are totals
/// since the start.
struct RingControl {
    static constexpr std::size_t slots = 64;
    /// Bytes written; bytes of short messages are added later. A release after these bytes and after the stamps before
    /// them. The reader acquires it before it looks for the next stamp, so bytes that it sees precede every message
    /// that it does not see.
    alignas(line_spacing) std::atomic<std::uint64_t> written{0};
    /// The writer will write nothing more: a release after `written` and all stamps.
    std::atomic<std::uint32_t> ended{0};
    /// Bytes read; bytes of short messages are added later. A release after the reads; the writer acquires it before it
    /// overwrites these bytes. The same holds for `slots_taken`.
    alignas(line_spacing) std::atomic<std::uint64_t> taken{0};
    std::atomic<std::uint64_t> slots_taken{0};  ///< messages read; updated now and then
    MessageSlot messages[slots];                // not initialised: fresh pages are zero
};

struct ArenaLayout {
    int ranks = 1;
    std::uint32_t slots = 8;  ///< a multiple of four
    std::size_t slot_bytes = std::size_t{128} << 10;
    std::size_t ring_bytes = std::size_t{64} << 10;  ///< a power of two; 0: no rings

    std::size_t rank_bytes() const;
    std::size_t total_bytes() const;
    /// The layout for the ranks of one host, in a group of `group_size`. All arenas of a group have slots of one size:
    /// larger in a group of two ranks, which then wait for each other half as often.
    static ArenaLayout of(int ranks, int group_size);
};

class Arena {
 public:
    /// Memory for the threads of one process.
    static std::shared_ptr<Arena> create_private(const ArenaLayout& layout);
    /// Creates shared memory, which exists until its last descriptor and mapping are gone. Throws DistBackendError that
    /// says why it cannot.
    static std::shared_ptr<Arena> create_shared(const ArenaLayout& layout);
    /// Maps an arena that another rank created. Throws DistBackendError if the memory has another size.
    static std::shared_ptr<Arena> attach(UniqueFd fd, const ArenaLayout& layout);
    /// As attach(), given the creator's process, the descriptor's number there, and control(0).identity. Null if the
    /// descriptor cannot be opened (another PID namespace, no /proc, a process that others may not inspect).
    static std::shared_ptr<Arena> find(int process, int descriptor, std::uint64_t identity, const ArenaLayout& layout);
    /// Maps the part at `offset` (a multiple of part_alignment) behind a shared arena, for some of its ranks. Nothing
    /// may have been mapped there before. Throws DistBackendError if mapping fails or there is no room.
    static std::shared_ptr<Arena> part(std::shared_ptr<const Arena> whole, std::uint64_t offset,
                                       const ArenaLayout& layout, std::vector<int> ranks_of_whole);
    /// The bytes available for parts, and the alignment of their offsets.
    static constexpr std::uint64_t parts_bytes = std::uint64_t{1} << 50, part_alignment = std::uint64_t{1} << 16;
    ~Arena();
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;

    const ArenaLayout& layout() const noexcept { return layout_; }
    /// A duplicate of its descriptor, to pass on.
    UniqueFd fd() const;
    /// The creator's descriptor, for find().
    int descriptor() const noexcept { return fd_.get(); }
    /// Says that `rank` has mapped the arena. Call it once.
    void say_attached(int rank, RankControl::Attached as) const noexcept;
    /// Waits for at most `limit`; returns whether all ranks have mapped it.
    bool wait_until_attached(std::chrono::nanoseconds limit) const noexcept;
    /// For a part: this rank will not use it any more. The last rank to call it frees the part's memory.
    void leave_part(int rank) noexcept;
    /// Chooses who executes the doorbell's fences. `sleeps_often`: this rank has no core of its own. Call before the
    /// first sleep.
    static void choose_fences(const std::shared_ptr<Arena>& arena, bool sleeps_often);
    /// Sets a bell for each rank (non-blocking eventfd(2)s). Call before the first sleep. `bells`: empty, or equal on
    /// all ranks.
    void hang_bells(std::vector<UniqueFd> bells) noexcept {
        TUTTI_ASSERT(bells.empty() || bells.size() == static_cast<std::size_t>(layout_.ranks));
        bells_ = std::move(bells);
    }

    RankControl& control(int rank) const noexcept {
        TUTTI_ASSERT(rank >= 0 && rank < layout_.ranks);
        return *reinterpret_cast<RankControl*>(base_ + static_cast<std::size_t>(rank) * rank_bytes_);
    }
    /// The rank whose memory holds the `number`-th write of `rank` into a ring of `places`. Two ranks alternate at each
    /// place, since writing lines that the writer has just read takes a sixth of the time of writing lines that the
    /// other rank has read (on CPUs where the reader of a modified line takes ownership of it). The writer must have
    /// finished reading the values that the other wrote there one round of the ring before.
    int in_turn(int rank, std::uint64_t number, std::uint64_t places) const noexcept {
        TUTTI_ASSERT(rank >= 0 && rank < layout_.ranks);
        TUTTI_ASSERT(places > 0);
        return layout_.ranks == 2 ? rank ^ static_cast<int>(number / places & 1) : rank;
    }
    /// Two ranks alternate here too: of every four publications of a rank, the third and fourth lie where the first and
    /// second of the other lay, which the rank has just read (schedule.hpp).
    std::byte* slot(int rank, std::uint64_t publication) const noexcept;
    /// The index of that slot among all ranks * slots.
    std::size_t place(int rank, std::uint64_t publication) const noexcept {
        TUTTI_ASSERT(rank >= 0 && rank < layout_.ranks);
        TUTTI_ASSERT(layout_.slots > 0 && layout_.slots % 4 == 0);
        if (layout_.ranks != 2) return static_cast<std::size_t>(rank) * layout_.slots + publication % layout_.slots;
        const std::uint64_t four = publication / 4;
        // In each round of the ring the two places of four publications swap roles, so that a rank that publishes only
        // every second one uses all places.
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
        // The store is a release, so that the load of `rings` stays before it: no ring caused by the store is missed. A
        // rank that rang earlier made its change before, and the fence makes that change visible to ready().
        const std::uint32_t seen = own.rings.load(std::memory_order_relaxed);
        own.sleeping.store(RankControl::on_memory, std::memory_order_seq_cst);
        fence_for_sleep();
        if (!ready()) futex_wait(own.rings, seen, limit);
        // A rank that sees this store late rings needlessly, which is harmless.
        own.sleeping.store(RankControl::awake, std::memory_order_relaxed);
    }
    /// As sleep(), but sleeps in `wait(bell)`, which must return when the bell becomes readable. Needs bells.
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
        // Orders the change (a store before) and the read of `sleeping` (a load after): only a full fence does, on x86
        // too.
        if ((whole_ ? whole_.get() : this)->control(0).nobody_fences.load(std::memory_order_relaxed) == 0)
            std::atomic_thread_fence(std::memory_order_seq_cst);
        else  // the compiler fence keeps the order in the code, the sleeper's membarrier on the CPU
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
    std::atomic<bool> fences_for_all_{false};  // this rank's sleeps execute the fences for all ranks
    std::vector<UniqueFd> bells_;              // by rank
    // Of a part only.
    std::shared_ptr<const Arena> whole_;
    std::uint64_t offset_ = 0;  // in the file
    std::vector<int> doors_;    // by rank: its rank in the whole arena
};

}  // namespace tutti::transport
