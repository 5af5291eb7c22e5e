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
#include "transport/shm/staging_copy.hpp"
#include "transport/shm/symmetric.hpp"

#include <tutti/step_function.hpp>

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

/// The state that executions of one group share.
struct RankContext {
    transport::Mailbox* mailbox = nullptr;
    transport::Arena* arena = nullptr;  ///< null: no shared memory
    const transport::SymmetricMemory* symmetric = nullptr;
    transport::StagingCopy* staging_copy = nullptr;  ///< null: memcpy
    /// The memory of a rank (the mailbox's) of this host; empty: the kernel does not let ranks copy from each other.
    HugePages* huge_pages = nullptr;  ///< learns which buffers operations use; null: none does
    std::function<const transport::PeerMemory*(int rank)> memory;
    std::vector<int> world_of;            ///< the mailbox's rank of each rank; empty: the same
    int rank = 0;                         ///< this rank
    std::uint64_t channel = 0;            ///< the bits that all channels of this group's collectives have in common
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
    Execution(std::shared_ptr<const schedule::Schedule> schedule, const Operands& operands, RankContext& context);
    ~Execution() override;

    /// Another run, of one that is done, in the same memory.
    void restart(std::shared_ptr<const schedule::Schedule> schedule, const Operands& operands);
    bool progress() override;
    bool done() const noexcept override { return first_open_ == states_.size(); }
    std::string where() const override;
    bool has_sent_all(int peer) const noexcept override;
    void add_waits(std::vector<int>& ranks) const override;
    const std::optional<std::pair<int, std::uint64_t>>& mismatch() const noexcept override { return mismatch_; }

 private:
    enum class State : std::uint8_t { open, running, done };

    /// The transfer of a step, and what its step does with the bytes that come.
    struct Message {
        transport::Transfer transfer;
        const Execution* of = nullptr;
        const schedule::Step* step = nullptr;

        /// Combines them with this rank's.
        void operator()(std::size_t offset, std::span<const std::byte> arrived) const;
    };

    bool start(std::size_t index);
    void post(std::size_t index);
    void run_local(const schedule::Step& step);
    void call(const schedule::Step& step) const;
    bool run_shared(const schedule::Step& step);
    bool publish(const schedule::Step& step);
    bool read_combine(const schedule::Step& step);
    /// How to copy into the slot of this rank's `publication`; null: by ordinary stores, for this rank was the last to
    /// read there, and has the lines in its cache.
    transport::StagingCopy* staging_copy(std::uint64_t publication) const noexcept {
        return context_.read_last[context_.arena->place(context_.local_rank, publication)] ? nullptr
                                                                                           : context_.staging_copy;
    }
    bool all_released(std::uint64_t publication) const;
    const std::atomic<std::uint64_t>& released_by(int peer) const;
    bool has_room(std::uint64_t publication) const;
    bool ready(const schedule::Step& step) const;
    std::byte* address(const schedule::Chunk& chunk) const;
    std::size_t bytes(const schedule::Chunk& chunk) const { return chunk.count * place_of(chunk).element_bytes; }
    /// A row of the schedule's table of buffers, in this run.
    struct Place {
        std::byte* base = nullptr;
        std::size_t element_bytes = 0;
        DType dtype = DType::uint8;
    };
    const Place& place_of(const schedule::Chunk& chunk) const { return places_[schedule::row(chunk.buffer)]; }
    void place_buffers();
    bool published(int peer, std::uint64_t publication) const;
    bool usable(int peer, std::uint64_t publication);
    void tell_published(std::uint64_t publication);
    void tell_huge_pages() const;
    void begin();
    void take_publications();
    void fall_back();
    // Schedules in place (in_place.cpp).
    bool run_in_place(const schedule::Step& step);
    bool meet(const schedule::Step& step);
    transport::NamedBuffers name_buffers(const schedule::Step& meet) const;
    bool combine_in_place(const schedule::Step& step);
    /// A chunk of a peer's: in memory that this rank maps, or where the peer's process has it.
    struct Far {
        std::byte* at = nullptr;
        std::uint64_t address = 0;
    };
    Far far(int peer, const schedule::Chunk& chunk) const;
    const transport::PeerMemory* memory_of(int peer) const;
    const std::atomic<std::uint64_t>& stamp_of(int peer, std::uint64_t publication) const;
    bool read_from(int peer, std::uint64_t publication, std::uint64_t address, std::span<std::byte> into) const;
    bool write_to(int peer, std::uint64_t publication, std::uint64_t address, std::span<const std::byte> from) const;
    void revoke() const noexcept;
    std::byte* slot_of(int peer, std::uint64_t publication) const;

    std::shared_ptr<const schedule::Schedule> schedule_;
    Operands operands_;
    RankContext& context_;
    std::size_t element_bytes_;  // of the call
    std::vector<Place> places_;  // by schedule::Buffer
    std::uint64_t base_;         // publication of round 0
    std::vector<State> states_;  // by step
    std::size_t first_open_ = 0;
    // How far ahead of first_open_ steps may run: enough to keep every link busy, and few to look at. Grows when
    // needed, and covers at least the steps that have been started.
    static constexpr std::size_t window_base = 64;
    std::size_t window_ = window_base;
    std::size_t started_ = 0;        // end of the transfers that have been started
    std::uint32_t idle_ = 0;         // turns without a move
    std::size_t next_shared_ = 0;    // index of the next staging step
    std::vector<Message> messages_;  // by step; stay in their places while posted
    std::unique_ptr<std::byte[]> scratch_;
    std::size_t scratch_bytes_ = 0;
    std::vector<std::pair<int, bool>> held_;  // of one turn: lanes (peer, sends)
    // As schedule_->functions.
    std::vector<std::shared_ptr<const StepFunction>> functions_;
    // Of one step.
    std::vector<const void*> inputs_, inputs_of_piece_;
    std::vector<std::byte*> other_targets_;
    std::vector<bool> agreed_;  // by rank: its record has been compared
    // In place: the buffers that all ranks have named at `meet`, by rank, and whether others may touch this rank's
    // buffers.
    std::vector<transport::NamedBuffers> named_;
    bool met_ = false;
    bool falls_back_ = false;  // someone's buffers cannot be reached
    std::optional<std::pair<int, std::uint64_t>> mismatch_;
};

}  // namespace tutti::engine
