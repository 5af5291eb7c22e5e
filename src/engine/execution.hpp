// Execution: runs one rank's schedule over a mailbox and an arena.
//
// Never blocks: progress() runs every step that can run and returns. Threads: one at a time (the group's lock).
// Buffers belong to the caller and stay in place until done().
#pragma once

#include "core/deadline.hpp"
#include "core/huge_pages.hpp"
#include "engine/running.hpp"
#include "reduce/reduce.hpp"
#include "schedule/schedule.hpp"
#include "transport/mailbox.hpp"
#include "transport/shm/arena.hpp"
#include "transport/shm/copy_choice.hpp"
#include "transport/shm/staging_copy.hpp"
#include "transport/shm/symmetric.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti::engine {

/// What executions of one group share.
struct Ground {
    transport::Mailbox* mailbox = nullptr;
    transport::Arena* arena = nullptr;  ///< null: no shared memory
    const transport::SymmetricMemory* symmetric = nullptr;
    transport::StagingCopy* staging_copy = nullptr;  ///< null: memcpy
    transport::CopyChoices* copy_choices = nullptr;  ///< null: what can be published in place is
    HugePages* huge_pages = nullptr;                 ///< told what operations use; null: nobody is
    /// The memory of a rank (the mailbox's) of this host; empty: the kernel does not let ranks copy from each other.
    std::function<const transport::PeerMemory*(int rank)> memory;
    std::vector<int> world_of;            ///< the mailbox's rank of each rank; empty: the same
    int rank = 0;                         ///< this rank
    std::uint64_t channel = 0;            ///< what all channels of this group's collectives have in common
    int local_rank = 0;                   ///< in the arena
    std::vector<int> local_of;            ///< arena rank of each rank of this host, -1 elsewhere
    std::uint64_t first_publication = 0;  ///< of the next schedule; equal on all ranks of a host
    /// By place in the staging area: whether this rank was the last to touch it, and read there.
    std::vector<bool> read_last;
};

struct Operands {
    std::byte* input = nullptr;
    std::byte* output = nullptr;
    DType dtype = DType::uint8;
    ReduceOp::Kind op = ReduceOp::Kind::sum;
    std::uint64_t divisor = 1;
    std::uint64_t channel = 0;
    std::uint64_t fingerprint = 0;
};

class Execution final : public Running {
 public:
    /// Of what the kernel copies from others to be combined, so many bytes come at once: few calls, and what comes is
    /// still in the cache when it is combined, the others' values too, where they are overwritten.
    static constexpr std::size_t combined_at_once = std::size_t{1} << 20;

    Execution(std::shared_ptr<const schedule::Schedule> schedule, const Operands& operands, Ground& ground);
    ~Execution() override;

    bool progress() override;
    bool done() const noexcept override { return first_open_ == states_.size(); }
    std::string where() const override;
    bool has_sent_all(int peer) const noexcept override;
    std::vector<int> waits_for() const override;
    const std::optional<std::pair<int, std::uint64_t>>& mismatch() const noexcept override { return mismatch_; }

 private:
    enum class State : std::uint8_t { open, running, done };

    bool start(std::size_t index);
    bool run_shared(const schedule::Step& step);
    bool publish(const schedule::Step& step);
    bool read_combine(const schedule::Step& step);
    bool write(const schedule::Step& step);
    // What may be published either way (either_way.cpp).
    void choose_way();
    void see_whether_named();
    void tell_way();
    transport::CopyChoice& copy_choice() const;
    std::atomic<transport::CopyChoice::Way>& way_of_everyone() const;
    /// How to copy into the slot of this rank's `publication`; null: by ordinary stores, for this rank has read last
    /// what lies there, and has it in its cache.
    transport::StagingCopy* staging_copy(std::uint64_t publication) const noexcept {
        return ground_.read_last[ground_.arena->place(ground_.local_rank, publication)] ? nullptr
                                                                                        : ground_.staging_copy;
    }
    bool stages() const noexcept { return chooses_ && way_ == transport::CopyChoice::Way::staging; }
    /// Runs `copy`, and adds its time to `ns` if that is asked for.
    template <class Copy>
    auto timed(double& ns, Copy copy) {
        if (!times()) return copy();
        struct Timer {
            double& ns;
            Instant start = Clock::now();
            ~Timer() { ns += std::chrono::duration<double, std::nano>(Clock::now() - start).count(); }
        } const timer{ns};
        return copy();
    }
    template <class Copy>
    auto timed_reading(transport::CopyChoice::Way way, std::size_t bytes, Copy copy) {
        if (leads_ && everyone_owns() && met_ == Instant{}) met_ = Clock::now();
        Reading& reading = reading_[static_cast<std::size_t>(way)];
        reading.bytes += static_cast<double>(bytes);
        return timed(reading.ns, copy);
    }
    bool everyone_owns() const noexcept { return schedule_->either_way_owner == schedule::everyone; }
    /// Whether single copies are timed. Who finds out for everyone counts all time from when it has met another rank.
    bool times() const noexcept {
        return schedule_->either_way > 0 && (!everyone_owns() || (leads_ && met_ == Instant{}));
    }
    std::size_t either_way_bytes() const noexcept { return schedule_->either_way * element_bytes_; }
    bool all_released(std::uint64_t publication) const;
    bool has_room(std::uint64_t publication) const;
    bool combine(const schedule::Step& step, std::uint64_t count, std::span<const void* const> inputs, std::byte* slot);
    std::byte* slot_of_result(const schedule::Step& step) const;
    bool ready(const schedule::Step& step) const;
    std::byte* address(const schedule::Chunk& chunk) const;
    std::size_t bytes(const schedule::Chunk& chunk) const { return chunk.count * element_bytes_; }
    bool published(int peer, std::uint64_t publication) const;
    // Publications of one rank that were made with the first of them.
    struct Run {
        std::uint64_t first = 0, end = 0;
        std::vector<transport::InPlace::Part> parts;  // of the first
    };
    const Run* run_with(int peer, std::uint64_t publication) const;
    bool begins_run(int peer, std::uint64_t publication) const;
    void remember_run(int peer, std::uint64_t publication);
    bool usable(int peer, std::uint64_t publication);
    bool wanted(const schedule::Step& publish) const;
    bool was_delivered(const schedule::Step& read, std::uint64_t publication) const;
    bool in_place(const schedule::Step& publish) const;
    // Buffers in ordinary memory (by_address.cpp).
    void name_by_address();
    void tell_huge_pages() const;
    const transport::PeerMemory* memory_of(int peer) const;
    const std::atomic<std::uint64_t>& stamp_of(int peer, std::uint64_t publication) const;
    bool read_from(int peer, std::uint64_t publication, std::uint64_t address, std::span<std::byte> into) const;
    bool read_on(const schedule::Step& step, std::uint64_t address);
    void done_through(std::size_t last, schedule::StepKind kind);
    std::size_t combine_on(const schedule::Step& step, std::uint64_t& count) const;
    bool write_to(int peer, std::uint64_t publication, std::uint64_t address, std::span<const std::byte> from) const;
    void revoke() const noexcept;
    std::uint64_t place_of(schedule::Buffer buffer) const;
    struct Source {
        std::byte* at = nullptr;
        bool offered = false;       ///< to be written
        std::uint64_t address = 0;  ///< not 0: there, in the peer's process
        bool revoked = false;       ///< the peer has given the operation up since usable()
    };
    Source source(int peer, std::uint64_t publication, std::uint64_t slot_offset, std::uint64_t count) const;

    std::shared_ptr<const schedule::Schedule> schedule_;
    Operands operands_;
    Ground& ground_;
    std::size_t element_bytes_;
    std::uint64_t base_;  // publication of round 0
    std::vector<State> states_;
    std::size_t first_open_ = 0;
    // How far ahead of first_open_ steps may run: enough to keep every link busy, and few to look at. Grows in need,
    // and covers at least what has been started.
    static constexpr std::size_t window_base = 64;
    std::size_t window_ = window_base;
    std::size_t started_ = 0;                                      // end of the transfers that have been started
    std::uint32_t idle_ = 0;                                       // turns without a move
    std::size_t next_shared_ = 0;                                  // index of the next staging step
    std::vector<std::unique_ptr<transport::Transfer>> transfers_;  // by step, where there is one
    std::unique_ptr<std::byte[]> scratch_;
    std::vector<std::pair<int, bool>> held_;  // of one turn: lanes (peer, sends)
    std::vector<bool> agreed_;                // by rank: its record has been compared
    // Symmetric memory: where the buffers lie that schedules name, what has been published there, and who was given
    // everything by the last step that delivers.
    std::array<transport::Place, 3> places_;
    std::array<const std::byte*, 3> addresses_{};  // where there is no place; null: values are copied
    bool published_in_place_ = false;
    Run told_;               // the last one of this rank's, without parts
    std::vector<Run> runs_;  // of others, by rank: the last one that this rank has met
    // Where there is a choice: what is taken for what this rank publishes, and what it has met, by way.
    bool chooses_ = false;
    bool leads_ = false;  // this rank finds out what is quicker
    transport::CopyChoice::Way way_{};
    double own_ns_ = 0;  // spent on copying what is its own; where everyone owns, before it met another rank
    struct Reading {
        double ns = 0, bytes = 0;
    };
    std::array<Reading, 2> reading_;
    Instant met_{};                     // where everyone owns: when this rank read first
    std::vector<bool> had_delivery_;    // by rank
    std::vector<std::byte*> delivery_;  // where the current step writes its result too
    bool in_slot_ = false;              // what the next publication names is in its slot already
    struct Far {
        std::size_t input = 0;  // which one
        int peer = -1;
        std::uint64_t address = 0;
        bool offered = false;  // the result is written there too
    };
    std::vector<Far> far_;  // inputs of the current step that the kernel copies from elsewhere
    std::optional<std::pair<int, std::uint64_t>> mismatch_;
};

}  // namespace tutti::engine
