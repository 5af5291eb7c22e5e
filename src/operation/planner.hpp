// Planner: chooses how a group moves the data of its collectives: by which path, by which algorithm, and by which
// schedule, which it caches for the next call of the same shape.
//
// Threads: one at a time (the world's lock), except layout(), named() and fits_in_slots(), whose results change only
// while no collective is under way.
#pragma once

#include "algorithm/plan.hpp"
#include "algorithm/slots.hpp"
#include "engine/call.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tutti::detail {

/// How the data of a collective move.
enum class Path : std::uint8_t {
    slots,    ///< in slots of the memory that all ranks share; an all_to_all continues by another path if a block of
              ///< any rank does not fit
    library,  ///< by the library of the group's transport, where it offers that; ranks compare their calls first
    relay,    ///< all_to_all: ranks relay short blocks for each other, and continue with a schedule if one does not fit
    schedule
};

class Planner {
 public:
    /// The capacity of the cache of schedules.
    static constexpr std::size_t schedules_max = 64;

    /// The planner of `rank` in the group with that layout. `rank_order`: all reductions combine in the order of ranks.
    Planner(algorithm::Layout layout, int rank, bool rank_order);

    const algorithm::Layout& layout() const noexcept { return layout_; }
    /// The algorithm that overrides the tuning for a collective, or the excluded one ("^ring"); empty: none. Equal on
    /// all ranks.
    const std::optional<std::string>& named(Collective collective) const noexcept {
        return named_[static_cast<std::size_t>(collective)];
    }
    void serve_with(Collective collective, std::optional<std::string> algorithm);
    /// All ranks share memory and have slots in it. Before the first collective.
    void use_slots();
    /// The library of the group's transport may carry out collectives. Before the first collective.
    void use_library(bool ranks_share_memory);

    /// The path of a call: the one place that decides. Equal on all ranks, as it depends on nothing else.
    Path path(const engine::CollectiveCall& call) {
        const bool in_slots = call.collective == Collective::all_to_all ? uses_slots_ : fits_in_slots(call);
        return in_slots ? Path::slots : path_by_messages(call);
    }
    /// The same for a call that does not run in slots, or whose blocks did not fit there.
    Path path_by_messages(const engine::CollectiveCall& call);
    /// Whether this rank's part fits into its slot. Ranks may differ in that for an all_to_all.
    bool fits_in_slots(const engine::CollectiveCall& call) const noexcept {
        return call.collective == Collective::all_to_all ? blocks_fit(call)
                                                         : is_short(call.collective, call.block_bytes);
    }
    /// Whether blocks of that length run in slots.
    bool is_short(Collective collective, std::uint64_t block_bytes) const noexcept {
        for (const auto& [from, to] : short_sizes_[static_cast<std::size_t>(collective)]) {
            if (block_bytes >= from && block_bytes <= to) return true;
        }
        return false;
    }
    /// What decides about a schedule beside the call.
    struct Circumstances {
        bool symmetric = false;                        ///< the group has symmetric memory
        std::optional<std::uint64_t> largest_bytes{};  ///< all_to_all: of the largest block, where all ranks know it
    };
    /// The schedule of a call, or of a request: the kept one, or a new one.
    std::shared_ptr<const schedule::Schedule> plan(const engine::CollectiveCall& call, const Circumstances& with);
    std::shared_ptr<const schedule::Schedule> plan(const algorithm::Request& request);
    /// The largest slots with which to pass on the blocks of an all_to_all (BruckExchange) is the quickest way; 0:
    /// none. Equal on all ranks.
    std::uint64_t largest_relayed();

 private:
    struct Kept {
        algorithm::Request request;
        std::shared_ptr<const schedule::Schedule> schedule;
    };
    const algorithm::Request& request_of(const engine::CollectiveCall& call, const Circumstances& with);
    bool blocks_fit(const engine::CollectiveCall& call) const noexcept;
    void choose_short_sizes(Collective collective);

    const algorithm::Layout layout_;
    const int rank_;
    const bool rank_order_;
    std::array<std::optional<std::string>, collective_count + 1> named_;  // by collective
    algorithm::Request asked_;                                            // in memory that serves the next one, too
    std::list<Kept> kept_;                                                // most recent first
    std::optional<std::uint64_t> largest_relayed_;
    bool uses_slots_ = false;
    enum class Library : std::uint8_t { none, beside_memory, alone };
    Library library_ = Library::none;
    std::array<std::vector<algorithm::SlotSizes>, collective_count + 1> short_sizes_;  // by collective
};

}  // namespace tutti::detail
