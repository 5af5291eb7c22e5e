// NeighborGraphState: what the handles of a NeighborGraph (tutti/neighbors.hpp) share.
//
// Threads: constant after its constructor.
#pragma once

#include "group/group.hpp"

#include <tutti/neighbors.hpp>

#include <cstdint>
#include <memory>
#include <vector>

namespace tutti::detail {

class NeighborGraphState {
 public:
    /// All ranks of the group make it. Throws as NeighborGraph's constructor.
    NeighborGraphState(std::vector<int> sources, std::vector<int> destinations, const NeighborGraphOptions& options);

    const std::vector<int>& sources() const noexcept { return sources_; }
    const std::vector<int>& destinations() const noexcept { return destinations_; }
    const std::shared_ptr<Group>& group() const noexcept { return group_; }
    std::uint64_t channel() const noexcept { return channel_; }

 private:
    void compare(std::chrono::milliseconds timeout) const;

    const std::shared_ptr<Group> group_;
    const std::vector<int> sources_, destinations_;  // global ranks
    std::uint64_t channel_ = 0;                      // of its messages
};

}  // namespace tutti::detail
