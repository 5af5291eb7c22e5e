// Planner: the algorithms of a group: which is to serve a collective whatever the tuning says, and the schedules that
// it keeps for the next call of the same shape.
//
// Threads: one at a time (the world's lock), but layout() and named(), which change only while no collective is under
// way.
#pragma once

#include "algorithm/plan.hpp"

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

    /// Of the group with that layout.
    explicit Planner(algorithm::Layout layout);

    const algorithm::Layout& layout() const noexcept { return layout_; }
    /// The algorithm that is to serve a collective against the tuning, or the excluded one ("^ring"); empty: none.
    /// Equal on all ranks.
    const std::optional<std::string>& named(Collective collective) const noexcept {
        return named_[static_cast<std::size_t>(collective)];
    }
    void serve_with(Collective collective, std::optional<std::string> algorithm);
    /// The schedule of a request: the kept one, or a new one.
    std::shared_ptr<const schedule::Schedule> plan(const algorithm::Request& request);
    /// The largest slots with which to pass on the blocks of an all_to_all (Relay) is the quickest way; 0: none. Equal
    /// on all ranks.
    std::uint64_t largest_relayed();

 private:
    struct Kept {
        algorithm::Request request;
        std::shared_ptr<const schedule::Schedule> schedule;
    };
    const algorithm::Layout layout_;
    std::array<std::optional<std::string>, collective_count + 1> named_;  // by collective
    std::list<Kept> kept_;                                                // most recent first
    std::optional<std::uint64_t> largest_relayed_;
};

}  // namespace tutti::detail
