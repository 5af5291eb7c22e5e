// Planner: the algorithms of a group: which is to serve a collective whatever the tuning says, and the schedules that
// it keeps for the next call of the same shape.
//
// Threads: one at a time (the world's lock), but layout() and named(), which change only while no collective is under
// way.
#pragma once

#include "algorithm/plan.hpp"
#include "engine/call.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>

namespace tutti::detail {

class Planner {
 public:
    /// Schedules that it keeps.
    static constexpr std::size_t schedules_max = 64;

    /// Of that rank of the group with that layout. `rank_order`: all reductions combine in the order of ranks.
    Planner(algorithm::Layout layout, int rank, bool rank_order);

    const algorithm::Layout& layout() const noexcept { return layout_; }
    /// The algorithm that is to serve a collective against the tuning, or the excluded one ("^ring"); empty: none.
    /// Equal on all ranks.
    const std::optional<std::string>& named(Collective collective) const noexcept {
        return named_[static_cast<std::size_t>(collective)];
    }
    void serve_with(Collective collective, std::optional<std::string> algorithm);
    /// What decides about a schedule beside the call.
    struct Circumstances {
        bool symmetric = false;                        ///< the group has symmetric memory
        std::optional<std::uint64_t> largest_bytes{};  ///< all_to_all: of the largest block, where all ranks know it
    };
    /// The schedule of a call, or of a request: the kept one, or a new one.
    std::shared_ptr<const schedule::Schedule> plan(const engine::CollectiveCall& call, const Circumstances& with);
    std::shared_ptr<const schedule::Schedule> plan(const algorithm::Request& request);
    /// The largest slots with which to pass on the blocks of an all_to_all (Relay) is the quickest way; 0: none. Equal
    /// on all ranks.
    std::uint64_t largest_relayed();

 private:
    struct Kept {
        algorithm::Request request;
        std::shared_ptr<const schedule::Schedule> schedule;
    };
    const algorithm::Request& request_of(const engine::CollectiveCall& call, const Circumstances& with);

    const algorithm::Layout layout_;
    const int rank_;
    const bool rank_order_;
    std::array<std::optional<std::string>, collective_count + 1> named_;  // by collective
    algorithm::Request asked_;                                            // in memory that serves the next one, too
    std::list<Kept> kept_;                                                // most recent first
    std::optional<std::uint64_t> largest_relayed_;
};

}  // namespace tutti::detail
