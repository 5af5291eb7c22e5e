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

/// How the data of a collective are moved.
enum class Path : std::uint8_t {
    slots,    ///< in slots of memory that all ranks share; an exchange continues on another path if a block does not
              ///< fit: between all ranks, in a gather_v between that rank and the root
    library,  ///< by the library of the group's transport, if it has the collective; ranks compare their calls first
    relay,    ///< all_to_all: ranks relay short blocks for each other, and continue with a schedule if one does not fit
    schedule
};

class Planner {
 public:
    /// The capacity of the cache of schedules.
    static constexpr std::size_t schedules_max = 64;

    /// The planner of `rank` in a group with this layout. `rank_order`: all reductions combine in the order of ranks.
    Planner(algorithm::Layout layout, int rank, bool rank_order);

    const algorithm::Layout& layout() const noexcept { return layout_; }
    /// The algorithm that overrides the tuning for a collective, or one that is excluded ("^ring"); nullopt: neither.
    /// Equal on all ranks.
    const std::optional<std::string>& named(Collective collective) const noexcept {
        return named_[static_cast<std::size_t>(collective)];
    }
    void serve_with(Collective collective, std::optional<std::string> algorithm);
    /// All ranks share memory and have slots in it. Call before the first collective.
    void use_slots();
    /// The library of the group's transport may run collectives. Call before the first collective.
    void use_library(bool ranks_share_memory);

    /// The path of a call; only this function decides it. Equal on all ranks, since it depends only on what is.
    Path path(const engine::CollectiveCall& call) {
        const bool in_slots = traits_of(call.collective).exchanges() ? uses_slots_ : fits_in_slots(call);
        return in_slots ? Path::slots : path_by_messages(call);
    }
    /// As path(), for a call that does not run in slots, or whose blocks did not fit there.
    Path path_by_messages(const engine::CollectiveCall& call);
    /// Whether this rank's part fits into its slot. In an exchange, ranks may differ in this.
    bool fits_in_slots(const engine::CollectiveCall& call) const noexcept {
        return traits_of(call.collective).exchanges() ? blocks_fit(call) : is_short(call.collective, call.block_bytes);
    }
    /// Whether blocks of that length run in slots.
    bool is_short(Collective collective, std::uint64_t block_bytes) const noexcept {
        for (const auto& [from, to] : short_sizes_[static_cast<std::size_t>(collective)]) {
            if (block_bytes >= from && block_bytes <= to) return true;
        }
        return false;
    }
    /// What determines a schedule in addition to the call.
    struct Circumstances {
        bool symmetric = false;                        ///< the group has symmetric memory
        std::optional<std::uint64_t> largest_bytes{};  ///< all_to_all: the longest block, if all ranks know it
        bool follows_slots = false;                    ///< the call has been in slots, where its blocks did not fit
    };
    /// The schedule of a call, or of a request: from the cache, or a new one.
    std::shared_ptr<const schedule::Schedule> plan(const engine::CollectiveCall& call, const Circumstances& with);
    std::shared_ptr<const schedule::Schedule> plan(const algorithm::Request& request);
    /// The largest slot size, in bytes, with which relaying the blocks of an all_to_all (BruckExchange) is the fastest
    /// path; 0: it never is. Equal on all ranks.
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
    algorithm::Request asked_;  // the last request; the next one reuses its memory
    std::list<Kept> kept_;      // most recent first
    std::optional<std::uint64_t> largest_relayed_;
    bool uses_slots_ = false;
    enum class Library : std::uint8_t { none, beside_memory, alone };
    Library library_ = Library::none;
    std::array<std::vector<algorithm::SlotSizes>, collective_count + 1> short_sizes_;  // by collective
};

}  // namespace tutti::detail
