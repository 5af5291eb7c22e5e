// Execution: runs one rank's schedule over a mailbox and an arena. It decides which step runs next; RunBuffers knows
// where chunks lie; Publications and PeerBuffers exchange values through shared memory.
// Never blocks: progress() runs every step that can run and returns. Threads: one at a time (the group's lock).
// Buffers belong to the caller and stay in place until done().
#pragma once

#include "engine/coder.hpp"
#include "engine/peer_buffers.hpp"
#include "engine/publications.hpp"
#include "engine/rank_context.hpp"
#include "engine/run_buffers.hpp"
#include "engine/running.hpp"
#include "reduce/reduce.hpp"
#include "schedule/schedule.hpp"
#include "transport/mailbox.hpp"

#include <tutti/step_function.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti::engine {

class Execution final : public Running {
 public:
    Execution(std::shared_ptr<const schedule::Schedule> schedule, const Operands& operands, RankContext& context);
    ~Execution() override;

    /// Starts another run in the same memory; the previous run must be done.
    void restart(std::shared_ptr<const schedule::Schedule> schedule, const Operands& operands);
    bool progress() override;
    bool done() const noexcept override { return first_open_ == states_.size(); }
    std::string where() const override;
    bool has_sent_all(int peer) const noexcept override;
    void add_waits(std::vector<int>& ranks) const override;
    const std::optional<std::pair<int, std::uint64_t>>& mismatch() const noexcept override {
        return publications_.mismatch();
    }

 private:
    enum class State : std::uint8_t { open, running, done };

    /// The transfer of a step, and what the step does with arriving bytes.
    struct Message {
        transport::Transfer transfer;
        const Execution* of = nullptr;
        const schedule::Step* step = nullptr;

        /// Combines arrived bytes with this rank's.
        void operator()(std::size_t offset, std::span<const std::byte> arrived) const;
    };

    bool start(std::size_t index);
    void post(std::size_t index);
    void run_local(const schedule::Step& step);
    void call(const schedule::Step& step) const;
    /// Throws StepFailed if the operator is the caller's and has thrown.
    void combine(const schedule::Step& step, DType dtype, void* target, std::span<const void* const> inputs,
                 std::size_t count) const;
    bool run_shared(const schedule::Step& step);
    bool publish(const schedule::Step& step);
    bool read_combine(const schedule::Step& step);
    bool run_in_place(const schedule::Step& step);
    void combine_in_place(const schedule::Step& step);
    bool ready(const schedule::Step& step) const;
    void add_waits_for_shared(const schedule::Step& step, std::vector<int>& ranks) const;
    void tell_huge_pages() const;
    void begin();
    void fall_back();

    std::shared_ptr<const schedule::Schedule> schedule_;
    Operands operands_;
    RankContext& context_;
    RunBuffers buffers_;
    Coder coder_;
    Publications publications_;
    PeerBuffers peers_;
    std::vector<State> states_;  // by step
    std::size_t first_open_ = 0;
    // How far beyond first_open_ steps may run: enough to keep every link busy, few enough to scan. Grows when needed,
    // and covers at least the started steps.
    static constexpr std::size_t window_base = 64;
    std::size_t window_ = window_base;
    std::size_t started_ = 0;                 // end of the started transfers
    std::uint32_t idle_ = 0;                  // progress() calls in which nothing moved
    std::size_t next_shared_ = 0;             // index of the next staging step
    std::vector<Message> messages_;           // by step; must not move while posted
    std::vector<std::pair<int, bool>> held_;  // within one progress(): lanes (peer, sends)
    // As schedule_->functions.
    std::vector<std::shared_ptr<const StepFunction>> functions_;
    // What an operator of the caller has thrown in a receive: progress() says it.
    mutable std::optional<std::string> broken_;
    // Of one step.
    std::vector<const void*> inputs_, inputs_of_piece_;
    std::vector<std::byte*> other_targets_;
};

}  // namespace tutti::engine
