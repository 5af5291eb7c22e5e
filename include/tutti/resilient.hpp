// A loop of steps that outlives its ranks.
//
//     std::vector<float> weights = …;  // the state: equal on all ranks between two steps
//     tutti::resilient({.state = {weights}, .steps = 10'000}, [&](tutti::Resilience& r) {
//         std::vector<float> gradient = gradient_of(weights, batch(r.step(), r.group().rank()));
//         tutti::all_reduce(gradient, {.group = r.group()});
//         update(weights, gradient);
//     });
//
// When a rank ends, the survivors form a new group, with newcomers in the places of the lost (newcomers.hpp) where such
// come. All go back to the last step that every survivor has completed, newcomers take the state over, and the steps go
// on from there: none is left out, and none counts twice. If a step is a function of the state, the number of the step
// and the rank, then a run whose group keeps its size ends with the bits of an undisturbed one.
//
// How: at the boundary before each step the ranks exchange two numbers, so no rank is more than one step ahead of
// another. Each then keeps a copy of the state, to which it can go back when the step fails on any rank.
#pragma once

#include <tutti/export.hpp>
#include <tutti/process_group.hpp>
#include <tutti/store.hpp>
#include <tutti/tensor.hpp>

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tutti {

struct ResilientOptions {
    /// The values that a newcomer takes over, and that go back to those before a step that failed. Between two steps
    /// they are equal on all ranks, also at the start. They outlive the loop.
    std::vector<TensorView> state{};
    /// Further state as bytes: `save` returns it, `load` puts it back. Both or none.
    std::function<std::string()> save{};
    std::function<void(const std::string&)> load{};
    /// Instead of the copies of `state`, for example where it lies on a device or is large: `keep` is called before
    /// each step, and `undo` brings `state` back to what it was at the last keep. Both or none.
    std::function<void()> keep{}, undo{};
    std::int64_t steps = 0;  ///< the loop ends when so many steps are completed, those before `first` included
    std::int64_t first = 0;  ///< so many are completed at the start, by a checkpoint; equal on all ranks but newcomers
    ProcessGroup group{};    ///< the ranks that begin; empty: the default group, which the new groups then replace
    /// Where newcomers wait, as GrowOptions. Empty: the store of a launcher that replaces lost ranks (TUTTI_REPLACES);
    /// without such a one nobody comes, and the group's own store serves the survivors.
    Store place{};
    std::string name = "newcomers";
    /// How long the survivors wait for as many newcomers as ranks were lost, before they go on with fewer ranks. Later
    /// newcomers come in between two steps. Default: a minute, or zero where `place` is empty and nobody comes.
    std::optional<std::chrono::milliseconds> wait{};
    int min_size = 1;      ///< with fewer ranks the loop ends, on all of them
    int max_size = 0;      ///< newcomers beyond it wait on, as spares; zero: as many ranks as began
    int max_failures = 5;  ///< so many groups may fail with no step completed between; then their error ends the loop
    std::chrono::milliseconds timeout{0};                 ///< of making a group; zero: the group's
    std::optional<std::chrono::milliseconds> patience{};  ///< for survivors that live and do not come: ShrinkOptions
    /// Whether an error that a step has thrown ends the loop, though the group has failed too. Default: no, unless it
    /// is an InvalidArgument, a CollectiveMismatch or an interrupt.
    std::function<bool(const std::exception_ptr&)> ends{};
};

/// The loop, as a step sees it. Threads: the one that runs the step.
class TUTTI_API Resilience {
 public:
    const ProcessGroup& group() const noexcept {
        return group_;
    }                                                     ///< of this step: a step that is done again may see another
    std::int64_t step() const noexcept { return step_; }  ///< from 0
    /// Whether the group has completed no step yet: what was made of its predecessor (subgroups, plans, windows, DDP)
    /// has to be made anew.
    bool is_new_group() const noexcept { return is_new_; }
    int recoveries() const noexcept { return recoveries_; }  ///< groups that this rank has seen fail and be replaced
    /// All ranks end the loop when this step is completed; any rank may say so.
    void stop() noexcept { stops_ = true; }

 protected:
    Resilience() = default;
    ProcessGroup group_;
    std::int64_t step_ = 0;
    int recoveries_ = 0;
    bool is_new_ = true, stops_ = false;
};

/// Runs the steps; all ranks of the group call it, and each newcomer whose group is its default group or `group`.
/// Blocking. Returns the group of the ranks that completed the last step.
///
/// errors   What a step throws while the group works, or `ends` says so: this rank leaves the group, and the others go
///          on without it. PeerLost, Timeout: max_failures or min_size is reached, no rank with the state is left, or
///          the others go on without this rank. DistStoreError: the store in which survivors meet is gone.
///          InvalidArgument: an option. Before it throws the rank has left the group.
/// cost     each step: an all_reduce of 16 bytes and a copy of the state; rank 0 asks the store for newcomers five
///          times a second while the group has fewer than max_size ranks. Memory: one copy of the state.
/// source   backward recovery with uncoordinated copies in memory, one boundary deep.
TUTTI_API ProcessGroup resilient(const ResilientOptions& options, const std::function<void(Resilience&)>& step);

}  // namespace tutti
